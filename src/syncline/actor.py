"""`syncline.actor`: the public types of actors."""

from syncline.core.api import exit_actor
from syncline.core.remote import (
    ActorClass,
    ActorClassInheritanceException,
    ActorHandle,
    ActorMethod,
    method,
)

__all__ = [
    "ActorClass",
    "ActorClassInheritanceException",
    "ActorHandle",
    "ActorMethod",
    "exit_actor",
    "method",
]
