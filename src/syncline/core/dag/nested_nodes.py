"""Nodes inside the arguments of a node: finding them, and replacing them by their results.

Lists, tuples, sets and dicts are searched directly; other objects while they are pickled, so that
nodes in their attributes are found too. An object without nodes stays the same object.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Mapping
from typing import Any

from syncline.core import pickling

_PLAIN = (str, bytes, int, float, complex, bool, type(None))


class _Search(threading.local):
    """Nodes that this thread's pickler has met, by key; None outside of a search."""

    def __init__(self) -> None:
        self.found: dict[int, NestedNode] | None = None
        self.results: Mapping[int, object] = {}


_search = _Search()


class NestedNode:
    """Base of nodes: an object that is found and replaced inside others."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        if _search.found is None:
            return super().__reduce_ex__(protocol)
        _search.found[id(self)] = self
        return _result, (id(self),)


def _result(key: int) -> object:
    return _search.results[key]


def find(value: object) -> list[NestedNode]:
    """Return the nodes in a value, each once, in order."""
    found: dict[int, NestedNode] = {}
    _find(value, found)
    return list(found.values())


def _find(value: object, found: dict[int, NestedNode]) -> None:
    if isinstance(value, NestedNode):
        found[id(value)] = value
    elif type(value) in (list, tuple, set, frozenset):
        for item in value:  # type: ignore[attr-defined]
            _find(item, found)
    elif type(value) is dict:
        for item in value.items():
            _find(item, found)
    elif not isinstance(value, _PLAIN):
        found.update(_pickled(value)[1])


def replace(value: object, result: Callable[[NestedNode], object]) -> Any:
    """Return the value with the result of each node in its place."""
    if isinstance(value, NestedNode):
        return result(value)
    if type(value) in (list, tuple, set, frozenset):
        return type(value)(replace(item, result) for item in value)  # type: ignore[call-arg,attr-defined]
    if type(value) is dict:
        return {replace(key, result): replace(item, result) for key, item in value.items()}
    if isinstance(value, _PLAIN):
        return value
    data, found = _pickled(value)
    if not found:
        return value
    before, _search.results = _search.results, {key: result(node) for key, node in found.items()}
    try:
        return pickle.loads(data[0], buffers=data[1])
    finally:
        _search.results = before


def _pickled(
    value: object,
) -> tuple[tuple[bytes, list[pickle.PickleBuffer]], dict[int, NestedNode]]:
    """Return the pickled value and the nodes in it; none for values that cannot be pickled, which
    the call reports later.
    """
    before, _search.found = _search.found, {}
    buffers: list[pickle.PickleBuffer] = []
    try:
        stream, _ = pickling.dumps(value, buffers.append)
        return (stream, buffers), _search.found
    except Exception:
        return (b"", []), {}
    finally:
        _search.found = before
