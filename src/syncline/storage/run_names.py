"""The check that all names of runs pass: a run is one directory directly below its storage path."""

from __future__ import annotations

import os

LONGEST = 255
"""Longest name of a directory in bytes, on most file systems."""


def checked_run_name(name: object, given: str) -> str:
    """Return `name` if it can name the directory of a run.

    Args:
        name: The name.
        given: The argument as the user wrote it, for the error: "`name='a/b'`".

    Raises:
        ValueError: It is no text, is empty, begins with a dot, is too long, or leads out of the
            storage path.
    """
    if not isinstance(name, str) or not name:
        raise ValueError(f"{given} must be a non-empty string: it names the run's directory.")
    if name.startswith(".") or "/" in name or "\0" in name:
        raise ValueError(
            f"{given} must name one directory directly below `storage_path`: it must not start "
            "with '.' and must not contain '/' or a null character. Add parent directories to the "
            "storage path."
        )
    size = len(os.fsencode(name))
    if size > LONGEST:
        raise ValueError(
            f"{given} has {size} bytes, but the name of a directory has at most {LONGEST}: "
            "choose a shorter one."
        )
    return name
