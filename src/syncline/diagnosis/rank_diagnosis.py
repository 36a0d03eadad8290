"""`RankDiagnosis`: passes observations to `RankHealth`, and its verdicts to the subclass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from syncline.diagnosis.observation import RankObserved
from syncline.diagnosis.rank_health import RankHealth
from syncline.runs.verdicts import DIFFERENCES, Cause, Verdict


class RankDiagnosis(ABC):
    """Diagnosis of the ranks of one run; each attempt begins with a new `RankHealth`. Only one
    thread at a time may call `observed` or `check`; the other public methods are for any thread.

    Args:
        clock: Returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._health = RankHealth(())

    @property
    def current(self) -> Verdict | None:
        """The latest verdict that still holds."""
        return self._health.current

    def waited_for(self, rank: int) -> float | None:
        """Return the share of the last window that the others waited for a rank, if known."""
        return self._health.table.get(rank)

    def to_json(self) -> dict[str, object]:
        """Return the state for a person who looks at the run; see `RankHealth.to_json`."""
        return self._health.to_json()

    def observed(self, rank: int, observed: RankObserved) -> None:
        """Add an observation of a rank."""
        before = self.current
        found = self._health.observe(rank, observed, self._clock())
        if found is not None:
            self._tell(found)
        if before is not None and self.current is None:
            self._tell_over()

    def check(self) -> None:
        """Look for an operation that does not end; call it every one or two seconds."""
        if not self._health.calls:
            return
        now = self._clock()
        stopped = {rank for rank in self._health.silent_ranks(now) if self._is_stopped(rank)}
        found = self._health.stalled(now, stopped)
        if found is not None:
            self._tell(found)

    @abstractmethod
    def _tell(self, verdict: Verdict) -> None:
        """Record and show a new verdict."""

    @abstractmethod
    def _tell_over(self) -> None:
        """Record that the last verdict does not hold any more."""

    @abstractmethod
    def _record(self, verdict: Verdict) -> None:
        """Record a verdict that is not shown, because an error says the same."""

    @abstractmethod
    def _is_stopped(self, rank: int) -> bool:
        """Return True if the process of a rank is known to be stopped."""

    def _died(self, texts: Mapping[int, str]) -> None:
        """Record the ranks whose processes died, unless calls that differ explain it.

        Args:
            texts: How they died, by rank.
        """
        if self.current is not None and self.current.cause in DIFFERENCES:
            return
        for rank, text in texts.items():
            self._record(Verdict(cause=Cause.DEAD, ranks=(rank,), seconds=0.0, text=text))
