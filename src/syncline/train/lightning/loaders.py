"""Loaders as Lightning's loops get them: with the place that a checkpoint keeps, so that a restart
goes on there.

`DataLoader`s to train on are prepared, if the program has not done so; Lightning has given each
rank its share by then, or was told not to. Of these, and of batches of `syncline.data`, a pass ends
when Lightning has what it wants: it counts batches and does not ask for the end, so that a
checkpoint of the end of an epoch would look like one of its middle. Not covered: loaders with a
`state_dict` of their own, which Lightning keeps, and in the middle of an epoch any
`IterableDataset` of torch, of which Lightning fetches one batch ahead.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from syncline.data.iterate.batching import BatchIterable
from syncline.data.iterate.cursor import Cursor, CursorTracker, CursorUpdate
from syncline.train.torch.loader import prepare_data_loader
from syncline.train.torch.prepared_loader import PreparedDataLoader


def check_prepared(loader: Any) -> None:
    """RuntimeError if `loader` was prepared by the program, and made anew by Lightning with a
    sampler of its own.
    """
    if isinstance(loader, PreparedDataLoader) and "_reading" not in vars(loader):
        raise RuntimeError(
            "Lightning has shared out a loader among the ranks once more that `prepare_data_loader` gave out, so it cannot be used: make "
            "the Trainer with `use_distributed_sampler=False`, or give it the loader as it was before."
        )


def for_training(loader: Any, trainer: Any) -> Any:
    """What a Lightning `trainer` is to train on in place of `loader`."""
    if isinstance(loader, BatchIterable) and _fetches_ahead(trainer):
        loader = replace(loader, progress=OneBehind(loader.progress))
    elif _can_be_prepared(loader, trainer):
        loader = prepare_data_loader(loader, add_dist_sampler=False, move_to_device=False)
    return (
        TrainingPasses(loader, trainer)
        if isinstance(loader, BatchIterable | PreparedDataLoader)
        else loader
    )


def for_validation(loader: Any, trainer: Any) -> Any:
    """What it is to validate with, which it does first for a few batches alone, as a check."""
    return (
        ValidationPasses(loader, trainer)
        if isinstance(loader, BatchIterable | PreparedDataLoader)
        else loader
    )


def _fetches_ahead(trainer: Any) -> bool:
    """Whether Lightning fetches one batch more than it trains on, of what has no length: to know
    the last one when it sees it.
    """
    has_limit = isinstance(trainer.limit_train_batches, int)
    takes_itself = (
        "dataloader_iter" in inspect.signature(trainer.lightning_module.training_step).parameters
    )
    return not has_limit and not takes_itself


def _can_be_prepared(loader: Any, trainer: Any) -> bool:
    return (
        isinstance(loader, DataLoader)
        and not isinstance(loader.dataset, IterableDataset)
        and not hasattr(loader, "state_dict")
        # Known by their number, loaders that come and go would be taken for one another after a
        # restart.
        and not trainer.reload_dataloaders_every_n_epochs
    )


class OneBehind(CursorTracker):
    """A `CursorTracker` for a program that has fetched one batch ahead of the one that it works on.

    Without it a restart would leave that batch out.
    """

    def __init__(self, progress: CursorTracker) -> None:
        super().__init__()
        self.meter = progress.meter
        self._progress = progress
        self._fetched: CursorUpdate | None = None

    def begin(self, cursor: Cursor) -> None:
        self._fetched = None
        self._progress.begin(cursor)

    def advance(self, mark: CursorUpdate) -> None:
        if self._fetched is not None:
            self._progress.advance(self._fetched)
        self._fetched = mark

    def end(self, mark: CursorUpdate) -> None:
        # Nothing follows the batch in hand: once the program is done with that, the pass is over.
        self._progress.end(mark)

    def leave(self, begun: Cursor) -> None:
        self._progress.leave(begun)


class TrainingPasses:
    """A loader whose passes end with the last batch that Lightning wants of an epoch.

    It has no `state_dict` and `load_state_dict`: Lightning would keep rank 0's, and load it on
    every rank.
    """

    def __init__(
        self, loader: BatchIterable[Any, Any] | PreparedDataLoader[Any], trainer: Any
    ) -> None:
        self._loader = loader
        self._trainer = trainer
        place = loader.state_dict() if isinstance(loader, PreparedDataLoader) else {}
        if place and not place["ended"]:
            # Lightning cannot know that this loader goes on in the middle of its epoch.
            warnings.filterwarnings(
                "ignore",
                message="You're resuming from a checkpoint that ended before the epoch ended",
            )

    def __iter__(self) -> Iterator[Any]:
        batches: Any = iter(self._loader)
        number = self._had()
        for batch in batches:
            number += 1
            if number >= self._wanted():
                break
            yield batch
        else:
            return
        if number == _length(self._loader):
            next(batches, None)  # nothing: the end
        elif isinstance(self._loader, BatchIterable):
            batches.close()
        del batches  # left
        yield batch

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]  # Lightning expects the TypeError of what has no length

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in ("state_dict", "load_state_dict"):
            raise AttributeError(name)
        return getattr(self._loader, name)

    def _had(self) -> int:
        """How many batches of the epoch Lightning has had when a pass begins: some, when it goes on
        in the middle.
        """
        return int(self._trainer.fit_loop.epoch_loop.batch_idx) + 1

    def _wanted(self) -> float:
        """How many it wants."""
        return _limited(self._loader, self._trainer.limit_train_batches)


class ValidationPasses(TrainingPasses):
    """The same for validation."""

    def _had(self) -> int:
        return 0

    def _wanted(self) -> float:
        wanted = _limited(self._loader, self._trainer.limit_val_batches)
        return (
            min(wanted, self._trainer.num_sanity_val_steps)
            if self._trainer.sanity_checking
            else wanted
        )


def _limited(loader: Any, limit: int | float) -> float:
    """How many batches Lightning takes of a loader under a limit: a number, or a part of all."""
    length = _length(loader)
    if isinstance(limit, int):
        return min(length, limit)
    return length if math.isinf(length) else int(length * limit)


def _length(loader: Any) -> float:
    try:
        return len(loader)
    except TypeError:
        return math.inf
