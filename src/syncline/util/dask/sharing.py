"""Values of the object store are shared and read-only. This is how those who change one get their
own, as programs for plain Dask expect.

What `compute` returns is the caller's own: writable, and copied for that. A task's pandas inputs
are shared until the task writes to one: then pandas copies what is written (pandas 3, or
`mode.copy_on_write` before). Arrays know no such thing: a task that writes to an input is told to
copy it.
"""

from __future__ import annotations

import sys
from typing import Any

READ_ONLY = "The inputs of a Dask task are shared with other tasks and cannot be written to: copy the array first, `x = x.copy()`."


def copied_on_write(value: Any) -> Any:
    """A value for a task to work with, as long as `value` itself is kept alive beside it."""
    return value.copy(deep=False) if _is_pandas(value) else value


def owned(value: Any) -> Any:
    """The value, or a copy that may be written to: of arrays and of pandas objects, also inside
    lists, tuples and dicts.
    """
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
    """Add the remedy to NumPy's error about an array that is read-only."""
    if error.args and "read-only" in str(error.args[0]):
        error.args = (f"{error.args[0]}. {READ_ONLY}", *error.args[1:])


def _is_pandas(value: Any) -> bool:
    pandas = sys.modules.get("pandas")  # whoever holds such a value has imported it
    return pandas is not None and isinstance(value, (pandas.DataFrame, pandas.Series))
