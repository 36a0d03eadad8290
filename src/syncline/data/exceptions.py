"""The names of `ray.data.exceptions`; they are defined in `syncline.exceptions`."""

from syncline.exceptions import UserCodeException

__all__ = ["UserCodeException"]
