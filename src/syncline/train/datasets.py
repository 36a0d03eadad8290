"""A trainer's datasets: checked when the trainer is made, made where they are functions, shared out among the ranks of a worker group."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from syncline.train.backend import Worker
from syncline.train.config import DataConfig
from syncline.train.session import in_session

if TYPE_CHECKING:  # programs without datasets need not wait for the import of them
    from syncline.data import DataIterator, Dataset

GivenDatasets = Mapping[str, Any]
"""What a program gives a trainer by name: a `Dataset`, or a function without parameters that makes one."""


def check(datasets: GivenDatasets, config: DataConfig) -> None:
    """TypeError for what is no dataset, ValueError for names in `datasets_to_split` that there are none of."""
    for name, given in datasets.items():
        if not callable(given):
            _check_dataset(name, given, "is")
    unknown = [] if config.datasets_to_split == "all" else [name for name in config.datasets_to_split if name not in datasets]
    if unknown:
        raise ValueError(f"`datasets_to_split` names {unknown}, but the trainer's datasets are {sorted(datasets)}: correct the names.")


class Datasets:
    """The datasets of a run, for the controller."""

    def __init__(self, given: GivenDatasets, config: DataConfig) -> None:
        self._given = given
        self._config = config
        self._made: dict[str, Dataset] = {}

    def shares(self, workers: Sequence[Worker]) -> list[dict[str, DataIterator]]:
        """What each rank reads, for a worker group that starts now. Functions that make datasets are called the first time."""
        if not self._given:
            return [{} for _ in workers]
        for name, given in self._given.items():
            if name not in self._made:
                self._made[name] = _made(name, given)
        return self._config.configure(
            self._made, world_size=len(workers), worker_handles=None, worker_node_ids=[worker.node_id for worker in workers]
        )


def whole(given: GivenDatasets) -> dict[str, DataIterator]:
    """What a program reads that trains in its own process: everything."""
    return {name: _made(name, dataset).iterator() for name, dataset in given.items()}


def shard(shares: Mapping[str, DataIterator], name: str) -> DataIterator:
    """A rank's share of a dataset. KeyError for a name that the trainer has not got."""
    if name not in shares:
        if not shares:
            raise KeyError(f"there is no dataset {name!r}: the trainer was given none, pass `datasets={{{name!r}: ...}}` to it")
        close = difflib.get_close_matches(name, shares, n=1)
        hint = f" (is {close[0]!r} meant?)" if close else ""
        raise KeyError(f"there is no dataset {name!r}{hint}: the trainer was given {', '.join(map(repr, sorted(shares)))}")
    importlib.import_module("syncline.data.iterate.device").set_device_finder(_worker_device)
    return shares[name]


def resign(shares: Mapping[str, DataIterator]) -> None:
    """A rank has ended, and reads no more: who waits for it to begin another epoch is told so."""
    for share in shares.values():
        if isinstance(share, importlib.import_module("syncline.data").DataIterator):  # a program's `DataConfig` may give out anything
            share._feed.resign()


def _worker_device() -> Any:
    """Where `iter_torch_batches` puts a rank's batches; None outside of a training function."""
    return importlib.import_module("syncline.train.torch.device").get_device() if in_session() else None


def _made(name: str, given: Dataset | Callable[[], Dataset]) -> Dataset:
    if not callable(given):
        return given
    made = given()
    _check_dataset(name, made, "is a function that returned")
    return made


def _check_dataset(name: str, value: Any, relation: str) -> None:
    if not isinstance(value, importlib.import_module("syncline.data").Dataset):
        raise TypeError(
            f"`datasets[{name!r}]` {relation} a {type(value).__name__} ({value!r:.80}), which is no dataset: make one with "
            "`syncline.data.read_parquet`, `from_torch` and the like, or feed the training function with a `torch.utils.data.DataLoader`."
        )
