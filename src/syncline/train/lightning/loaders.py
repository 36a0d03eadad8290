"""Loaders as Lightning's training loop gets them: with the place that a checkpoint keeps, so that a restart goes on there.

`DataLoader`s are prepared, if the program has not done so; Lightning has given each rank its share by then, or was told not to. Batches of
`syncline.data` are told when the program is done with them. Not covered: loaders with a `state_dict` of their own, which Lightning
keeps, and in the middle of an epoch any `IterableDataset`, of which Lightning fetches one batch ahead.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from syncline.data.iterate.batching import Batches
from syncline.data.iterate.cursor import Cursor, Mark, Progress
from syncline.train.torch.loader import prepare_data_loader
from syncline.train.torch.prepared_loader import PreparedDataLoader


def for_training(loader: Any, trainer: Any) -> Any:
    """What the loop of a Lightning `trainer` is to read in place of `loader`."""
    if isinstance(loader, Batches):
        return replace(loader, progress=OneBehind(loader.progress)) if _fetches_ahead(trainer) else loader
    if _can_be_prepared(loader, trainer):
        loader = prepare_data_loader(loader, add_dist_sampler=False, move_to_device=False)
    return PlacedBySession(loader) if isinstance(loader, PreparedDataLoader) else loader


def _fetches_ahead(trainer: Any) -> bool:
    """Whether Lightning fetches one batch more than it trains on, of what has no length: to know the last one when it sees it."""
    has_limit = isinstance(trainer.limit_train_batches, int)
    takes_itself = "dataloader_iter" in inspect.signature(trainer.lightning_module.training_step).parameters
    return not has_limit and not takes_itself


def _can_be_prepared(loader: Any, trainer: Any) -> bool:
    return (
        isinstance(loader, DataLoader)
        and not isinstance(loader.dataset, IterableDataset)
        and not hasattr(loader, "state_dict")
        # Known by their number, loaders that come and go would be taken for one another after a restart.
        and not trainer.reload_dataloaders_every_n_epochs
    )


class OneBehind(Progress):
    """A `Progress` for a program that has fetched one batch ahead of the one that it works on.

    Without it a restart would leave that batch out.
    """

    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self.meter = progress.meter
        self._progress = progress
        self._fetched: Mark | None = None

    def begin(self, cursor: Cursor) -> None:
        self._fetched = None
        self._progress.begin(cursor)

    def advance(self, mark: Mark) -> None:
        if self._fetched is not None:
            self._progress.advance(self._fetched)
        self._fetched = mark

    def end(self, mark: Mark) -> None:
        # Nothing follows the batch in hand: once the program is done with that, the pass is over.
        self._progress.end(mark)

    def leave(self, begun: Cursor) -> None:
        self._progress.leave(begun)


class PlacedBySession:
    """A prepared loader without `state_dict` and `load_state_dict`: Lightning would keep rank 0's, and load it on every rank."""

    def __init__(self, loader: PreparedDataLoader[Any]) -> None:
        self._loader = loader
        place = loader.state_dict()
        if place and not place["ended"]:
            # Lightning cannot know that this loader goes on in the middle of its epoch.
            warnings.filterwarnings("ignore", message="You're resuming from a checkpoint that ended before the epoch ended")

    def __iter__(self) -> Iterator[Any]:
        return iter(self._loader)

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("_loader", "state_dict", "load_state_dict"):
            raise AttributeError(name)
        return getattr(self._loader, name)
