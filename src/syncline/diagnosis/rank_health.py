"""`RankHealth`: from the observations of all ranks to verdicts. Pure; times are passed in.

Every two seconds each rank sends its recent collective calls and how its thread spent the time.
From the calls follows which rank the others wait for: in a call that does not end, the rank that
has not made it or made another one; in calls that end, the rank that comes last. Its times,
compared with the median of the others, show why. A rank is called slow if the others
waited for it in several windows in a row, so that a single slow step does not raise an alarm. If
no rank comes late, the network of a host may be slow (`host_network`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from statistics import median

from syncline.diagnosis.collective_calls import (
    Absence,
    CollectiveCall,
    Difference,
    Lateness,
    absence,
    first_difference,
    lateness,
)
from syncline.diagnosis.host_network import HostNetwork
from syncline.diagnosis.observation import SLOW_WINDOWS, WINDOW_S, RankObserved
from syncline.diagnosis.thread_states import ThreadTimes
from syncline.records import dataclass
from syncline.runs.outliers import ranks_text
from syncline.runs.verdicts import SLOWNESS, STALLS, Cause, Verdict

SLOW_SHARE = 0.15
"""Share of a window that the others wait for one rank from which on it may be called slow."""
DOMINANCE = 3.0
"""Factor by which the waits for the slow rank exceed those for any other one."""
EXPLAINED = 1 / 3
"""Least part of the waits for a slow rank that the time of a cause makes up. In tests with injected
faults it is more than 0.8.
"""
STALL_S = 5.0
"""Seconds in one call after which ranks that have not made it are named."""
SILENT_S = 3.0
"""Seconds without an observation after which the state of a rank's process is looked at."""
NO_ANSWER_S = 10.0
"""Seconds without an observation after which a rank whose process is not stopped is named."""
STOP_S = 1.0
"""Seconds in one call after which ranks whose processes are stopped are named."""
START_S = 30.0
"""Seconds in one call after which ranks without any call so far are named, unless their processes
are known to be stopped. Starts take different times on different ranks.
"""
FEWEST_CALLS = 4
"""Least number of calls to compare; if a window has fewer, the next one is added to it."""
SHOWN_CALLS = 5
"""Collective calls of each rank that `to_json` returns."""
_SHORTEST_S = 1e-3


@dataclass(frozen=True, kw_only=True)
class SlowWindow:
    """Result of one window in which others waited for a rank."""

    rank: int
    share: float
    seconds: float
    """Seconds of the window that the others waited."""
    excess: Mapping[Cause, float]
    """By cause, seconds that the rank spent more than the median of the others."""
    usual_contention_s: float
    """Seconds for which the rank would have waited for a core if it had waited like the others."""
    line: str


