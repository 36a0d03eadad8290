"""A trainer's datasets: checked when the trainer is made, made where they are functions, shared out
among the ranks of a worker group.

A rank's share is one of the `Readers` of its session, so that after a restart it continues where it
was.
"""

from __future__ import annotations

import difflib
import importlib
import json
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from syncline.runs import LocalFiles
from syncline.train.backend import Worker
from syncline.train.config import DataConfig
from syncline.train.session import TrainSession, in_session

if TYPE_CHECKING:  # programs without datasets need not wait for the import of them
    from syncline.data import DataIterator, Dataset
    from syncline.runs import Files

logger = logging.getLogger("syncline")

GivenDatasets = Mapping[str, Any]
"""What a program gives a trainer by name: a `Dataset`, or a function without parameters that makes
one.
"""


def check(datasets: GivenDatasets, config: DataConfig) -> None:
    """TypeError for what is no dataset, ValueError for names in `datasets_to_split` that there are
    none of.
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
            f"`datasets_to_split` names {unknown}, but the trainer's datasets are {sorted(datasets)}: correct the names."
        )


class Datasets:
    """The datasets of a run, for the controller.

    Args:
        given: What the trainer was given.
        config: How they are shared out.
        files: The run directory, where reading them is recorded; None for nowhere.
    """

    def __init__(
        self, given: GivenDatasets, config: DataConfig, files: Files | None = None
    ) -> None:
        self._given = given
        self._config = config
        self._files = files
        self._made: dict[str, Dataset] = {}

    def shares(self, workers: Sequence[Worker]) -> list[dict[str, DataIterator]]:
        """What each rank reads, for a worker group that starts now. Functions that make datasets
        are called the first time.
        """
        if not self._given:
            return [{} for _ in workers]
        for name, given in self._given.items():
            if name not in self._made:
                self._made[name] = _made(name, given)
        datasets = {name: self._recorded(name, dataset) for name, dataset in self._made.items()}
        return self._config.configure(
            datasets,
            world_size=len(workers),
            worker_handles=None,
            worker_node_ids=[worker.node_id for worker in workers],
        )

    def _recorded(self, name: str, dataset: Dataset) -> Dataset:
        """A copy that one worker group reads: the program's own dataset has no part in the run."""
        if self._files is None:
            return dataset
        # A process that reads need not know `syncline.train` for a directory of this machine.
        files = (
            self._files if self._files.local_path is None else LocalFiles(self._files.local_path)
        )
        place = importlib.import_module("syncline.data.execute.recording.place")
        return dataset._recorded_in(
            place.RecordPlace(files=files, dataset=name, key=secrets.token_hex(8))
        )


def whole(given: GivenDatasets) -> dict[str, DataIterator]:
    """What a program reads that trains in its own process: everything."""
    return {name: _made(name, dataset).iterator() for name, dataset in given.items()}


def shard(shares: Mapping[str, DataIterator], name: str, session: TrainSession) -> DataIterator:
    """A rank's share of a dataset, which becomes one of the session's readers when it is first
    asked for.

    Raises:
        KeyError: the trainer has no dataset of that name.
        ValueError: the share was in the middle of a pass over another dataset, so it cannot go on.
    """
    if name not in shares:
        if not shares:
            raise KeyError(
                f"there is no dataset {name!r}: the trainer was given none, pass `datasets={{{name!r}: ...}}` to it"
            )
        close = difflib.get_close_matches(name, shares, n=1)
        hint = f" (is {close[0]!r} meant?)" if close else ""
        raise KeyError(
            f"there is no dataset {name!r}{hint}: the trainer was given {', '.join(map(repr, sorted(shares)))}"
        )
    importlib.import_module("syncline.data.iterate.device").set_device_finder(_worker_device)
    share, readers, reader_name = shares[name], session.readers, f"dataset {name!r}"
    if reader_name in readers:
        return share
    if _is_iterator(share):
        reader = ShareReader(reader_name, share, session)
        readers.add(reader_name, reader)
        share.before_pass(lambda: readers.restore_random(reader))
    elif callable(getattr(share, "state_dict", None)) and callable(
        getattr(share, "load_state_dict", None)
    ):
        readers.add(reader_name, ForeignReader(reader_name, share, session))
    return share


