"""What a rank reads from, and how far: with every checkpoint its place in each, and after a restart
the way back there.

A *reader* is a share of a dataset, or a prepared data loader; a training session has a `Readers`
with all of them. `capture` is called by `report(checkpoint=…)`, its text travels with the rank's
files; a reader that is added in the next attempt is told where it was. The states of the random
generators are kept with the places, and come back when the first pass begins.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from syncline.train import filesystem as files
from syncline.train import random_states
from syncline.train.checkpoint import Checkpoint

logger = logging.getLogger("syncline")

STATES_DIRECTORY = ".resume"
"""Where the states lie in a checkpoint, a file for each rank."""
VERSION = 1
_CARRIED = "by_rank"  # key of a state that is those of all ranks of an earlier attempt, whose reader has not been asked for since


class Reader(Protocol):
    """Passes over samples, one after another. Used by one thread at a time."""

    @property
    def waited_s(self) -> float:
        """How long the program has waited for this reader so far, in seconds."""

    def state_dict(self) -> dict[str, Any]:
        """How far the program is, in a form that JSON holds: what it was given counts, what was
        fetched ahead does not.

        Has at least `epoch` (number of the pass, from 0) and `ended` (that pass is over: what comes
        next is the next epoch), or is empty where nothing is known: no pass has begun. May have
        `place`, how far in words ("3072 rows"), for a person to read.
        """

    def load_state_dict(self, states: Sequence[Mapping[str, Any]], /) -> None:
        """Let the next pass continue where the ranks were whose states these are, by rank; there
        may be other ranks than now.

        Where there are as many ranks as now, it is this rank's own state alone.
        """


@dataclass(frozen=True, kw_only=True)
class RankStates:
    """What one rank has saved with a checkpoint."""

    world_size: int
    """How many ranks there were."""
    readers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The states of its readers by name."""
    random: Mapping[str, Any] = field(default_factory=dict)
    """Those of its random generators."""


class Readers:
    """The readers of one rank. Any thread may call.

    Args:
        rank: This rank. world_size: How many ranks there are now. saved: The checkpoint where they
        go on; None if they begin anew. It is read when it is first needed.
    """

    def __init__(self, *, rank: int, world_size: int, saved: Checkpoint | None = None) -> None:
        self._rank = rank
        self._world_size = world_size
        self._checkpoint = saved
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._saved: list[RankStates] | None = None
        self._readers: dict[str, Reader] = {}
        self._numbers: Counter[str] = Counter()
        self._has_randomness = False

    def number(self, kind: str) -> int:
        """The number of the next reader of a kind, from 1: readers without a name of their own are
        known by their order.
        """
        self._numbers[kind] += 1
        return self._numbers[kind]

    def __contains__(self, name: str) -> bool:
        return name in self._readers

    def add(self, name: str, reader: Reader) -> None:
        """Count a reader in, and let it go on where it was.

        Raises:
            ValueError: the checkpoint is damaged, or the reader cannot go on there.
        """
        states = self._states_of(name)
        if any(states):
            reader.load_state_dict(states)
        self._readers[name] = reader

    def restore_random(self, reader: Reader) -> None:
        """Called as a pass of `reader` begins: put the random states back, once.

        It is time when the reader begins that was in the middle of a pass when the checkpoint was
        taken; if there was none, the first.
        """
        if (
            self._has_randomness or self._process != os.getpid()
        ):  # a process that a data loader forked draws in its own way
            return
        saved = self._load()
        in_middle = [
            name for each in saved for name in each.readers if _is_in_middle(self._states_of(name))
        ]
        if in_middle and not any(self._readers.get(name) is reader for name in in_middle):
            return
        random = self._pending_random()
        self._has_randomness = True
        if random:
            random_states.restore(random)

    @property
    def is_idle(self) -> bool:
        """There is no reader, and none to be carried on: no pass will ever ask for what `capture`
        would keep.
        """
        return not self._readers and not self._load()

    def capture(self) -> bytes:
        """The text that goes on with a checkpoint. TypeError if a reader of the program's has a
        state that JSON cannot hold.
        """
        readers = {name: reader.state_dict() for name, reader in list(self._readers.items())}
        saved = self._load()
        for name in sorted({name for each in saved for name in each.readers} - set(readers)):
            readers[name] = (
                dict(saved[0].readers[name])
                if self._is_mine(saved)
                else {_CARRIED: self._states_of(name)}
            )
        text = {
            "version": VERSION,
            "rank": self._rank,
            "world_size": self._world_size,
            "readers": readers,
            "random": self._pending_random() or random_states.capture(),
        }
        return json.dumps(text).encode()

    @property
    def waited_s(self) -> float:
        """How long the program has waited for its readers so far, in seconds."""
        return sum(reader.waited_s for reader in list(self._readers.values()))

    def _pending_random(self) -> Mapping[str, Any]:
        """The random states that are still to come back; empty if there are none."""
        if self._has_randomness:
            return {}
        saved = self._load()
        # With another number of ranks, those that there were not before have none: with another's,
        # two would draw the same.
        mine = saved if self._is_mine(saved) else saved[self._rank : self._rank + 1]
        return mine[0].random if mine else {}

    def _states_of(self, name: str) -> list[Mapping[str, Any]]:
        """By rank; this rank's alone where there are as many as now."""
        states = [each.readers.get(name, {}) for each in self._load()]
        if states and all(_CARRIED in state for state in states):
            return list(states[0][_CARRIED])
        return [{} if _CARRIED in state else state for state in states]

    def _is_mine(self, saved: Sequence[RankStates]) -> bool:
        """Whether it is what this rank alone has saved, one of as many as now."""
        return bool(saved) and saved[0].world_size == self._world_size

    def _load(self) -> list[RankStates]:
        """What was saved: by this rank if there were as many, else by all ranks; nothing if there
        is nothing.
        """
        with self._lock:
            if self._saved is None:
                self._saved = (
                    []
                    if self._checkpoint is None
                    else _load(self._checkpoint, self._rank, self._world_size)
                )
            return self._saved


