"""`syncline.remote_function`: the type of remote functions."""

from syncline.core.remote import RemoteFunction

__all__ = ["RemoteFunction"]
