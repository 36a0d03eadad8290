"""Decorators that programs for RLlib use; they change nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def override(parent_class: type) -> Callable[[T], T]:
    """Mark a method that overrides one of `parent_class`."""
    return lambda method: method


def OverrideToImplementCustomLogic(obj: T) -> T:
    """Mark a method for users to override."""
    return obj


def OverrideToImplementCustomLogic_CallToSuperRecommended(obj: T) -> T:
    """Mark a method for users to override, which calls the overridden one."""
    return obj


def PublicAPI(obj: object = None, **_: object) -> Any:
    """Mark a public class or function."""
    return obj if obj is not None else lambda each: each


DeveloperAPI = PublicAPI
