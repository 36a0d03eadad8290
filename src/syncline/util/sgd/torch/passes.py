"""Batches of one loader over the calls of a trainer: an epoch that is limited in steps leaves a
pass in its middle, the next goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from syncline.train.torch.prepared_loader import PreparedDataLoader

_END = object()


class Passes:
    """The passes over a training loader.

    Args:
        loader: Any iterable that can be gone through again and again; a prepared `DataLoader` can
            also go on in the middle elsewhere.
        epoch: The number of the next pass, asked as it begins: the order of a shuffled loader
            depends on it.
    """

    def __init__(self, loader: Iterable[Any], epoch: Callable[[], int]) -> None:
        self._loader = loader
        self._epoch = epoch
        self._current: Iterator[Any] | None = None
        self._goes_on = False  # the loader's next pass begins in the middle

    def batches(self, num_steps: int | None) -> Iterator[Any]:
        """The next `num_steps` batches, over the end of the loader where it has fewer; with None
        the rest of the pass, or a whole one.
        """
        return self._rest() if num_steps is None else islice(self._endless(), num_steps)

    def left(self, num_steps: int | None) -> int | None:
        """How many batches `batches` gives, None where that is not known."""
        if num_steps is not None:
            return num_steps
        is_whole = self._current is None and not self._goes_on
        return len(self._loader) if is_whole and hasattr(self._loader, "__len__") else None  # type: ignore[arg-type]

    def state_dict(self) -> dict[str, Any]:
        """Where the loader is; empty where that cannot be told."""
        return self._loader.state_dict() if isinstance(self._loader, PreparedDataLoader) else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on there; the beginning of a pass where nothing is known."""
        self._current = None
        if isinstance(self._loader, PreparedDataLoader) and state:
            self._loader.load_state_dict([state])
            self._goes_on = not state["ended"]

    def restart(self) -> None:
        """The next batches are those of another pass."""
        self._current, self._goes_on = None, False

    def _rest(self) -> Iterator[Any]:
        is_fresh = self._current is None and not self._goes_on
        count = 0
        for batch in self._pass():
            count += 1
            yield batch
        if count == 0 and not is_fresh:  # the pass was at its end, which nobody had looked for
            yield from self._pass()

    def _endless(self) -> Iterator[Any]:
        is_empty = False
        while not is_empty:
            is_empty = self._current is None and not self._goes_on
            for batch in self._pass():
                is_empty = False
                yield batch

    def _pass(self) -> Iterator[Any]:
        """The batches up to the end of the current pass, or of the next one."""
        if self._current is None:
            if not self._goes_on:
                set_epoch(self._loader, self._epoch())
            self._goes_on = False
            self._current = iter(self._loader)
        while (
            batch := next(self._current, _END)
        ) is not _END:  # not `yield from`: that closes a generator together with this one
            yield batch
        self._current = None


def set_epoch(loader: Any, epoch: int) -> None:
    """Let a loader draw the order of an epoch, if its sampler has one for each."""
    sampler = getattr(loader, "sampler", None)
    if sampler is not None and hasattr(sampler, "set_epoch"):
        sampler.set_epoch(epoch)
