"""Batches of one loader over several epochs: an epoch limited in steps may end in the middle of a
pass over the loader, and the next epoch continues there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

from syncline.train.torch.prepared_loader import PreparedDataLoader
from syncline.util.sgd.torch.value_types import Batch, StateDict

_END = object()


class Passes:
    """Passes over a training loader.

    Args:
        loader: Any iterable that can be iterated repeatedly. Only a prepared `DataLoader` can
            resume in the middle of a pass.
        epoch: Function that returns the index of the next pass, which sets the shuffle order.
    """

    def __init__(self, loader: Iterable[object], epoch: Callable[[], int]) -> None:
        self._loader = loader
        self._epoch = epoch
        self._current: Iterator[object] | None = None
        self._resumes = False  # the next pass starts in the middle

    def batches(self, num_steps: int | None) -> Iterator[Batch]:
        """Yield the next `num_steps` batches, across the end of the loader.

        With None, yield the rest of the pass, or a whole pass.
        """
        return self._rest() if num_steps is None else islice(self._endless(), num_steps)

    def left(self, num_steps: int | None) -> int | None:
        """Return the number of batches that `batches` yields; None if unknown."""
        if num_steps is not None:
            return num_steps
        is_whole = self._current is None and not self._resumes
        return len(self._loader) if is_whole and hasattr(self._loader, "__len__") else None  # type: ignore[arg-type]

    def state_dict(self) -> StateDict:
        """Return the position of the loader; empty if it has none."""
        return self._loader.state_dict() if isinstance(self._loader, PreparedDataLoader) else {}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Resume at a position, or at the start of a pass if the state is empty."""
        self._current = None
        if isinstance(self._loader, PreparedDataLoader) and state:
            self._loader.load_state_dict([state])
            self._resumes = not state["ended"]

    def restart(self) -> None:
        """Start a new pass with the next batch."""
        self._current, self._resumes = None, False

    def _rest(self) -> Iterator[object]:
        is_fresh = self._current is None and not self._resumes
        count = 0
        for batch in self._pass():
            count += 1
            yield batch
        if count == 0 and not is_fresh:  # the pass had ended without having been exhausted
            yield from self._pass()

    def _endless(self) -> Iterator[object]:
        is_empty = False
        while not is_empty:
            is_empty = self._current is None and not self._resumes
            for batch in self._pass():
                is_empty = False
                yield batch

    def _pass(self) -> Iterator[object]:
        """Yield the batches up to the end of the current pass, or of a new one."""
        if self._current is None:
            if not self._resumes:
                set_epoch(self._loader, self._epoch())
            self._resumes = False
            self._current = iter(self._loader)
        # Not `yield from`, which would close the loader's generator together with this one.
        while (batch := next(self._current, _END)) is not _END:
            yield batch
        self._current = None


def set_epoch(loader: object, epoch: int) -> None:
    """Set the epoch of a loader's sampler, if it has one."""
    sampler = getattr(loader, "sampler", None)
    if sampler is not None and hasattr(sampler, "set_epoch"):
        sampler.set_epoch(epoch)
