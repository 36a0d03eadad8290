"""Whether a person looks at what a program writes."""

from __future__ import annotations

import sys
from typing import TextIO


def is_watched(stream: TextIO | None) -> bool:
    """Whether a person looks at what is written now: a terminal, or a notebook."""
    if is_terminal(stream):
        return True
    # Only a program that runs in a notebook has imported its kernel.
    return "ipykernel" in sys.modules


def is_terminal(stream: TextIO | None) -> bool:
    """Whether what is written to `stream` appears in a terminal."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False
