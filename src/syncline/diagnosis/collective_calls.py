"""Collective calls of all ranks, compared: who called something else, who comes last. Pure.

The n-th call in a process group is one operation on all of its ranks. If their calls differ, or
one rank has not made it, the operation does not end. If all make it, it ends soon after the last
rank has come, so the ranks before have waited for that one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from syncline.records import dataclass


class CollectiveCall(NamedTuple):
    """One call of one rank. A tuple, as ranks send a hundred of them every two seconds."""

    group: str
    """Name of the process group, equal on its ranks."""
    number: int
    """Number of the call in the group."""
    operation: str
    """Such as "all_reduce"."""
    sizes: str
    """Shapes and types of the tensors, such as "[10] Float"."""
    arrived_s: float
    """Time of the call in seconds since the epoch, by the clock of the rank's machine."""
    is_pending: bool = False
    """True if the operation has not ended."""

    @property
    def text(self) -> str:
        """The operation with its tensors."""
        return f"{self.operation} {self.sizes}".strip()


Calls = Mapping[int, Sequence[CollectiveCall]]
"""Recent calls by rank, oldest first."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The first call that is not the same on all ranks of a group."""

    number: int
    ranks: tuple[int, ...]
    """The ranks that differ from the majority, or without one from the usual sequence of calls; all
    ranks if neither tells.
    """
    calls: Mapping[int, CollectiveCall]
    """The call by rank."""
    kind: str
    """"missing" if these ranks left a call out, else "operation" or "shape"."""
    expected: CollectiveCall
    """Call of the others."""


@dataclass(frozen=True, kw_only=True)
class Absence:
    """A call that some ranks of a group have made and others have not."""

    call: CollectiveCall
    """The call, of a rank that waits in it."""
    waiting: tuple[int, ...]
    absent: tuple[int, ...]
    since_s: float
    """Time at which the last of the waiting ranks came."""


@dataclass(frozen=True, kw_only=True)
class Lateness:
    """Comparison of the arrivals of all ranks."""

    span_s: float
    """Time from the first to the last call that was compared."""
    calls: int
    """Number of calls that were compared."""
    waited_for_s: Mapping[int, float]
    """By rank, the seconds that the others waited for it because it came last."""
    last: Mapping[int, int]
    """By rank, the number of calls to which it came last."""
    newest: Mapping[str, int]
    """By group, the number of the last call that was compared, also before."""


_SHAPES_DIFFER = frozenset(
    {"all_gather", "gather", "scatter", "all_to_all", "alltoall", "alltoall_base", "barrier"}
)
"""Operations to which ranks may pass tensors of different shapes."""


def first_difference(calls: Calls) -> Difference | None:
    """Return the first call that ranks of a group made differently; None if all calls are equal."""
    found = [_difference(_comparable_calls(ranks)) for ranks in _by_group(calls).values()]
    differences = [each for each in found if each is not None]
    return min(differences, key=lambda each: each.expected.arrived_s, default=None)


def absence(calls: Calls, unresponsive: Collection[int] = ()) -> Absence | None:
    """Return the oldest call in which ranks wait for others that have not made it.

    Args:
        calls: Recent calls.
        unresponsive: Ranks that do not answer, or have no calls so far. They count as absent from
            a call that does not end although every other rank of its group has made it.
    """
    found = []
    for ranks in _by_group(calls).values():
        numbered = {rank: own[-1] for rank, own in ranks.items()}
        ends = {rank: max(own) for rank, own in numbered.items()}
        for number in sorted(
            {n for own in numbered.values() for n, c in own.items() if c.is_pending}
        ):
            behind = [rank for rank, end in ends.items() if end < number]
            absent = tuple(sorted(behind or unresponsive))
            waiting = {
                rank: own[number]
                for rank, own in numbered.items()
                if number in own and rank not in absent
            }
            if absent and waiting:
                last = max(waiting.values(), key=lambda call: call.arrived_s)
                found.append(
                    Absence(
                        call=last,
                        waiting=tuple(sorted(waiting)),
                        absent=absent,
                        since_s=last.arrived_s,
                    )
                )
                break
    return min(found, key=lambda each: each.since_s, default=None)


