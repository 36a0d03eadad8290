"""Who stands where, and who is the odd one out: what the stacks of all ranks say about a run that
hangs. Pure.

Two ranks stand at the same place if their stacks agree in the program's own lines and in the
functions of libraries that these lead to. Not compared: lines within libraries, and how the
standard library waits at the innermost end of a stack (locks, queues, sockets), as these differ
between ranks that wait for the same thing. Python frames are all there is: that an operation on a
GPU hangs shows as its waiting.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

_FRAME = re.compile(r'\s*File "(?P<file>[^"]*)", line (?P<line>\d+),? in (?P<function>.*)')
_STANDARD_LIBRARY = re.compile(
    r"<frozen |/lib/python3(\.\d+)?t?/(?!site-packages|dist-packages)|/python3\d+\.zip/"
)
_LIBRARY = re.compile(r"<|/(site|dist)-packages/|/syncline/(core|data|train|tune|util)/")
_COLLECTIVES = re.compile(r"/torch/(distributed|nn/parallel)/")
_OWN_BARRIERS = ("barrier", "get_checkpoint")


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One entry of a stack."""

    file: str
    line: int
    function: str

    @property
    def is_standard(self) -> bool:
        """Of Python's own library."""
        return bool(_STANDARD_LIBRARY.search(self.file))

    @property
    def is_users(self) -> bool:
        """Of the program itself, rather than of a library."""
        return not self.is_standard and not _LIBRARY.search(self.file)

    @property
    def waits_for_others(self) -> bool:
        """Whether it is one in which ranks wait for each other: a collective operation, a backward
        pass, a barrier of syncline's.
        """
        if self.file.endswith("/syncline/train/workers/session.py"):
            return self.function in _OWN_BARRIERS
        return bool(_COLLECTIVES.search(self.file)) or self.function == "_engine_run_backward"


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Members of a run (ranks, or trials) that stand at one place."""

    members: tuple[str, ...]
    """In order."""
    stack: str
    """Of the first of them, outermost frame first."""
    is_odd: bool
    """Whether the others seem to wait for them, or have gone another way."""
    waits: bool
    """Whether they are where ranks wait for each other."""


def standings(stacks: Mapping[str, str]) -> list[Standing]:
    """Members by place, odd ones first, then larger groups before smaller ones.

    The place where most are is the usual one, and all others are odd. Where two places have equally
    many, those are odd who do not wait for others while some do; if that does not tell them apart
    either, nobody is.

    Args:
        stacks: As Python prints them (`traceback`, or `faulthandler` turned round), by rank or
        trial.
    """
    places: dict[object, list[str]] = {}
    for member in sorted(stacks, key=_order):
        places.setdefault(_place(stacks[member]), []).append(member)
    groups = list(places.values())
    most = max((len(group) for group in groups), default=0)
    waiting = {group[0]: _waits(stacks[group[0]]) for group in groups}
    largest = [group for group in groups if len(group) == most]
    told_apart = len({waiting[group[0]] for group in largest}) == 2
    found = [
        Standing(
            members=tuple(group),
            stack=stacks[group[0]],
            is_odd=len(group) < most or (told_apart and not waiting[group[0]]),
            waits=waiting[group[0]],
        )
        for group in groups
    ]
    return sorted(
        found, key=lambda each: (not each.is_odd, -len(each.members), _order(each.members[0]))
    )


def frames(stack: str) -> list[Frame]:
    """The entries of a printed stack, in its order; none where it is a sentence instead."""
    matches = map(_FRAME.fullmatch, stack.splitlines())
    return [
        Frame(file=match["file"], line=int(match["line"]), function=match["function"])
        for match in matches
        if match is not None
    ]


def readable(stack: str) -> str:
    """The stack without the frames of Python's import system, and without a common indent."""
    kept: list[str] = []
    is_hidden = False
    for line in stack.splitlines():
        match = _FRAME.fullmatch(line)
        if match is not None:
            is_hidden = match["file"].startswith("<frozen importlib")
        if not is_hidden:
            kept.append(line)
    return textwrap.dedent("\n".join(kept or stack.splitlines())).rstrip()


def members_text(members: Collection[str]) -> str:
    """ "rank 3", "ranks 0-2, 5"; of what has no numbers, the names."""
    if not all(map(_is_rank, members)):
        return ", ".join(members)
    spans: list[list[int]] = []
    for rank in sorted(map(int, members)):
        if spans and spans[-1][1] == rank - 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    text = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
    return ("rank " if len(members) == 1 else "ranks ") + text


def _order(member: str) -> tuple[int, int, str]:
    """Numbers as numbers, before names."""
    return (0, int(member), "") if _is_rank(member) else (1, 0, member)


def _is_rank(member: str) -> bool:
    return member.isascii() and member.isdigit()


def _place(stack: str) -> object:
    """What is equal for stacks at the same place."""
    entries = _without_waiting(frames(stack))
    return (
        tuple(
            (frame.file, frame.function, frame.line if frame.is_users else 0) for frame in entries
        )
        or stack.strip()
    )


def _waits(stack: str) -> bool:
    entries = _without_waiting(frames(stack))
    return bool(entries) and entries[-1].waits_for_others


def _without_waiting(entries: Sequence[Frame]) -> Sequence[Frame]:
    """Without the innermost frames of the standard library, unless there are no others."""
    inner = next(
        (index for index in range(len(entries), 0, -1) if not entries[index - 1].is_standard),
        len(entries),
    )
    return entries[:inner]
