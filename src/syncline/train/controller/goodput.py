"""Goodput: fraction of a run's time spent in training that counts. The rest is waiting for data,
reporting, and the cost of failures. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from syncline.train.workers.messages import StepTimes

PARTS = ("data", "report", "communication")
"""Measured parts of `StepTimes`; the rest of a rank's time is computation."""


@dataclass(frozen=True, kw_only=True)
class Goodput:
    """Fractions of the time since the first training functions began; they add up to 1."""

    total_s: float
    """That time in seconds."""
    compute: float
    communication: float
    data: float
    report: float
    restarts: float
    """From the last checkpoint before a failure until the training functions ran again."""

    @property
    def good(self) -> float:
        """Fraction of training that counts."""
        return self.compute + self.communication

    def to_json(self) -> Mapping[str, float]:
        """Return the fields for the record of the run."""
        return {"goodput": self.good, **asdict(self)}

    def __str__(self) -> str:
        parts = ", ".join(
            f"{name} {getattr(self, name):.1%}".replace("%", " %")
            for name in ("data", "report", "restarts")
        )
        inside = f"computing {self.compute:.1%}, communicating {self.communication:.1%}".replace(
            "%", " %"
        )
        return f"goodput {self.good * 100:.1f} %: {parts} ({inside})"


class GoodputMeter:
    """Measures the goodput of a run. Times are seconds of one clock."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._attempt_began = 0.0
        self._saved = 0.0  # time of the last checkpoint of this attempt
        self._ended: float | None = None  # end of the last attempt, until the next begins
        self._restarts_s = 0.0
        self._ranks: dict[int, StepTimes] = {}
        # Of the last attempt: time from which its work was lost, and what was spent before it.
        self._lost_from: float | None = None
        self._last_ranks: dict[int, StepTimes] = {}
        self._spent_before: dict[str, float] = {}
        # Seconds in earlier attempts, mean of the ranks, only work kept.
        self._spent = dict.fromkeys(PARTS, 0.0)

    def attempt_began(self, now: float) -> None:
        """Record that training functions have started."""
        if self._began is None:
            self._began = now
        if self._ended is not None:
            self._restarts_s += now - self._ended
        self._attempt_began = self._saved = now
        self._ended = None

    def record(self, rank: int, times: StepTimes) -> None:
        """Set the step times of a rank in this attempt."""
        self._ranks[rank] = times

    @property
    def ranks(self) -> Mapping[int, StepTimes]:
        """Latest step times of the ranks of this attempt."""
        return dict(self._ranks)

    def committed(self, now: float) -> None:
        """Record that a checkpoint was committed."""
        self._saved = now

    def attempt_ended(self, now: float, *, lost: bool) -> None:
        """Record the end of an attempt; with `lost`, work since its last checkpoint is repeated."""
        if self._began is None or self._ended is not None:
            return
        self._ended = now
        self._lost_from = self._saved if lost else None
        self._last_ranks, self._spent_before = self._ranks, self._spent
        self._count_until(self._saved if lost else now)
        self._ranks = {}

    def kept_until(self, moment: float) -> None:
        """Record that the next attempt starts from a memory snapshot that the last one took at
        `moment`, so less work is lost.
        """
        if self._ended is None or self._lost_from is None:
            return
        self._restarts_s -= self._ended - self._lost_from
        self._ranks, self._spent = self._last_ranks, self._spent_before
        self._count_until(min(max(moment, self._lost_from), self._ended))
        self._ranks, self._lost_from = {}, None

    def _count_until(self, counted_until: float) -> None:
        """Count the work of the attempt that has ended up to a moment, and the rest as lost."""
        assert self._ended is not None
        self._restarts_s += self._ended - counted_until
        length = self._ended - self._attempt_began
        self._spent = self._spent_with(
            (counted_until - self._attempt_began) / length if length else 0.0
        )

    def goodput(self) -> Goodput | None:
        """Return the goodput after the end of the last attempt; None if there was none."""
        if self._began is None or self._ended is None or self._ended <= self._began:
            return None
        return _shares(self._ended - self._began, self._spent, self._restarts_s)

    def goodput_so_far(self, now: float) -> Goodput | None:
        """Return the goodput as if the run finished now; None before the first attempt.

        Step times are as of the ranks' last messages.
        """
        if self._began is None or now <= self._began:
            return None
        waiting_s = now - self._ended if self._ended is not None else 0.0
        return _shares(now - self._began, self._spent_with(1.0), self._restarts_s + waiting_s)

    def _spent_with(self, share: float) -> dict[str, float]:
        """Return the seconds spent with this share of the current attempt."""
        count = len(self._ranks) or 1
        return {
            part: before
            + share * sum(getattr(times, f"{part}_s") for times in self._ranks.values()) / count
            for part, before in self._spent.items()
        }


def _shares(total_s: float, spent: Mapping[str, float], restarts_s: float) -> Goodput:
    shares = {part: min(1.0, seconds / total_s) for part, seconds in spent.items()}
    restarts = min(1.0, restarts_s / total_s)
    compute = max(0.0, 1.0 - restarts - sum(shares.values()))
    return Goodput(total_s=total_s, compute=compute, restarts=restarts, **shares)
