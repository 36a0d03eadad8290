"""Outlier analysis of the Python stacks of a hanging run.

Pure functions: members (ranks or trials) are grouped by stack, and the members that the others seem
to wait for are found. Two stacks are equal if they agree in the program's own lines and in the
library functions that these call. Not compared: line numbers within libraries, and the innermost
frames of the standard library (locks, queues, sockets), since these differ between members that
wait for the same thing. Only Python frames are known: a hanging GPU operation shows as the Python
call that waits for it.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

NO_ANSWER = "(no answer)"

_FRAME = re.compile(r'\s*File "(?P<file>[^"]*)", line (?P<line>\d+),? in (?P<function>.*)')
_STANDARD_LIBRARY = re.compile(
    r"<frozen |/lib/python3(\.\d+)?t?/(?!site-packages|dist-packages)|/python3\d+\.zip/"
)
_LIBRARY = re.compile(r"<|/(site|dist)-packages/|/syncline/(core|data|train|tune|util)/")
_COLLECTIVES = re.compile(r"/torch/(distributed|nn/parallel)/")
_WRAPPERS = re.compile(r"/torch/distributed/(distributed_c10d|_functional_collectives)\.py$")
_DECORATORS = ("wrapper", "timed", "inner", "_fn")
_NAMES = {"_engine_run_backward": "backward"}
_SESSION_FILE = "/syncline/train/workers/worker_session.py"
_SESSION_BARRIERS = ("barrier", "get_checkpoint")


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One entry of a printed stack."""

    file: str
    line: int
    function: str

    @property
    def is_standard(self) -> bool:
        """True for a frame of Python's standard library."""
        return bool(_STANDARD_LIBRARY.search(self.file))

    @property
    def is_users(self) -> bool:
        """True for a frame of the program itself."""
        return not self.is_standard and not _LIBRARY.search(self.file)

    @property
    def is_named(self) -> bool:
        """True unless it is a decorator, or code without a name."""
        return not self.function.startswith("<") and self.function not in _DECORATORS

    @property
    def waits_for_others(self) -> bool:
        """True where ranks wait for each other: a collective operation, a backward pass, or a
        barrier of the training session.
        """
        if self.file.endswith(_SESSION_FILE):
            return self.function in _SESSION_BARRIERS
        return bool(_COLLECTIVES.search(self.file)) or self.function == "_engine_run_backward"

    @property
    def is_collective_call(self) -> bool:
        """True for a function of `torch.distributed` that runs one operation, or joins a group."""
        return bool(_WRAPPERS.search(self.file))


@dataclass(frozen=True, kw_only=True)
class StackGroup:
    """Members with equal stacks."""

    members: tuple[str, ...]
    """In ascending order."""
    stack: str
    """Stack of the first member, outermost frame first."""
    is_outlier: bool
    """True if the other members seem to wait for these."""
    waits: bool
    """True if the members are where ranks wait for each other."""


def stack_groups(stacks: Mapping[str, str]) -> list[StackGroup]:
    """Group members by stack: outliers first, then larger groups before smaller ones.

    The largest group is the norm and all others are outliers. If two groups are equally large,
    the group that does not wait for others is the outlier; if all or none of them wait, none is.

    Args:
        stacks: Printed stack (`traceback`, or reversed `faulthandler`) by rank or trial.
    """
    groups = _grouped(stacks)
    most = max((len(group) for group in groups), default=0)
    waiting = {group[0]: _waits(stacks[group[0]]) for group in groups}
    is_split = len({waiting[group[0]] for group in groups if len(group) == most}) == 2
    found = [
        StackGroup(
            members=tuple(group),
            stack=stacks[group[0]],
            is_outlier=len(group) < most or (is_split and not waiting[group[0]]),
            waits=waiting[group[0]],
        )
        for group in groups
    ]
    return sorted(
        found, key=lambda each: (not each.is_outlier, -len(each.members), _order(each.members[0]))
    )


def hanging_ranks(
    stacks: Mapping[int, str], world_size: int, waiting: Collection[int]
) -> tuple[int, ...]:
    """Return the ranks that the others seem to wait for.

    These are the ranks outside of a collective operation. If all ranks are in one, these are the
    ranks outside of the largest group; if there is no single largest group, all ranks.

    Args:
        stacks: Stack by rank, of the ranks that answered.
        world_size: Number of ranks.
        waiting: Ranks known to be in a collective operation. Ranks with an equal stack are, too.
    """
    groups = _rank_groups(stacks, world_size)
    outside = [rank for group in groups if not set(group) & set(waiting) for rank in group]
    if outside:
        return tuple(sorted(outside))
    most = max(len(group) for group in groups)
    if len(groups) > 1 and sum(len(group) == most for group in groups) == 1:
        return tuple(sorted(rank for group in groups if len(group) < most for rank in group))
    return tuple(range(world_size))


