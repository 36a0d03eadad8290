"""`Bracket`: one run of successive halving, with a barrier at each rung; `bracket_plan`, how large
HyperBand makes them.

Li, Jamieson, DeSalvo, Rostamizadeh, Talwalkar: Hyperband, a Novel Bandit-Based Approach to
Hyperparameter Optimization, JMLR 18(185), 2018, https://arxiv.org/abs/1603.06560, Algorithm 1. Pure
bookkeeping on trial ids; `hyperband.py` asks the controller to act on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

_ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True)
class BracketPlan:
    """What one bracket is to do."""

    size: int
    """So many trials start, n in the paper."""
    milestones: tuple[float, ...]
    """Where trials wait for each other, r_i in the paper; the last one is `max_t`."""
    eta: float

    def survivors(self, rung: int, started: int) -> int:
        """How many of `started` trials go on after rung `rung - 1`: n_i in the paper, at least
        one.
        """
        return max(1, math.floor(started / self.eta**rung + _ROUNDING))


def largest_bracket(max_t: float, eta: float) -> int:
    """s_max in the paper: how often a trial can be halved away before `max_t`, if it runs for 1 at
    least.
    """
    s = 0
    while eta ** (s + 1) <= max_t * (1 + _ROUNDING):
        s += 1
    return s


def bracket_plan(s: int, max_t: float, eta: float) -> BracketPlan:
    """The bracket that halves `s` times; times are whole numbers, rounded down, unless `max_t` is
    below 1.
    """
    most = largest_bracket(max_t, eta)
    milestones = [max_t / eta ** (s - i) for i in range(s + 1)]
    return BracketPlan(
        size=math.ceil((most + 1) / (s + 1) * eta**s - _ROUNDING),
        milestones=tuple(
            math.floor(milestone + _ROUNDING) if milestone >= 1 else milestone
            for milestone in milestones[:-1]
        )
        + (max_t,),
        eta=eta,
    )


@dataclass
class _Standing:
    time: float = 0
    score: float = -math.inf


@dataclass
class Bracket:
    """Trials that are halved together. A trial that has come to the milestone is *held* until all
    have.
    """

    plan: BracketPlan
    stops_last: bool
    """Whether trials that have come to the last milestone end; else they go on from the last rung
    without a limit.
    """
    rung: int = 0
    started: int = 0
    """So many trials have come, those that have ended since among them."""
    closed: bool = False
    """No more trials come."""
    _live: dict[str, _Standing] = field(default_factory=dict)
    _num_held: int = 0

    @property
    def milestone(self) -> float:
        """How far its trials run now."""
        return self.plan.milestones[self.rung]

    @property
    def on_last_rung(self) -> bool:
        """Whether nobody is halved away any more."""
        return self.rung == len(self.plan.milestones) - 1

    def is_complete(self) -> bool:
        """Whether all have come that should, and all are held."""
        return self.closed and 0 < len(self._live) == self._num_held

    @property
    def live(self) -> list[str]:
        """The trials that have not ended, in the order in which they came."""
        return list(self._live)

    def __len__(self) -> int:
        return len(self._live)

    def add(self, trial_id: str) -> None:
        """A trial starts in this bracket."""
        assert not self.closed, f"a closed bracket got trial {trial_id}"
        self._live[trial_id] = _Standing()
        self.started += 1
        self.closed = self.started >= self.plan.size

    def record(self, trial_id: str, time: float, score: float) -> None:
        """A trial has come to `time`."""
        self._num_held -= self.holds(trial_id)
        standing = self._live[trial_id]
        standing.time, standing.score = time, score
        self._num_held += self.holds(trial_id)

    def holds(self, trial_id: str) -> bool:
        """Whether the trial has to wait for the others."""
        standing = self._live.get(trial_id)
        if standing is None or (self.on_last_rung and not self.stops_last):
            return False
        return standing.time >= self.milestone

    def remove(self, trial_id: str, *, comes_again: bool) -> None:
        """A trial has ended. One that failed and `comes_again` leaves its place free, if the
        bracket is still open.
        """
        self._num_held -= self.holds(trial_id)
        if self._live.pop(trial_id, None) is not None and comes_again and not self.closed:
            self.started -= 1

    def close(self) -> None:
        """Go on with those who are there."""
        self.closed = True

    def halve(self) -> list[str]:
        """Climb to the next rung; returns those who do not come with it, the worst first. On the
        last rung nobody goes on.
        """
        assert self.is_complete(), "a bracket was halved before all its trials had come"
        if self.on_last_rung:
            dropped = list(self._live)
        else:
            self.rung += 1
            ascending = sorted(self._live, key=lambda trial_id: self._live[trial_id].score)
            dropped = ascending[
                : max(0, len(ascending) - self.plan.survivors(self.rung, self.started))
            ]
        for trial_id in dropped:
            del self._live[trial_id]
        self._num_held = sum(self.holds(trial_id) for trial_id in self._live)
        return dropped
