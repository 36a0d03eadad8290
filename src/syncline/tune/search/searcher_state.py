"""The whole state of a searcher as values that can be pickled, whichever way the searcher keeps its
state.

Covered: `get_state` where a searcher has it, else the file that its `save` writes, else its
attributes, pickled; wrappers and what they wrap. Not covered: a searcher of which nothing of that
works. It is named in the log once, and starts anew after a restore.
"""

from __future__ import annotations

import logging
import pickle
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import cloudpickle

from syncline.tune.search.searcher import Searcher

logger = logging.getLogger(__name__)

_named: set[type] = set()
"""The classes whose state cannot be kept, of which the log has been told."""


@dataclass(frozen=True, kw_only=True)
class SearcherState:
    """The state of one searcher, without that of a searcher that it wraps."""

    kind: Literal["state", "file", "attributes", "none"]
    """Where `value` is from: `get_state()`, `save()` (the file's bytes), the attributes (pickled),
    or nowhere.
    """

    value: Any


def layers(searcher: Any) -> Iterator[Searcher]:
    """A searcher and those that it wraps, outermost first."""
    while isinstance(searcher, Searcher):
        yield searcher
        searcher = getattr(searcher, "searcher", None)


def capture(searcher: Searcher) -> list[SearcherState]:
    """The states of a searcher and of those that it wraps, outermost first."""
    return [_capture_one(one) for one in layers(searcher)]


def restore(searcher: Searcher, states: list[SearcherState]) -> None:
    """Puts states of `capture` back. ValueError if there are not as many as searchers."""
    chain = list(layers(searcher))
    if len(chain) != len(states):
        raise ValueError(
            f"The saved search had {len(states)} searchers inside one another, but now there are {len(chain)}: "
            f"{' around '.join(type(one).__name__ for one in chain)}. Restore it with the same search_alg."
        )
    for one, state in zip(chain, states, strict=True):
        _restore_one(one, state)


def _capture_one(searcher: Searcher) -> SearcherState:
    try:
        return SearcherState(kind="state", value=searcher.get_state())
    except NotImplementedError:
        pass
    try:
        return SearcherState(kind="file", value=_saved(searcher))
    except NotImplementedError:
        pass
    try:
        own = {name: value for name, value in searcher.__dict__.items() if name != "searcher"}
        return SearcherState(kind="attributes", value=cloudpickle.dumps(own))
    except Exception as error:  # whatever the attributes' own pickling raises
        if type(searcher) not in _named:
            _named.add(type(searcher))
            logger.warning(
                "The state of %s cannot be saved (%s: %s), so a restored search would start it anew: "
                "implement get_state() and set_state(), or save() and restore().",
                type(searcher).__name__,
                type(error).__name__,
                error,
            )
        return SearcherState(kind="none", value=None)


def _saved(searcher: Searcher) -> bytes:
    with tempfile.TemporaryDirectory(prefix="syncline-searcher-") as directory:
        file = Path(directory, "state")
        searcher.save(str(file))
        return file.read_bytes()


def _restore_one(searcher: Searcher, state: SearcherState) -> None:
    if state.kind == "state":
        searcher.set_state(state.value)
    elif state.kind == "file":
        with tempfile.TemporaryDirectory(prefix="syncline-searcher-") as directory:
            file = Path(directory, "state")
            file.write_bytes(state.value)
            searcher.restore(str(file))
    elif state.kind == "attributes":
        searcher.__dict__.update(pickle.loads(state.value))
    else:
        logger.warning("%s starts anew: its state could not be saved.", type(searcher).__name__)
