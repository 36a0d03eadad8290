"""Resume state of a rank: positions of its readers and states of its random generators.

A *reader* is a dataset shard or a prepared data loader; each training session has a `Readers` with
all of them. `report(checkpoint=…)` calls `capture` and stores the result with the rank's files. A
reader that is added in the next attempt is restored to its position. The random states are restored
when the first pass begins.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from syncline.core import random_states
from syncline.runs.json_values import JsonObject, Record
from syncline.storage import filesystem as files
from syncline.train.checkpoint import Checkpoint

logger = logging.getLogger("syncline")

ReaderState = Record
"""State of one reader, in a form that JSON can hold."""

STATES_DIRECTORY = ".resume"
"""Directory of the states in a checkpoint, with a file for each rank."""
VERSION = 1
# Key of a state that holds the states of all ranks of an earlier attempt, for a reader that has not
# been added since.
_CARRIED = "by_rank"


class Reader(Protocol):
    """Passes over samples, one after the other. Used by one thread at a time."""

    @property
    def waited_s(self) -> float:
        """Seconds that the program has waited for this reader."""

    def state_dict(self) -> JsonObject:
        """Return the position of the program in the data; prefetched data does not count.

        The state has at least `epoch` (number of the pass, from 0) and `ended` (True if the next
        pass is the next epoch). It is empty before the first pass. It may have `place`, the
        position as text ("3072 rows").
        """

    def load_state_dict(self, states: Sequence[ReaderState], /) -> None:
        """Continue the next pass where the ranks were whose states these are, in rank order.

        If the number of ranks has not changed, `states` has only this rank's state.
        """


@dataclass(frozen=True, kw_only=True)
class RankStates:
    """States that one rank has saved with a checkpoint."""

    world_size: int
    """Number of ranks at that time."""
    readers: Mapping[str, ReaderState] = field(default_factory=dict)
    """Reader states by name."""
    random: Record = field(default_factory=dict)
    """States of the random generators."""


class Readers:
    """Readers of one rank. Thread-safe.

    Args:
        rank: This rank.
        world_size: Number of ranks.
        saved: Checkpoint to resume from, read when it is first needed; None to start anew.
        captured: Returns the result of `capture` in the memory snapshot to resume from, instead of
            `saved`; None without a snapshot.
    """

    def __init__(
        self,
        *,
        rank: int,
        world_size: int,
        saved: Checkpoint | None = None,
        captured: Callable[[], bytes | None] | None = None,
    ) -> None:
        self._rank = rank
        self._world_size = world_size
        self._checkpoint = saved
        self._captured = captured
        self.before_batch: Callable[[], None] | None = None
        """Called when the program requests a batch from any reader, before it is read."""
        self.before_pass: Callable[[], None] | None = None
        """Called when a pass begins; for a data loader only at the first one."""
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._saved: list[RankStates] | None = None
        self._readers: dict[str, Reader] = {}
        self._numbers: Counter[str] = Counter()
        self._has_randomness = False

    def number(self, kind: str) -> int:
        """Return the number of the next reader of a kind, from 1. It names unnamed readers."""
        self._numbers[kind] += 1
        return self._numbers[kind]

    def __contains__(self, name: str) -> bool:
        return name in self._readers

    def add(self, name: str, reader: Reader) -> None:
        """Add a reader and restore its position.

        Raises:
            ValueError: The checkpoint is damaged, or the reader cannot continue there.
        """
        states = self._states_of(name)
        if any(states):
            reader.load_state_dict(states)
        self._readers[name] = reader

    def restore_random(self, reader: Reader) -> None:
        """Restore the random states once. Called when a pass of `reader` begins.

        They are restored for the reader that was in the middle of a pass at the checkpoint; if
        there was none, for the first one.
        """
        if self.before_pass is not None and self._process == os.getpid():
            self.before_pass()
        # Processes forked by a data loader seed their generators differently.
        if self._has_randomness or self._process != os.getpid():
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

    def requested(self) -> None:
        """Record that the program is done with a batch and requests the next one. Called by every
        reader before it reads on.
        """
        if self.before_batch is not None and self._process == os.getpid():
            self.before_batch()

    def restore_random_without_reader(self) -> None:
        """Restore the random states now. A reader in the middle of a pass restores them again."""
        random = self._pending_random()
        if not any(each.readers for each in self._load()):
            self._has_randomness = True
        if random:
            random_states.restore(random)

    def __len__(self) -> int:
        return len(self._readers)

    @property
    def is_idle(self) -> bool:
        """True if there is no reader and no saved state, so there is nothing to capture."""
        return not self._readers and not self._load()

    def capture(self) -> bytes:
        """Return the states to store with a checkpoint.

        Raises:
            TypeError: JSON cannot hold the state of a reader of the program.
        """
        readers = {name: reader.state_dict() for name, reader in list(self._readers.items())}
        saved = self._load()
        for name in sorted({name for each in saved for name in each.readers} - set(readers)):
            readers[name] = (
                dict(saved[0].readers[name])
                if self._is_own(saved)
                else {_CARRIED: self._states_of(name)}
            )
        states = {
            "version": VERSION,
            "rank": self._rank,
            "world_size": self._world_size,
            "readers": readers,
            "random": self._pending_random() or random_states.capture(),
        }
        return json.dumps(states).encode()

    @property
    def waited_s(self) -> float:
        """Seconds that the program has waited for its readers."""
        return sum(reader.waited_s for reader in list(self._readers.values()))

    def _pending_random(self) -> Record:
        """Return the random states that are not restored yet."""
        if self._has_randomness:
            return {}
        saved = self._load()
        # If the number of ranks has grown, new ranks have no states: with those of another rank,
        # both would draw the same numbers.
        own = saved if self._is_own(saved) else saved[self._rank : self._rank + 1]
        return own[0].random if own else {}

    def _states_of(self, name: str) -> list[ReaderState]:
        """Return the states of a reader by rank; only this rank's if the number is unchanged."""
        states = [each.readers.get(name, {}) for each in self._load()]
        if states and all(_CARRIED in state for state in states):
            return list(states[0][_CARRIED])
        return [{} if _CARRIED in state else state for state in states]

    def _is_own(self, saved: Sequence[RankStates]) -> bool:
        """Return True if `saved` is that of this rank, as the number of ranks is unchanged."""
        return bool(saved) and saved[0].world_size == self._world_size

    def _load(self) -> list[RankStates]:
        """Return the saved states of this rank, or of all ranks if their number has changed."""
        with self._lock:
            if self._saved is None:
                captured = self._captured() if self._captured is not None else None
                if captured is not None:
                    self._saved = [_parse(captured)]
                elif self._checkpoint is not None:
                    self._saved = _load(self._checkpoint, self._rank, self._world_size)
                else:
                    self._saved = []
            return self._saved


