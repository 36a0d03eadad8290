"""Loaders for Lightning's loops, with a position that checkpoints store and restarts resume.

Training `DataLoader`s are prepared unless the program has prepared them. Lightning has then already
sharded them, or was configured not to. A pass over them, or over batches of `syncline.data`, ends
with the last batch that Lightning uses: Lightning counts batches and never asks for the end, so a
checkpoint after an epoch would otherwise look like one in its middle. Not covered: loaders with
their own `state_dict` other than torchdata's, which Lightning stores.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeAlias

from torch.utils.data import DataLoader

from syncline.data.iterate.batching import BatchIterable
from syncline.data.iterate.cursor import Cursor, CursorTracker, CursorUpdate
from syncline.train.torch.loader import prepare_ahead, prepare_data_loader
from syncline.train.torch.other_loaders import plain_loader
from syncline.train.torch.prepared_loader import PreparedDataLoader

Trainer: TypeAlias = Any
"""Lightning's `Trainer`, of either package."""


def check_prepared(loader: object) -> None:
    """Check that Lightning has not replaced the sampler of a prepared loader.

    Raises:
        RuntimeError: It has.
    """
    if isinstance(loader, PreparedDataLoader) and "_reader" not in vars(loader):
        raise RuntimeError(
            "Lightning has sharded a loader that `prepare_data_loader` had already sharded: create "
            "the Trainer with `use_distributed_sampler=False`, or pass it the loader without "
            "`prepare_data_loader`."
        )


def training_loader(loader: Any, trainer: Trainer) -> Any:
    """Return the loader that Lightning trains on in place of `loader`."""
    if isinstance(loader, BatchIterable) and _fetches_ahead(trainer):
        loader = replace(loader, progress=LaggingTracker(loader.progress))
    elif _can_be_prepared(loader, trainer):
        if _fetches_ahead(trainer) and math.isinf(_length(loader)):
            loader = prepare_ahead(loader)
        else:
            loader = prepare_data_loader(loader, add_dist_sampler=False, move_to_device=False)
    if isinstance(loader, BatchIterable | PreparedDataLoader):
        return TrainingLoader(loader, trainer)
    return loader


def validation_loader(loader: Any, trainer: Trainer) -> Any:
    """Return the loader that Lightning validates with in place of `loader`."""
    if isinstance(loader, BatchIterable | PreparedDataLoader):
        return ValidationLoader(loader, trainer)
    return loader


def _fetches_ahead(trainer: Trainer) -> bool:
    """Return True if Lightning fetches a batch ahead to detect the last one of a loader without
    length.
    """
    takes_iterator = (
        "dataloader_iter" in inspect.signature(trainer.lightning_module.training_step).parameters
    )
    has_limit = isinstance(trainer.limit_train_batches, int)
    return not has_limit and not takes_iterator


def _can_be_prepared(loader: Any, trainer: Trainer) -> bool:
    return (
        isinstance(loader, DataLoader)
        # Lightning would store the state of rank 0 for all ranks.
        and not hasattr(plain_loader(loader), "state_dict")
        # Loaders are named by number: recreated ones could be confused after a restart.
        and not trainer.reload_dataloaders_every_n_epochs
    )


class LaggingTracker(CursorTracker):
    """`CursorTracker` for a program that fetches one batch ahead: reports the batch before.

    Without it, a restart would skip the fetched batch.
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
        # No batch follows the fetched one: when it is processed, the pass is over.
        self._progress.end(mark)

    def leave(self, begun: Cursor) -> None:
        self._progress.leave(begun)


class TrainingLoader:
    """Loader whose passes end with the last batch of an epoch that Lightning uses.

    It has no `state_dict` and `load_state_dict`: Lightning would store those of rank 0 and load
    them on every rank.
    """

    def __init__(
        self, loader: BatchIterable[Any, Any] | PreparedDataLoader[Any], trainer: Trainer
    ) -> None:
        self._loader = loader
        self._trainer = trainer
        state = loader.state_dict() if isinstance(loader, PreparedDataLoader) else {}
        if state and not state["ended"]:
            # Lightning does not know that this loader resumes in the middle of its epoch.
            warnings.filterwarnings(
                "ignore",
                message="You're resuming from a checkpoint that ended before the epoch ended",
            )

    def __iter__(self) -> Iterator[Any]:
        batches: Any = iter(self._loader)
        number = self._batches_before()
        for batch in batches:
            number += 1
            if number >= self._limit():
                break
            yield batch
        else:
            return
        if number == _length(self._loader):
            next(batches, None)  # reach the end of the pass
        elif isinstance(self._loader, BatchIterable):
            batches.close()
        del batches  # abandon the pass
        yield batch

    def __len__(self) -> int:
        # Lightning expects the TypeError of a loader without length.
        return len(self._loader)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in ("state_dict", "load_state_dict"):
            raise AttributeError(name)
        return getattr(self._loader, name)

    def _batches_before(self) -> int:
        """Return the batches of the epoch before this pass, which is 0 unless it is resumed."""
        return int(self._trainer.fit_loop.epoch_loop.batch_idx) + 1

    def _limit(self) -> float:
        """Return the number of batches that Lightning uses per epoch."""
        return _limited(self._loader, self._trainer.limit_train_batches)


class ValidationLoader(TrainingLoader):
    """`TrainingLoader` for validation. Lightning first validates a few batches as a check."""

    def _batches_before(self) -> int:
        return 0

    def _limit(self) -> float:
        limit = _limited(self._loader, self._trainer.limit_val_batches)
        if self._trainer.sanity_checking:
            return min(limit, float(self._trainer.num_sanity_val_steps))
        return limit


def _limited(loader: Any, limit: int | float) -> float:
    """Return the number of batches under a limit, which is a number or a fraction."""
    length = _length(loader)
    if isinstance(limit, int):
        return min(length, limit)
    return length if math.isinf(length) else int(length * limit)


def _length(loader: Any) -> float:
    try:
        return len(loader)
    except TypeError:
        return math.inf