class RankHealth:
    """Health of the ranks of one attempt.

    Args:
        ranks: The ranks. They are expected to send observations from the first one of any rank on.
    """

    def __init__(self, ranks: Collection[int]) -> None:
        self._ranks = frozenset(ranks)
        self.offsets_s: Mapping[int, float] = {}
        """By rank, the seconds by which its clock is ahead; 0 where missing."""
        self._latest: dict[int, RankObserved] = {}
        self._calls: dict[int, RankObserved] = {}  # latest observations with calls
        self._before: dict[int, ThreadTimes] = {}  # at the last comparison of arrivals
        self._window = 0  # its number
        self._compared: Mapping[str, int] = {}
        self._heard: dict[int, float] = {}
        self._began_s: float | None = None  # time of the first observation
        self._pending: dict[int, dict[int, RankObserved]] = {}  # window -> rank -> observation
        self._network = HostNetwork()
        self._slow: deque[SlowWindow | None] = deque(maxlen=SLOW_WINDOWS)
        self._told: Verdict | None = None
        self.table: dict[int, float] = {}
        """By rank, the share of the last window that the others waited for it."""

    def observe(self, rank: int, observed: RankObserved, now_s: float) -> Verdict | None:
        """Add an observation; return a verdict if there is a new one."""
        self._latest[rank] = observed
        self._heard[rank] = now_s
        if self._began_s is None:
            self._began_s = now_s
        if observed.calls:
            self._calls[rank] = observed
        if observed.window < 0:  # the last one: the ends of ranks lie apart
            return self._new(self._difference())
        members = self._pending.setdefault(observed.window, {})
        members[rank] = observed
        for window in [each for each in self._pending if each < observed.window - 8]:
            del self._pending[window]
        if len(members) < len(self._ranks):
            return None
        for window in [each for each in self._pending if each <= observed.window]:
            del self._pending[window]
        found = self._difference()
        is_stalled = self._told is not None and self._told.cause in STALLS
        if found is None and is_stalled and self._absence() is None:
            self._told = None  # the operation has ended
        late, slow_network = self._late_window(members), self._network.observe(members)
        told = self._told
        if slow_network is None and told is not None and told.cause is Cause.NETWORK_DELAY:
            self._told = None
        return self._new(found or slow_network or late)

    def stalled(self, now_s: float, stopped_ranks: Collection[int] = ()) -> Verdict | None:
        """Return a new verdict about a call that does not end, or None.

        Args:
            now_s: Time, of the clock of `observe`.
            stopped_ranks: Ranks that are silent and whose processes are known to be stopped.
        """
        different = self._difference()
        if different is not None:
            return self._new(different)
        silent = {rank for rank in self._ranks if self._silence_s(rank, now_s) > NO_ANSWER_S}
        found = self._absence({*stopped_ranks, *silent})
        if found is None or self._ended & {*found.absent, *found.waiting}:
            return None
        seconds = self._newest(found.waiting) - found.since_s
        stopped = tuple(r for r in found.absent if r in stopped_ranks)
        quiet = tuple(r for r in found.absent if r in silent)
        answering = set(found.absent) - set(self.silent_ranks(now_s))
        has_calls = self._calls.keys() >= set(found.absent)
        limit_s = STOP_S if stopped else STALL_S if has_calls else START_S
        if seconds < limit_s or not (stopped or quiet or answering):
            return None
        return self._new(_absent(found, self._latest, quiet, stopped, seconds))

    def silent_ranks(self, now_s: float) -> tuple[int, ...]:
        """Return the ranks that have not sent an observation for long, or none at all."""
        return tuple(
            sorted(rank for rank in self._ranks if self._silence_s(rank, now_s) > SILENT_S)
        )

    @property
    def calls(self) -> dict[int, tuple[CollectiveCall, ...]]:
        """Recent collective calls by rank, oldest first."""
        return {rank: each.calls or () for rank, each in dict(self._calls).items()}

    @property
    def current(self) -> Verdict | None:
        """The latest verdict that still holds."""
        return self._told

    def to_json(self) -> dict[str, object]:
        """Return the state for a person who looks at the run. For any thread.

        `{"verdict": event or None, "calls": {"0": ["all_reduce [2] Float, call 7 (pending)", …]},
        "waited_for": {"0": 0.02}}`
        """
        current = self.current
        return {
            "verdict": None if current is None else current.to_json(),
            "calls": {
                str(rank): [_described(call) for call in calls[-SHOWN_CALLS:]]
                for rank, calls in self.calls.items()
            },
            "waited_for": {str(rank): share for rank, share in dict(self.table).items()},
        }

    def _new(self, found: Verdict | None) -> Verdict | None:
        """Return a verdict unless it repeats the last one."""
        if found is None:
            return None
        told, self._told = self._told, found
        is_same = told is not None and (told.cause, told.ranks) == (found.cause, found.ranks)
        return None if is_same else found

    def _difference(self) -> Verdict | None:
        found = first_difference(self.calls)
        return None if found is None else _different(found)

    def _absence(self, unresponsive: Collection[int] = ()) -> Absence | None:
        return absence(self.calls, {*unresponsive, *(self._ranks - self._calls.keys())})

    def _silence_s(self, rank: int, now_s: float) -> float:
        """Return the seconds since the last observation of a rank; without one, since the first
        one of any rank.
        """
        since_s = self._heard.get(rank, self._began_s)
        return 0.0 if since_s is None else now_s - since_s

    @property
    def _ended(self) -> set[int]:
        """Ranks whose training functions have ended."""
        return {rank for rank, each in self._latest.items() if each.window < 0}

    def _newest(self, ranks: tuple[int, ...]) -> float:
        """Return the time of the oldest of the last observations of these ranks."""
        return min(self._calls[rank].window for rank in ranks) * WINDOW_S

    def _late_window(self, members: Mapping[int, RankObserved]) -> Verdict | None:
        if any(each.calls is None for each in members.values()):
            return None
        calls = {rank: each.calls or () for rank, each in members.items()}
        found = lateness(calls, self.offsets_s, self._compared)
        is_first = self._before.keys() != members.keys()
        if found.calls < FEWEST_CALLS and not is_first:
            return None  # steps are long: the next window has their calls, too
        before, self._before = self._before, {r: each.times for r, each in members.items()}
        self._compared = found.newest
        window = next(iter(members.values())).window
        elapsed_s, self._window = (window - self._window) * WINDOW_S, window
        if is_first:
            return None
        spent = {rank: each.times.minus(before[rank]) for rank, each in members.items()}
        self.table = {
            rank: found.waited_for_s.get(rank, 0.0) / found.span_s if found.span_s else 0.0
            for rank in members
        }
        self._slow.append(_slow_window(found, elapsed_s, spent, members))
        return self._slow_rank()

    def _slow_rank(self) -> Verdict | None:
        windows = [each for each in self._slow if each is not None]
        if len(windows) < SLOW_WINDOWS or len({each.rank for each in windows}) != 1:
            if self._slow[-1] is None and self._told is not None and self._told.cause in SLOWNESS:
                self._told = None  # it is not slow any more
            return None
        rank = windows[-1].rank
        excess = {
            cause: sum(each.excess.get(cause, 0.0) for each in windows)
            for cause in windows[-1].excess
        }
        cause = max(excess, key=lambda each: excess[each])
        usual_s = sum(each.usual_contention_s for each in windows)
        if cause is Cause.CPU_CONTENTION and excess[cause] < (DOMINANCE - 1.0) * usual_s:
            return None  # the whole machine is busy, and chance has chosen the rank
        share = sum(each.share for each in windows) / len(windows)
        seconds = sum(each.seconds for each in windows)
        if excess[cause] < EXPLAINED * seconds:
            return None  # its lateness has another cause
        return Verdict(
            cause=cause,
            ranks=(rank,),
            seconds=seconds,
            text=f"Rank {rank} is slow: the other ranks waited for it {100 * share:.0f} % of the "
            f"time. Cause: {_EXPLAINED[cause]}{_where(cause, windows[-1].line)}.",
        )


