"""Datasets of a trainer: checks, creation, and distribution over the ranks of a worker group.

A rank's shard is one of the `Readers` of its session, so it resumes after a restart. This module
imports `syncline.data`, which takes half a second; it is imported only for runs with datasets.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeGuard

from syncline.data.dataset import Dataset
from syncline.data.execute.execution_journal import RecordTarget
from syncline.data.iterate.batching import set_device_finder
from syncline.data.iterate.cursor import CursorError
from syncline.data.iterator import DataIterator
from syncline.runs import Files, LocalFiles
from syncline.runs.json_values import JsonObject, Record
from syncline.suggestions import did_you_mean
from syncline.train.backend import Worker
from syncline.train.config import DataConfig
from syncline.train.session import TrainSession, in_session, unknown_dataset

logger = logging.getLogger("syncline")

GivenDatasets = Mapping[str, Any]
"""Datasets of a trainer by name: a `Dataset`, or a function without parameters that creates one."""


class Stateful(Protocol):
    """Object with a state that can be saved and restored."""

    def state_dict(self) -> JsonObject:
        """Return the state."""

    def load_state_dict(self, state: Any, /) -> object:
        """Restore a state."""


def check(datasets: GivenDatasets, config: DataConfig) -> None:
    """Check a trainer's datasets.

    Raises:
        TypeError: A value is neither a dataset nor a function.
        ValueError: `datasets_to_split` has unknown names.
    """
    for name, given in datasets.items():
        if not callable(given):
            _check_dataset(name, given, "is")
    unknown = (
        []
        if config.datasets_to_split == "all"
        else [name for name in config.datasets_to_split if name not in datasets]
    )
    if unknown:
        raise ValueError(
            f"`datasets_to_split` names {unknown}, but the trainer's datasets are "
            f"{sorted(datasets)}: correct the names.{did_you_mean(unknown[0], datasets)}"
        )


class Datasets:
    """Datasets of a run, for the controller.

    Args:
        given: Datasets of the trainer.
        config: Distribution over the ranks.
        files: Run directory for records of their execution; None for no records.
    """

    def __init__(
        self, given: GivenDatasets, config: DataConfig, files: Files | None = None
    ) -> None:
        self._given = given
        self._config = config
        self._files = files
        self._created: dict[str, Dataset] = {}

    def shares(self, workers: Sequence[Worker]) -> list[dict[str, DataIterator]]:
        """Return the shards of each rank for a worker group that starts now.

        Functions that create datasets are called the first time.
        """
        if not self._given:
            return [{} for _ in workers]
        for name, given in self._given.items():
            if name not in self._created:
                self._created[name] = _create(name, given)
        datasets = {name: self._recorded(name, dataset) for name, dataset in self._created.items()}
        return self._config.configure(
            datasets,
            world_size=len(workers),
            worker_handles=None,
            worker_node_ids=[worker.node_id for worker in workers],
        )

    def _recorded(self, name: str, dataset: Dataset) -> Dataset:
        """Return a copy for one worker group, which records its execution."""
        if self._files is None:
            return dataset
        # Processes that read need not import `syncline.train` for a local directory.
        local = self._files.local_path
        files = self._files if local is None else LocalFiles(local)
        return dataset._recorded_in(
            RecordTarget(files=files, dataset=name, key=secrets.token_hex(8))
        )


def whole(given: GivenDatasets) -> dict[str, DataIterator]:
    """Return complete datasets for a training in the program's own process."""
    return {name: _create(name, dataset).iterator() for name, dataset in given.items()}


def shard(shares: Mapping[str, object], name: str, session: TrainSession) -> Any:
    """Return a rank's shard of a dataset; the first call adds it to the session's readers.

    Raises:
        KeyError: The trainer has no dataset of that name.
        ValueError: The shard was in the middle of a pass over another dataset.
    """
    if name not in shares:
        raise unknown_dataset(name, shares)
    set_device_finder(_worker_device)
    share, readers, reader_name = shares[name], session.readers, f"dataset {name!r}"
    if reader_name in readers:
        return share
    if isinstance(share, DataIterator):
        reader = ShareReader(reader_name, share, session)
        readers.add(reader_name, reader)
        share.before_pass(lambda: readers.restore_random(reader))
        share.before_next_batch(readers.requested)
    elif _is_stateful(share):
        readers.add(reader_name, StatefulReader(reader_name, share, session))
    return share