def lateness(
    calls: Calls,
    offsets_s: Mapping[int, float] | None = None,
    compared: Mapping[str, int] | None = None,
) -> Lateness:
    """Compare the arrivals at the calls that every rank of a group made.

    Args:
        calls: Recent calls.
        offsets_s: By rank, the seconds by which its clock is ahead; 0 where missing.
        compared: `newest` of an earlier result, whose calls are left out.
    """
    offsets = offsets_s or {}
    newest = dict(compared or {})
    waited: dict[int, float] = defaultdict(float)
    last: Counter[int] = Counter()
    times: list[float] = []
    count = 0
    for group, ranks in _by_group(calls).items():
        numbered = {rank: own[-1] for rank, own in ranks.items()}
        common = set.intersection(*(set(own) for own in numbered.values()))
        if len(numbered) < 2 or not common:
            continue
        before = newest.get(group, -1)
        newest[group] = max(common)
        for number in common:
            if newest[group] >= before >= number:  # else the numbers of a new group of this name
                continue
            arrivals = {
                rank: own[number].arrived_s - offsets.get(rank, 0.0)
                for rank, own in numbered.items()
            }
            latest = max(arrivals, key=lambda rank: arrivals[rank])
            others = [time for rank, time in arrivals.items() if rank != latest]
            waited[latest] += arrivals[latest] - median(others)
            last[latest] += 1
            times += [min(others), arrivals[latest]]
            count += 1
    return Lateness(
        span_s=max(times) - min(times) if times else 0.0,
        calls=count,
        waited_for_s=dict(waited),
        last=dict(last),
        newest=newest,
    )


_Numbered = dict[int, CollectiveCall]


def _by_group(calls: Calls) -> dict[str, dict[int, list[_Numbered]]]:
    """Return the calls by group, rank and number.

    Of each rank and group there is a list with one entry for each time that the rank has created a
    group of this name, the latest last: its numbers begin anew.
    """
    found: dict[str, dict[int, list[_Numbered]]] = defaultdict(dict)
    for rank, own in calls.items():
        for call in own:
            created = found[call.group].setdefault(rank, [{}])
            if created[-1] and call.number < next(reversed(created[-1])):
                created.append({})
            created[-1][call.number] = call
    return found


def _comparable_calls(ranks: Mapping[int, Sequence[_Numbered]]) -> dict[int, _Numbered]:
    """Return by rank the latest calls. Of a rank that has created the group less often than others,
    only those that have not ended: the others may be calls of the group before.
    """
    most = max(map(len, ranks.values()))
    return {
        rank: own[-1]
        if len(own) == most
        else {number: call for number, call in own[-1].items() if call.is_pending}
        for rank, own in ranks.items()
    }


def _difference(numbered: Mapping[int, Mapping[int, CollectiveCall]]) -> Difference | None:
    counts = Counter(number for own in numbered.values() for number in own)
    for number in sorted(number for number, count in counts.items() if count > 1):
        made = {rank: own[number] for rank, own in numbered.items() if number in own}
        kinds = Counter(map(_comparable, made.values()))
        if len(kinds) == 1:
            continue
        (usual, most), *rest = kinds.most_common()
        is_split = most == rest[0][1]
        if is_split and (one := _usual_sequence(numbered, number)) is not None:
            usual, is_split = one, False
        expected = next(call for call in made.values() if _comparable(call) == usual)
        ranks = tuple(
            sorted(r for r, call in made.items() if is_split or _comparable(call) != usual)
        )
        odd = next(call for call in made.values() if _comparable(call) != usual)
        if not is_split and _left_out(numbered[ranks[0]], number, expected, odd):
            kind = "missing"
        else:
            kind = "operation" if odd.operation != expected.operation else "shape"
        return Difference(number=number, ranks=ranks, calls=made, kind=kind, expected=expected)
    return None


def _usual_sequence(
    numbered: Mapping[int, Mapping[int, CollectiveCall]], number: int
) -> tuple[str, str] | None:
    """Return the call that followed the one before `number` when that was made last; None if the
    ranks do not agree on it, or no rank makes it now.
    """
    found, now = set(), set()
    for own in numbered.values():
        if number in own:
            now.add(_comparable(own[number]))
        before = own.get(number - 1)
        earlier = [
            each
            for each in own
            if before is not None
            and each < number - 1
            and each + 1 in own
            and _comparable(own[each]) == _comparable(before)
        ]
        if earlier:
            found.add(_comparable(own[max(earlier) + 1]))
    return found.pop() if len(found) == 1 and found <= now else None


def _left_out(
    own: Mapping[int, CollectiveCall], number: int, expected: CollectiveCall, odd: CollectiveCall
) -> bool:
    """Return True if `odd` is the call that used to follow the expected one on this rank."""
    before = sorted((each for each in own if each < number), reverse=True)
    for earlier in before:
        if _comparable(own[earlier]) == _comparable(expected):
            follower = own.get(earlier + 1)
            return follower is not None and _comparable(follower) == _comparable(odd)
    return False


def _comparable(call: CollectiveCall) -> tuple[str, str]:
    return call.operation, "" if call.operation in _SHAPES_DIFFER else call.sizes
