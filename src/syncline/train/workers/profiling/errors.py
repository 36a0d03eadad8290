"""What goes wrong with profiles."""

from __future__ import annotations


class ProfileError(RuntimeError):
    """A profile could not be taken: cause and remedy. The training is not touched by it."""