class ShareReader:
    """`Reader` for a `DataIterator`; its states are those of the iterator.

    Leaving a loop early ends the pass, and the next one is the next epoch. If a preemption is
    announced, it does not: the program has left the loop to save a checkpoint.
    """

    def __init__(self, name: str, share: DataIterator, session: TrainSession) -> None:
        self._name = name
        self._share = share
        self._session = session

    @property
    def waited_s(self) -> float:
        """Seconds that the program has waited for rows."""
        return self._share.statistics().waited_s

    def state_dict(self) -> JsonObject:
        """Return the cursor; if no pass has begun since the last restart, the loaded cursors."""
        state = self._share.state_dict()
        if "states" in state:
            loaded = state["states"]
            if not loaded:
                return {}
            ended = all(each["ended"] for each in loaded)
            return {**state, "epoch": loaded[0]["epoch"], "ended": ended}
        in_pass = self._share.statistics().in_pass
        is_left = not in_pass and self._session.get_preemption_info() is None
        ended = state["ended"] or is_left
        return {**state, "ended": ended, "place": f"{_rows_of_all_ranks(state)} rows"}

    def load_state_dict(self, states: Sequence[Record], /) -> None:
        """Continue from the states of all ranks, or from this rank's own.

        Raises:
            CursorError: They are in the middle of a pass over another dataset.
        """
        cursors = [
            cursor for state in states for cursor in state.get("states", [state] if state else [])
        ]
        if all(cursor.get("world_size") == 1 for cursor in cursors):  # each is of a whole dataset
            known = [state for state in states if state]
            rank = self._session.world_rank if self._share.world_size() == 1 else 0
            cursors = [known[rank % len(known)]]
        try:
            self._share.load_state_dict(cursors)
        except CursorError as error:
            if not all(cursor.get("ended") for cursor in cursors):
                raise CursorError(
                    f"{self._name} cannot resume in the middle of epoch "
                    f"{cursors[0].get('epoch')}, where the latest checkpoint of this run was "
                    f"taken: {error}. To restart that epoch, pass `DataConfig(resume=False)`. To "
                    "restart the training, give the run another name."
                ) from error
            if self._session.world_rank == 0:
                logger.warning(
                    "%s has changed since the last checkpoint: its epochs start again", self._name
                )


class StatefulReader:
    """`Reader` for a stateful object that a program's own `DataConfig` returns."""

    waited_s = 0.0
    """Unknown for these objects."""

    def __init__(self, name: str, share: Stateful, session: TrainSession) -> None:
        self._name = name
        self._share = share
        self._session = session

    def state_dict(self) -> JsonObject:
        """Return the object's state.

        Raises:
            TypeError: JSON cannot hold it.
        """
        state = self._share.state_dict()
        try:
            json.dumps(state)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"The state of {self._name}, a {type(self._share).__name__}, cannot be saved with "
                f"a checkpoint ({error}): `state_dict()` must return plain numbers, strings, lists "
                "and dictionaries."
            ) from error
        return {"state": state} if state else {}

    def load_state_dict(self, states: Sequence[Record], /) -> None:
        """Load this rank's own state; a rank that is new gets the state of another one."""
        state = states[self._session.world_rank % len(states)]
        if state:
            self._share.load_state_dict(state["state"])


def close_shares(shares: Mapping[str, object]) -> None:
    """Stop reading, so that other ranks do not wait for this one at the next epoch."""
    for share in shares.values():
        if isinstance(share, DataIterator):
            share._source.retire()


def _is_stateful(share: object) -> TypeGuard[Stateful]:
    return callable(getattr(share, "state_dict", None)) and callable(
        getattr(share, "load_state_dict", None)
    )


def _rows_of_all_ranks(state: Record) -> int:
    """Estimate how many rows of the epoch all ranks have read, from one rank's cursor."""
    start, chunks = state["start"], state["chunks"]
    own = state["rows"] * sum(chunks) // chunks[state["rank"]]
    return int(start["prefix"] + sum(start["holes"][1::2]) + own)


def _worker_device() -> object:
    """Return the device for torch batches; None outside of a training function."""
    if not in_session():
        return None
    from syncline.train.torch.device import get_device  # loads torch: called for its batches

    return get_device()


def _create(name: str, given: Dataset | Callable[[], Dataset]) -> Dataset:
    if not callable(given):
        return given
    created = given()
    _check_dataset(name, created, "is a function that returned")
    return created


def _check_dataset(name: str, value: object, relation: str) -> None:
    if not isinstance(value, Dataset):
        raise TypeError(
            f"`datasets[{name!r}]` {relation} a {type(value).__name__} ({value!r:.80}) instead of "
            "a Dataset. Create one with `syncline.data.read_parquet`, `from_torch` or similar, or "
            "use a `torch.utils.data.DataLoader` in the training function."
        )
