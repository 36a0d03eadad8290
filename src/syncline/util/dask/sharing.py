"""Copies of shared values, for callers and tasks that write to them.

Values in the object store are shared and read-only, while programs for plain Dask expect their own.
`compute` returns writable copies. The pandas inputs of a task are shared until the task writes to
one; then pandas copies it (pandas 3, or `mode.copy_on_write` before). NumPy has no copy-on-write: a
task that writes to an input array gets an error that asks for a copy.
"""

from __future__ import annotations

import sys
from typing import Any

READ_ONLY = (
    "The inputs of a Dask task are shared with other tasks and read-only: copy the array first, "
    "`x = x.copy()`."
)


def copied_on_write(value: Any) -> Any:
    """Return a value for a task to work with; the caller keeps `value` itself alive."""
    return value.copy(deep=False) if _is_pandas(value) else value


def owned(value: Any) -> Any:
    """Return the value, or a writable copy of arrays and pandas objects, also inside containers."""
    if isinstance(value, (int, float, str, bytes)):
        return value
    if type(value) in (list, tuple):
        return type(value)(map(owned, value))
    if type(value) is dict:
        return {key: owned(item) for key, item in value.items()}
    if _is_pandas(value):
        return value.copy()
    numpy = sys.modules.get("numpy")
    return (
        value.copy()
        if numpy is not None and isinstance(value, numpy.ndarray) and not value.flags.writeable
        else value
    )


def explain(error: ValueError) -> None:
    """Add the remedy to NumPy's error about a read-only array."""
    if error.args and "read-only" in str(error.args[0]):
        error.args = (f"{error.args[0]}. {READ_ONLY}", *error.args[1:])


def _is_pandas(value: object) -> bool:
    pandas = sys.modules.get("pandas")  # imported wherever such a value exists
    return pandas is not None and isinstance(value, (pandas.DataFrame, pandas.Series))