def states_path(rank: int) -> str:
    """Where a rank's states lie in a checkpoint."""
    return files.join(STATES_DIRECTORY, f"rank-{rank:05d}.json")


def read_states(checkpoint: Checkpoint, rank: int) -> RankStates | None:
    """What a rank has saved with a checkpoint; None if that is one without, such as an older one.
    ValueError if it is damaged.
    """
    path = files.join(checkpoint.path, states_path(rank))
    data = files.read_bytes(checkpoint.filesystem, path)
    if data is None:
        return None
    try:
        text = json.loads(data)
        if text["version"] != VERSION:
            raise ValueError(
                f"it has version {text['version']!r}, and this syncline reads version {VERSION}"
            )
        return RankStates(
            world_size=int(text["world_size"]),
            readers=dict(text["readers"]),
            random=dict(text["random"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path!r}, which says where rank {rank} was in its data, cannot be read ({type(error).__name__}: {error}), so the run "
            "cannot go on exactly there: delete this checkpoint to go on from an earlier one, or pass `DataConfig(resume=False)` to begin "
            "the epoch anew."
        ) from error


def places(checkpoint: Checkpoint) -> str:
    """Where rank 0 goes on, in words: "dataset 'train': epoch 3, 3072 rows; data loader 1: epoch
    4". Empty if nothing is known.
    """
    try:
        states = read_states(checkpoint, 0)
        return (
            "; ".join(
                f"{name}: {_place(state)}"
                for name, state in states.readers.items()
                if "epoch" in state
            )
            if states
            else ""
        )
    except Exception as error:  # it is only a line for people: the ranks will say what is wrong
        logger.debug("the places in %s are not known: %s", checkpoint, error)
        return ""


def _place(state: Mapping[str, Any]) -> str:
    if state["ended"]:
        return f"epoch {state['epoch'] + 1}"
    return f"epoch {state['epoch']}" + (f", {state['place']}" if "place" in state else "")


def _is_in_middle(states: Sequence[Mapping[str, Any]]) -> bool:
    return any(state and not state.get("ended", True) for state in states)


def _load(checkpoint: Checkpoint, rank: int, world_size: int) -> list[RankStates]:
    first = read_states(checkpoint, 0)
    if first is None:
        return []
    then = first.world_size
    wanted = [rank] if then == world_size else range(then)
    found = [first if each == 0 else read_states(checkpoint, each) for each in wanted]
    # A file of another number of ranks is older than the checkpoint: the directory was used before.
    return [
        each if each is not None and each.world_size == then else RankStates(world_size=then)
        for each in found
    ]