class ShareReader:
    """A `DataIterator` as a `Reader`, whose states are the iterator's.

    A loop that was left early has ended its pass: what comes next is the next epoch. Not if a
    preemption is announced: the program has left it to save its work, and means to go on.
    """

    def __init__(self, name: str, share: DataIterator, session: TrainSession) -> None:
        self._name = name
        self._share = share
        self._session = session

    @property
    def waited_s(self) -> float:
        """How long the program has waited for rows."""
        return self._share.statistics().waited_s

    def state_dict(self) -> dict[str, Any]:
        """The cursor; where no pass has begun since the last restart, those that were loaded."""
        state = self._share.state_dict()
        if "states" in state:
            loaded = state["states"]
            return (
                {
                    **state,
                    "epoch": loaded[0]["epoch"],
                    "ended": all(each["ended"] for each in loaded),
                }
                if loaded
                else {}
            )
        is_left = (
            not self._share.statistics().in_pass and self._session.get_preemption_info() is None
        )
        ended = state["ended"] or is_left
        return {**state, "ended": ended, "place": f"{_rows_of_all_ranks(state)} rows"}

    def load_state_dict(self, states: Sequence[Mapping[str, Any]], /) -> None:
        """Go on from the states of all ranks, or from this rank's own.

        Raises:
            CursorError: they are of another dataset, and in the middle of a pass.
        """
        cursors = [
            cursor for state in states for cursor in state.get("states", [state] if state else [])
        ]
        if all(cursor.get("world_size") == 1 for cursor in cursors):  # each is of a whole dataset
            whole = [state for state in states if state]
            rank = self._session.world_rank if self._share.world_size() == 1 else 0
            cursors = [whole[rank % len(whole)]]
        error_type = importlib.import_module("syncline.data.iterate.cursor").CursorError
        try:
            self._share.load_state_dict(cursors)
        except error_type as error:
            if not all(cursor.get("ended") for cursor in cursors):
                raise error_type(
                    f"{self._name} cannot be read on from the middle of epoch {cursors[0].get('epoch')}, where the latest checkpoint of "
                    f"this run was taken: {error}. To begin that epoch anew, pass `DataConfig(resume=False)`; to begin the training anew, "
                    "give the run another name"
                ) from error
            if self._session.world_rank == 0:
                logger.warning(
                    "%s is another one than before the restart: its epochs begin anew", self._name
                )


class ForeignReader:
    """What a program's own `DataConfig` gives out, if it has states, as a `Reader`. The states are
    the object's own.
    """

    waited_s = 0.0
    """What waiting is there is not known."""

    def __init__(self, name: str, share: Any, session: TrainSession) -> None:
        self._name = name
        self._share = share
        self._session = session

    def state_dict(self) -> dict[str, Any]:
        """The object's state. TypeError where JSON cannot hold it."""
        state = self._share.state_dict()
        try:
            json.dumps(state)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"the state of {self._name}, a {type(self._share).__name__}, cannot be kept with a checkpoint ({error}): let its "
                "`state_dict()` return plain numbers, texts, lists and dictionaries"
            ) from error
        return {"state": state} if state else {}

    def load_state_dict(self, states: Sequence[Mapping[str, Any]], /) -> None:
        """This rank's own state; where there were fewer ranks, that of another one."""
        state = states[self._session.world_rank % len(states)]
        if state:
            self._share.load_state_dict(state["state"])


def resign(shares: Mapping[str, DataIterator]) -> None:
    """A rank has ended, and reads no more: who waits for it to begin another epoch is told so."""
    for share in shares.values():
        if _is_iterator(share):
            share._feed.resign()


def _is_iterator(share: Any) -> bool:
    """Whether a share is one of ours: a program's own `DataConfig` may give out anything."""
    return isinstance(share, importlib.import_module("syncline.data").DataIterator)


def _rows_of_all_ranks(state: Mapping[str, Any]) -> int:
    """About how many rows of the epoch are done, by the cursor of one rank."""
    start, chunks = state["start"], state["chunks"]
    return int(
        start["prefix"]
        + sum(start["holes"][1::2])
        + state["rows"] * sum(chunks) // chunks[state["rank"]]
    )


def _worker_device() -> Any:
    """Where `iter_torch_batches` puts a rank's batches; None outside of a training function."""
    return (
        importlib.import_module("syncline.train.torch.device").get_device()
        if in_session()
        else None
    )


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
