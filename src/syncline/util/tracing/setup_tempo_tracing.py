"""`setup_tracing`, which is refused."""

from __future__ import annotations

from typing import NoReturn

from syncline.util.tracing import tracing_helper


def setup_tracing() -> NoReturn:
    """Raise NotImplementedError that says what to use."""
    tracing_helper.refuse()
