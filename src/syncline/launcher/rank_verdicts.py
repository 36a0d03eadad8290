"""`RankVerdicts`: which rank of this node delays or stops the others, and why.

The verdicts are those of a trainer (`diagnosis`), from the observations that the workers write into
their `RankMemory`. Not covered: ranks of other nodes, the first rank with a NaN, and programs that
are not Python scripts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from syncline.core.error_messages import exit_cause
from syncline.core.host import is_stopped
from syncline.diagnosis.observation import RankObserved
from syncline.diagnosis.rank_diagnosis import RankDiagnosis
from syncline.diagnosis.rank_health import RankHealth
from syncline.diagnosis.thread_states import ThreadTimes
from syncline.launcher import failure_text
from syncline.launcher.collective_watch import Notice
from syncline.launcher.messages import Failure
from syncline.launcher.rank_memory import RankMemory
from syncline.runs.verdicts import EVENT, OVER, Verdict


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

    def started(self, memories: Mapping[int, RankMemory], pids: Mapping[int, int]) -> None:
        """Begin with the workers of an attempt, given by rank."""
        with self._guard:
            self._memories, self._pids = dict(memories), dict(pids)
            self._health = RankHealth(self._memories)
            self._notices, self._has_end = [], False

    def ended(self, rank: int) -> None:
        """Read the last observation of a worker; call it before its memory is closed."""
        with self._guard:
            self._has_end = True
            self._read(rank)
            self.observed(rank, RankObserved(window=-1, times=ThreadTimes(), line="", calls=None))

    def update(self) -> list[Notice]:
        """Read the observations of all ranks; return new notices. Call it every second.

        Once a rank has ended there are none until `failed`: of ranks that end one after the other,
        the last calls are compared when all are known.
        """
        with self._guard:
            if self._has_end:
                return []
            for rank in self._memories:
                self._read(rank)
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
            self.observed(rank, observed)

    def _tell(self, verdict: Verdict) -> None:
        self._record(verdict, "" if verdict.may_pass else verdict.text)

    def _tell_over(self) -> None:
        self._notices.append(Notice(event=OVER, fields={}, text=""))

    def _record(self, verdict: Verdict, text: str = "") -> None:
        self._notices.append(Notice(event=EVENT, fields=verdict.to_json(), text=text))

    def _is_stopped(self, rank: int) -> bool:
        return self._is_stopped_pid(self._pids[rank])

    def _taken(self) -> list[Notice]:
        taken, self._notices = self._notices, []
        return taken
