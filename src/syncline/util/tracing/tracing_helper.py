"""`is_tracing_enabled`, and the error for programs that set tracing up."""

from __future__ import annotations

from typing import NoReturn


def is_tracing_enabled() -> bool:
    """Return False: calls of tasks and actors write no spans."""
    return False


_is_tracing_enabled = is_tracing_enabled


def refuse() -> NoReturn:
    """Raise NotImplementedError that says what to use."""
    raise NotImplementedError(
        "Calls of tasks and actors write no OpenTelemetry spans. `syncline.timeline('trace.json')` "
        "writes what ran where and when, for Perfetto; serve traces requests (see "
        "docs/serving.md); or set up OpenTelemetry in your functions."
    )
