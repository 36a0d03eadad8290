"""`syncline.actor`: the public types of actors."""

from syncline.core.api import exit_actor
from syncline.core.remote import ActorClass, ActorHandle, ActorMethod, method

__all__ = ["ActorClass", "ActorHandle", "ActorMethod", "exit_actor", "method"]
