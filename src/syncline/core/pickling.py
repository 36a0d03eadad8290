"""The pickler under `serialization`: cloudpickle's semantics, pickle-5 buffers, collected
references.

Covered: which objects go by value and which by reference (as cloudpickle decides), reducers
registered for classes, torch tensors when torch is loaded, and the ids of the object references met
on the way. Not covered: what a pickled value looks like in a message (`serialization`), and why
pickling failed (`culprits`).
"""

from __future__ import annotations

import io
import pickle
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

import cloudpickle

from syncline.core import torch_tensors

PROTOCOL = 5

Reduced = tuple[Any, ...] | str
Reducer = Callable[[Any], Reduced]
BufferCallback = Callable[[pickle.PickleBuffer], object]

_reducers: dict[type, Reducer] = {}


class _Collectors(threading.local):
    """The reference collectors of this thread, innermost last: a `__reduce__` may itself pack
    something.
    """

    def __init__(self) -> None:
        self.stack: list[dict[int, None]] = []


collectors = _Collectors()


def note_ref(ref_id: int) -> None:
    """Tell the pack in progress on this thread that the reference `ref_id` travels inside the
    value.

    Outside of a pack (a plain `pickle.dumps` of a reference) nobody counts, so nothing happens.
    """
    if collectors.stack:
        collectors.stack[-1][ref_id] = None


def register_reducer(cls: type, reducer: Reducer | None) -> None:
    """Pickle instances of exactly `cls` with `reducer(instance)`, which returns what `__reduce__`
    would.

    `None` removes the registration. Raises `TypeError` if `cls` is not a class.
    """
    if not isinstance(cls, type):
        raise TypeError(
            f"`register_reducer` needs a class, but got {cls!r}: pass the class whose instances the reducer handles."
        )
    if reducer is None:
        _reducers.pop(cls, None)
    else:
        _reducers[cls] = reducer


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle ships no type hints
    """cloudpickle's pickler, asked second: registered reducers and torch tensors come first."""

    def reducer_override(self, obj: Any) -> Any:
        reducer = _reducers.get(type(obj))
        if reducer is not None:
            return reducer(obj)
        torch = sys.modules.get("torch")
        if torch is not None and issubclass(type(obj), getattr(torch, "Tensor", ())):
            return torch_tensors.reduce(obj)
        if isinstance(obj, type | types.FunctionType) and _is_found_by_name(obj):
            return NotImplemented
        return super().reducer_override(obj)


def _is_found_by_name(obj: type | types.FunctionType) -> bool:
    """Whether cloudpickle would find that `obj` goes by reference: the common case, at a tenth of
    what its own look costs.
    """
    module = sys.modules.get(obj.__module__) if obj.__module__ != "__main__" else None
    return (
        module is not None
        and vars(module).get(obj.__qualname__) is obj
        and not cloudpickle.list_registry_pickle_by_value()
    )


def dumps(value: object, buffer_callback: BufferCallback | None) -> tuple[bytes, tuple[int, ...]]:
    """Pickle `value`; returns the stream and the ids of the references inside, in order and without
    repeats.
    """
    refs: dict[int, None] = {}
    collectors.stack.append(refs)
    try:
        with io.BytesIO() as stream:
            _Pickler(stream, protocol=PROTOCOL, buffer_callback=buffer_callback).dump(value)
            return stream.getvalue(), tuple(refs)
    finally:
        collectors.stack.pop()


def can_pickle(value: object) -> Exception | None:
    """The exception that pickling `value` raises, or `None`. Contents of large buffers are not
    copied.
    """
    try:
        dumps(value, lambda buffer: None)
    except Exception as error:
        return error
    return None