_EXPLAINED = {
    Cause.COMPUTE: "it spends more time in its own code",
    Cause.DATA: "it waits longer for data",
    Cause.DISK: "it waits for the disk",
    Cause.CPU_CONTENTION: "other processes take its core",
    Cause.GARBAGE_COLLECTION: "it collects garbage; call `gc.freeze()` after the start, or collect "
    "at the same step on every rank",
}


def _where(cause: Cause, line: str) -> str:
    return f", mostly in {line}" if line and cause in (Cause.COMPUTE, Cause.DISK) else ""


def _slow_window(
    found: Lateness,
    elapsed_s: float,
    spent: Mapping[int, ThreadTimes],
    members: Mapping[int, RankObserved],
) -> SlowWindow | None:
    if not found.waited_for_s or found.span_s <= 0:
        return None
    rank, seconds = max(found.waited_for_s.items(), key=lambda item: item[1])
    others = max((s for r, s in found.waited_for_s.items() if r != rank), default=0.0)
    if seconds < SLOW_SHARE * found.span_s or seconds < DOMINANCE * others:
        return None
    share = seconds / found.span_s
    return SlowWindow(
        rank=rank,
        share=share,
        seconds=share * elapsed_s,
        excess=_excess(rank, spent),
        usual_contention_s=_usual_contention(rank, spent),
        line=members[rank].line,
    )


