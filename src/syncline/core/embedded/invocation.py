"""Small pieces that tasks and actor calls share: their arguments, which errors are worth another
try, what a cancelled one gives.
"""

from __future__ import annotations

import pickle
from typing import Any

from syncline.core import serialization
from syncline.core.embedded.messages import Value
from syncline.core.embedded.values import open_value
from syncline.core.refs import ObjectRef
from syncline.exceptions import TaskCancelledError


def arguments(args: Value, top: dict[int, Value]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """(positional, keyword) with references that are arguments themselves replaced by their
    values.
    """
    positional, keyword = open_value(args)
    if top:
        positional = tuple(open_value(top[a.id]) if type(a) is ObjectRef else a for a in positional)
        keyword = {
            name: open_value(top[a.id]) if type(a) is ObjectRef else a
            for name, a in keyword.items()
        }
    return positional, keyword


def worth_a_retry(error: BaseException, retry_on: bytes | None) -> bool:
    """Whether the options of the call ask for another try after this error."""
    return retry_on is not None and isinstance(error, pickle.loads(retry_on)())


def cancelled() -> bytes:
    """The error of a call that was cancelled."""
    return serialization.pack_error(TaskCancelledError())