def stacks_text(stacks: Mapping[int, str], world_size: int, outliers: Collection[int]) -> str:
    """Return the stacks of all ranks as text: equal stacks once, outliers first and marked."""
    groups = sorted(
        _rank_groups(stacks, world_size), key=lambda group: (not set(group) & set(outliers), group)
    )
    lines = []
    for group in groups:
        is_marked = len(outliers) < world_size and bool(set(group) & set(outliers))
        lines.append(f"[{ranks_text(group)}]" + ("  <-- outlier" if is_marked else ""))
        stack = stacks.get(group[0], NO_ANSWER).rstrip()
        lines.append(textwrap.indent(textwrap.dedent(stack), "  "))
    return "\n".join(lines)


def mismatch_text(stacks: Mapping[int, str]) -> str:
    """Return " Rank 0 is in all_reduce (a.py:7), rank 1 in barrier (a.py:9)." if all ranks wait for
    each other, but in different calls of the program; else an empty text.
    """
    calls: dict[str, list[int]] = {}
    for rank, stack in stacks.items():
        call = _waiting_call(stack)
        if call is None:
            return ""
        calls.setdefault(call, []).append(rank)
    if len(calls) < 2:
        return ""
    (first, call), *others = [(ranks_text(ranks), call) for call, ranks in calls.items()]
    verb = "is" if first.startswith("rank ") else "are"
    parts = [f"{first[0].upper()}{first[1:]} {verb} in {call}"]
    return " " + ", ".join(parts + [f"{ranks} in {call}" for ranks, call in others]) + "."


def _waiting_call(stack: str) -> str | None:
    """Return the operation in which a stack waits for other ranks, and the program's line."""
    frames = parse_frames(stack)
    users = [index for index, frame in enumerate(frames) if frame.is_users]
    if not users or not _waits(stack):
        return None
    line, operation = frames[users[-1]], frames[users[-1] + 1 :]
    # Decorators come first in the stack of a library's function.
    named = [each.function for each in operation if each.waits_for_others and each.is_named]
    if not named:
        return None
    return f"{_NAMES.get(named[0], named[0])} ({line.file.rpartition('/')[2]}:{line.line})"


def parse_frames(stack: str) -> list[Frame]:
    """Return the frames of a printed stack in its order; empty for other text."""
    matches = map(_FRAME.fullmatch, stack.splitlines())
    return [
        Frame(file=match["file"], line=int(match["line"]), function=match["function"])
        for match in matches
        if match is not None
    ]


def readable(stack: str) -> str:
    """Return the stack without frames of the import system and without common indentation."""
    kept: list[str] = []
    is_hidden = False
    for line in stack.splitlines():
        match = _FRAME.fullmatch(line)
        if match is not None:
            is_hidden = match["file"].startswith("<frozen importlib")
        if not is_hidden:
            kept.append(line)
    return textwrap.dedent("\n".join(kept or stack.splitlines())).rstrip()


def ranks_text(ranks: Collection[int]) -> str:
    """Return "rank 3" or "ranks 0-2, 5"."""
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(spans(ranks))


def spans(numbers: Collection[int]) -> list[str]:
    """Return the runs of consecutive numbers, such as `["0-2", "5"]`."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return [str(first) if first == last else f"{first}-{last}" for first, last in found]


def members_text(members: Collection[str]) -> str:
    """Return `ranks_text` for numbers, else the names separated by commas."""
    if not all(map(_is_rank, members)):
        return ", ".join(members)
    return ranks_text([int(member) for member in members])


def _order(member: str) -> tuple[int, int, str]:
    """Sort key: numbers by value, before names."""
    return (0, int(member), "") if _is_rank(member) else (1, 0, member)


def _is_rank(member: str) -> bool:
    return member.isascii() and member.isdigit()


def _grouped(stacks: Mapping[str, str]) -> list[list[str]]:
    groups: dict[object, list[str]] = {}
    for member in sorted(stacks, key=_order):
        groups.setdefault(_comparable(stacks[member]), []).append(member)
    return list(groups.values())


def _rank_groups(stacks: Mapping[int, str], world_size: int) -> list[list[int]]:
    of_all = {str(rank): stacks.get(rank, NO_ANSWER) for rank in range(world_size)}
    return [[int(member) for member in group] for group in _grouped(of_all)]


def _comparable(stack: str) -> object:
    frames = _without_waiting(parse_frames(stack))
    return (
        tuple((frame.file, frame.function, frame.line if frame.is_users else 0) for frame in frames)
        or stack.strip()
    )


def _waits(stack: str) -> bool:
    frames = _without_waiting(parse_frames(stack))
    if not frames:
        return False
    # An operation may call helpers elsewhere in torch, but it does not call the program.
    users = next((n for n in range(len(frames), 0, -1) if frames[n - 1].is_users), 0)
    return frames[-1].waits_for_others or any(each.is_collective_call for each in frames[users:])


def _without_waiting(frames: Sequence[Frame]) -> Sequence[Frame]:
    """Drop the innermost frames of the standard library, unless there are no others."""
    inner = next(
        (index for index in range(len(frames), 0, -1) if not frames[index - 1].is_standard),
        len(frames),
    )
    return frames[:inner]