def _excess(rank: int, spent: Mapping[int, ThreadTimes]) -> dict[Cause, float]:
    """Return by cause the seconds that a rank spent more than the median of the others."""

    def more(name: str) -> float:
        rest = [float(getattr(times, name)) for r, times in spent.items() if r != rank]
        return float(getattr(spent[rank], name)) - median(rest)

    collection = more("collection_s")
    contention = spent[rank].contention_s - _usual_contention(rank, spent)
    return {
        Cause.GARBAGE_COLLECTION: collection,
        Cause.CPU_CONTENTION: contention,
        Cause.DATA: more("data_s"),
        Cause.DISK: more("disk_s"),
        # Samples see a thread that collects garbage or waits for a core as running.
        Cause.COMPUTE: more("running_s")
        + more("sleeping_s")
        - max(0.0, collection)
        - max(0.0, contention),
    }


def _usual_contention(rank: int, spent: Mapping[int, ThreadTimes]) -> float:
    """Return the seconds for which a rank would have waited for a core if it had waited as long as
    the others for each second on one: on a busy machine, a rank that computes more also waits more.
    """
    usual = median(
        times.contention_s / max(times.cpu_s, _SHORTEST_S)
        for other, times in spent.items()
        if other != rank
    )
    return usual * spent[rank].cpu_s


def _different(found: Difference) -> Verdict:
    odd = found.calls[found.ranks[0]]
    everyone = len(found.ranks) == len(found.calls)
    others = tuple(rank for rank in found.calls if rank not in found.ranks)
    who = ranks_text(found.ranks)
    if everyone:
        calls = "; ".join(f"rank {r}: {call.text}" for r, call in sorted(found.calls.items()))
        text = f"The ranks differ at call {found.number} of their process group: {calls}."
    elif found.kind == "missing":
        text = (
            f"{_upper(who)} left out {found.expected.text}, call {found.number} of the process "
            f"group, and went on to {odd.text}; {ranks_text(others)} made it."
        )
    else:
        text = (
            f"{_upper(who)} called {odd.text} as call {found.number} of the process group, where "
            f"{ranks_text(others)} called {found.expected.text}."
        )
    cause = {
        "missing": Cause.MISSING_COLLECTIVE,
        "operation": Cause.MISMATCHED_COLLECTIVES,
        "shape": Cause.MISMATCHED_SHAPES,
    }[found.kind]
    remedy = " Make the same calls with tensors of the same shape in the same order on every rank."
    return Verdict(cause=cause, ranks=found.ranks, seconds=0.0, text=text + remedy)


def _absent(
    found: Absence,
    latest: Mapping[int, RankObserved],
    quiet: tuple[int, ...],
    stopped: tuple[int, ...],
    seconds: float,
) -> Verdict:
    who, waiting = ranks_text(found.absent), ranks_text(found.waiting)
    where = f"{found.call.text}, call {found.call.number} of the process group"
    verb = "wait" if len(found.waiting) > 1 else "waits"
    text = f"{_upper(waiting)} {verb} for {who} in {where}"
    if stopped:
        return Verdict(
            cause=Cause.STOPPED,
            ranks=stopped,
            seconds=seconds,
            text=f"{text}. {_upper(ranks_text(stopped))} was stopped by a signal (SIGSTOP); "
            "`kill -CONT` continues it.",
        )
    if quiet:
        return Verdict(
            cause=Cause.STOPPED,
            ranks=quiet,
            seconds=seconds,
            text=f"{text}. {_upper(ranks_text(quiet))} gives no answer: the process is stopped, "
            "its machine is gone, or a call holds the interpreter.",
        )
    line = latest[found.absent[0]].line if found.absent[0] in latest else ""
    doing = f", which is in {line}" if line else ""
    return Verdict(
        cause=Cause.MISSING_COLLECTIVE,
        ranks=found.absent,
        seconds=seconds,
        text=f"{text}{doing}. Make the same calls in the same order on every rank.",
    )


def _described(call: CollectiveCall) -> str:
    pending = " (pending)" if call.is_pending else ""
    return f"{call.text}, call {call.number} of group {call.group}{pending}"


def _upper(text: str) -> str:
    return text[0].upper() + text[1:]
