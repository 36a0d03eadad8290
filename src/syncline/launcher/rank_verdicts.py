"""`RankVerdicts`: which rank delays or stops the others, and why.

The verdicts are those of a trainer (`diagnosis`), from the observations that the workers write into
their `RankMemory`. The launcher of the first node also gets those of the other nodes, whose
launchers compare their own ranks only. Not covered: the first rank with a NaN, and programs that
are not Python scripts.
"""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from syncline.core.error_messages import exit_cause
from syncline.core.host import is_stopped
from syncline.diagnosis.observation import RankObserved
from syncline.diagnosis.rank_diagnosis import RankDiagnosis
from syncline.diagnosis.rank_health import RankHealth
from syncline.diagnosis.thread_states import ThreadTimes
from syncline.launcher import failure_text
from syncline.launcher.collective_watch import Notice
from syncline.launcher.messages import Failure, RankSeen
from syncline.launcher.rank_memory import RankMemory, packed, unpacked
from syncline.runs.verdicts import EVENT, OVER, Cause, Verdict

MOST_BYTES = 100_000
"""Largest observation for the first node: it is sent in one packet."""
_END = RankObserved(window=-1, times=ThreadTimes(), line="", calls=None)


class RankVerdicts(RankDiagnosis):
    """Diagnosis of one job. For any thread, except `observed` and `check`.

    Args:
        clock: Returns monotonic seconds.
        is_stopped: Returns True for the process id of a stopped process.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        is_stopped: Callable[[int], bool] = is_stopped,
    ) -> None:
        super().__init__(clock)
        self._is_stopped_pid = is_stopped
        self._guard = threading.RLock()
        self._memories: dict[int, RankMemory] = {}
        self._pids: dict[int, int] = {}
        self._notices: list[Notice] = []
        self._has_end = False
        self._world_size = self._node = 0
        self._last: dict[int, RankObserved] = {}
        self._stopped: set[int] = set()
        self._unsent: dict[int, RankSeen] = {}
        self._away: dict[int, RankSeen] = {}  # of other nodes

    def started(
        self,
        memories: Mapping[int, RankMemory],
        pids: Mapping[int, int],
        world_size: int,
        node: int = 0,
    ) -> None:
        """Begin with the workers of an attempt, given by rank.

        Args:
            memories: What the workers of this node write.
            pids: Their process ids.
            world_size: Number of the ranks of all nodes.
            node: Number of this node.
        """
        with self._guard:
            self._memories, self._pids = dict(memories), dict(pids)
            self._health = RankHealth(self._memories)
            self._notices, self._has_end = [], False
            self._world_size, self._node = world_size, node
            self._last, self._stopped, self._unsent, self._away = {}, set(), {}, {}
            for rank in memories:
                self._share(rank)

    def ended(self, rank: int, exitcode: int) -> None:
        """Read the last observation of a worker; call it before its memory is closed."""
        with self._guard:
            is_first, self._has_end = not self._has_end, True
            self._read(rank)
            self.observed(rank, _END)
            is_dead = is_first and exitcode < 0 and exitcode != -signal.SIGTERM
            place = f"pid={self._pids.get(rank)} on {socket.gethostname()}"
            death = f"Rank {rank} ({place}) {exit_cause(exitcode)}." if is_dead else ""
            self._share(rank, has_ended=True, death=death)

    def unsent(self) -> list[RankSeen]:
        """Return new states of this node's ranks, for the first node."""
        with self._guard:
            unsent, self._unsent = self._unsent, {}
            return list(unsent.values())

    def seen(self, found: RankSeen) -> None:
        """Add the state of a rank of another node. Ranks of several nodes are compared as soon as
        all are known.
        """
        with self._guard:
            before = self._away.get(found.rank)
            self._away[found.rank] = found
            if len(self._memories) + len(self._away) < self._world_size:
                return
            if before is None:
                self._health = RankHealth(range(self._world_size))
                self._health.offsets_s = {
                    rank: each.clock_ahead_s for rank, each in self._away.items()
                }
            elif found.observation != before.observation:
                self._has_end = self._has_end or found.has_ended
                self.observed(found.rank, unpacked(found.observation))

    def update(self) -> list[Notice]:
        """Read the observations of this node's ranks; return new notices. Call it every second.

        Once a rank has ended there are none until `failed`: of ranks that end one after the other,
        the last calls are compared when all are known.
        """
        with self._guard:
            if self._has_end:
                return []
            for rank in self._memories:
                self._read(rank)
            self._share_stopped()
            self.check()
            return self._taken()

    def failed(self, failures: Sequence[Failure]) -> list[Notice]:
        """Return new notices after the failure of an attempt: also of ranks that a signal has
        ended, unless calls that differ explain it.
        """
        with self._guard:
            self._notices = self._notices[-1:]
            self._died(
                {
                    each.rank: f"Rank {each.rank} (pid={each.pid}) {exit_cause(each.exitcode)}."
                    for each in failures
                    if each.exitcode < 0 and not failure_text.is_stopped(each)
                }
            )
            self._died({rank: each.death for rank, each in self._away.items() if each.death})
            return self._taken()

    def busy_s(self, pid: int) -> float | None:
        """Return the seconds for which the script of a process has not communicated; None if they
        are unknown.
        """
        with self._guard:
            rank = next((rank for rank, each in self._pids.items() if each == pid), None)
            memory = None if rank is None else self._memories.get(rank)
            times = None if memory is None else memory.times()
            return None if times is None else times["total_s"] - times["communication_s"]

    def _read(self, rank: int) -> None:
        observed = self._memories[rank].observation() if rank in self._memories else None
        if observed is not None:
            self._last[rank] = observed
            self.observed(rank, observed)
            self._share(rank)

    def _share(
        self, rank: int, *, is_stopped: bool = False, has_ended: bool = False, death: str = ""
    ) -> None:
        """Prepare the state of a rank for the first node."""
        if self._node > 0:
            observed = self._last.get(rank)
            if has_ended:
                observed = replace(observed or _END, window=_END.window)
            text = "" if observed is None else packed(observed, MOST_BYTES).decode()
            self._unsent[rank] = RankSeen(
                rank=rank, observation=text, is_stopped=is_stopped, has_ended=has_ended, death=death
            )

    def _share_stopped(self) -> None:
        silent = self._health.silent_ranks(self._clock())
        stopped = {rank for rank in self._memories if rank in silent and self._is_stopped(rank)}
        for rank in stopped ^ self._stopped:
            self._share(rank, is_stopped=rank in stopped)
        self._stopped = stopped

    def _tell(self, verdict: Verdict) -> None:
        self._record(verdict, "" if verdict.may_pass else verdict.text)

    def _tell_over(self) -> None:
        self._notices.append(Notice(event=OVER, fields={}, text=""))

    def _record(self, verdict: Verdict, text: str = "") -> None:
        if verdict.cause is Cause.DEAD and verdict.ranks[0] in self._away:
            text = verdict.text  # no error of this node says it
        self._notices.append(Notice(event=EVENT, fields=verdict.to_json(), text=text))

    def _is_stopped(self, rank: int) -> bool:
        if rank in self._away:
            return self._away[rank].is_stopped
        return self._is_stopped_pid(self._pids[rank])

    def _taken(self) -> list[Notice]:
        taken, self._notices = self._notices, []
        return taken