def states_path(rank: int) -> str:
    """Return the path of a rank's states in a checkpoint."""
    return files.join(STATES_DIRECTORY, f"rank-{rank:05d}.json")


def read_states(checkpoint: Checkpoint, rank: int) -> RankStates | None:
    """Return the states of a rank in a checkpoint; None if it has none.

    Raises:
        ValueError: The file is damaged.
    """
    path = files.join(checkpoint.path, states_path(rank))
    data = files.read_bytes(checkpoint.filesystem, path)
    if data is None:
        return None
    try:
        return _parse(data)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"The resume state of rank {rank} in {path!r} cannot be read "
            f"({type(error).__name__}: {error}), so the run cannot continue exactly there. Delete "
            "this checkpoint to continue from an earlier one, or pass `DataConfig(resume=False)` "
            "to restart the epoch."
        ) from error


def _parse(data: bytes) -> RankStates:
    text = json.loads(data)
    if text["version"] != VERSION:
        raise ValueError(f"version {text['version']!r}, but this syncline reads {VERSION}")
    return RankStates(
        world_size=int(text["world_size"]),
        readers=dict(text["readers"]),
        random=dict(text["random"]),
    )


def resume_position(checkpoint: Checkpoint) -> str:
    """Return where rank 0 continues, as text; empty if unknown.

    Example: "dataset 'train': epoch 3, 3072 rows; data loader 1: epoch 4".
    """
    try:
        states = read_states(checkpoint, 0)
        if states is None:
            return ""
        known = [(name, state) for name, state in states.readers.items() if "epoch" in state]
        return "; ".join(f"{name}: {_position(state)}" for name, state in known)
    except Exception as error:  # only displayed; the ranks raise the error
        logger.debug("The resume positions in %s are unknown: %s", checkpoint, error)
        return ""


def _position(state: ReaderState) -> str:
    if state["ended"]:
        return f"epoch {state['epoch'] + 1}"
    return f"epoch {state['epoch']}" + (f", {state['place']}" if "place" in state else "")


def _is_in_middle(states: Sequence[ReaderState]) -> bool:
    return any(state and not state.get("ended", True) for state in states)


def _load(checkpoint: Checkpoint, rank: int, world_size: int) -> list[RankStates]:
    first = read_states(checkpoint, 0)
    if first is None:
        return []
    size = first.world_size
    wanted = [rank] if size == world_size else range(size)
    found = [first if each == 0 else read_states(checkpoint, each) for each in wanted]
    # A file with another number of ranks is older than the checkpoint: its directory was reused.
    return [
        each if each is not None and each.world_size == size else RankStates(world_size=size)
        for each in found
    ]
