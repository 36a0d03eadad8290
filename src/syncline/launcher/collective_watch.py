"""`CollectiveWatch`: notices from outside that ranks wait for each other and nothing moves.

A rank that waits in a collective operation on CPUs uses no CPU time. The watch reads the stack of
a rank whose main thread has used none for some seconds; in the portable mode, of a rank whose own
watch has seen nothing but communication (`RankVerdicts.busy_s`). Ranks whose operation waits
actively, as NCCL may, are seen through the others, and when the report is made. The watch ends
nothing: torch's own time limits do.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable, Mapping

from syncline.launcher import worker_stacks
from syncline.records import dataclass
from syncline.runs.outliers import (
    NO_ANSWER,
    members_text,
    mismatch_text,
    parse_frames,
    ranks_text,
    readable,
    stack_groups,
)

LOOK_INTERVAL_S = 1.0
IDLE_S = 5.0
"""Seconds without CPU time after which the stack of a rank is read."""
TOLERANCE_S = 0.005
"""Change of a rank's busy seconds from which on it works: less than a tick of the CPU time, more
than the rounding of sums.
"""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_USER, _SYSTEM = 11, 12


@dataclass(frozen=True, kw_only=True)
class Notice:
    """An event for the record, and a text to print; empty to print nothing."""

    event: str
    """"stalled", "resumed", or one of `runs.verdicts`."""
    fields: dict[str, object]
    text: str


class CollectiveWatch:
    """Watches the ranks of this node.

    Args:
        report_s: Seconds of waiting after which the stacks are reported; 0 for never.
        busy_s: Returns the seconds for which a process has worked, such as the CPU time of its main
            thread; None if it is unknown or has ended.
        stacks: Returns the stacks of processes by rank.
    """

    def __init__(
        self,
        report_s: float,
        busy_s: Callable[[int], float | None] = lambda pid: main_thread_cpu_s(pid),
        stacks: Callable[[Mapping[int, int]], dict[int, str]] = worker_stacks.own_stacks,
    ) -> None:
        self._report_s = report_s
        self._busy_s = busy_s
        self._stacks = stacks
        self._pids: dict[int, int] = {}
        self._last: dict[int, tuple[float, float]] = {}  # rank -> CPU time, since
        self._waiting: set[int] = set()
        self._reported: frozenset[int] = frozenset()

    def update(self, pids: Mapping[int, int], now: float) -> Notice | None:
        """Look at the processes, given by rank; call it every `LOOK_INTERVAL_S`."""
        if not self._report_s:
            return None
        for rank, pid in pids.items():
            if self._pids.get(rank) != pid:  # restarted
                self._last.pop(rank, None)
        self._pids = dict(pids)
        self._waiting &= pids.keys()
        idle = self._idle(pids, now)
        if self._reported:
            if self._reported <= set(idle):
                return None
            self._reported = frozenset()
            return Notice(event="resumed", fields={}, text="")
        fresh = {rank: pids[rank] for rank in idle if rank not in self._waiting}
        for rank, stack in self._stacks(fresh).items() if fresh else ():
            if waits(stack):
                self._waiting.add(rank)
            else:
                self._last[rank] = self._last[rank][0], now  # read again after `IDLE_S`
        overdue = [rank for rank in self._waiting if now - self._last[rank][1] >= self._report_s]
        return self._report(pids, overdue, now) if overdue else None

    def _idle(self, pids: Mapping[int, int], now: float) -> list[int]:
        found = []
        for rank, pid in pids.items():
            used = self._busy_s(pid)
            if used is None or rank not in self._last or self._has_worked(rank, used):
                self._last[rank] = (-1.0 if used is None else used), now
                self._waiting.discard(rank)
            elif now - self._last[rank][1] >= min(IDLE_S, self._report_s):
                found.append(rank)
        return found

    def _has_worked(self, rank: int, used: float) -> bool:
        return abs(used - self._last[rank][0]) > TOLERANCE_S

    def _report(self, pids: Mapping[int, int], overdue: list[int], now: float) -> Notice:
        stacks = {rank: text or NO_ANSWER for rank, text in self._stacks(pids).items()}
        for rank in overdue:  # the signal has cost CPU time
            used = self._busy_s(pids[rank])
            self._last[rank] = (-1.0 if used is None else used), self._last[rank][1]
        self._reported = frozenset(overdue)
        seconds = max(now - self._last[rank][1] for rank in overdue)
        waiting = ranks_text(overdue)
        text = (
            f"{waiting[0].upper()}{waiting[1:]} waited {seconds:.0f} s in a collective operation "
            f"so far.{mismatch_text(stacks)} Stacks of all ranks:\n{groups_text(stacks)}"
        )
        return Notice(event="stalled", fields={"seconds": seconds, "text": text}, text=text)


def waits(stack: str) -> bool:
    """Return True if a stack is in an operation for which ranks wait for each other."""
    return any(group.waits for group in stack_groups({"0": stack})) and bool(parse_frames(stack))


def groups_text(stacks: Mapping[int, str]) -> str:
    """Return the stacks: equal ones once, outliers first and marked."""
    blocks = []
    for group in stack_groups({str(rank): stack for rank, stack in stacks.items()}):
        mark = ("  waiting for others" if group.waits else "") + (
            "  <-- outlier" if group.is_outlier else ""
        )
        body = textwrap.indent(readable(group.stack), "  ")
        blocks.append(f"[{members_text(group.members)}]{mark}\n{body}")
    return "\n".join(blocks)


def main_thread_cpu_s(pid: int) -> float | None:
    """Return the CPU time of a process's main thread; None if it has ended."""
    try:
        with open(f"/proc/{pid}/task/{pid}/stat", "rb") as file:
            data = file.read()
    except OSError:
        return None
    fields = data[data.rfind(b")") + 2 :].split()
    return (int(fields[_USER]) + int(fields[_SYSTEM])) / _TICKS_PER_S
