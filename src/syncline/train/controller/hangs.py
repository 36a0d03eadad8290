"""What the stacks of all ranks say about a collective operation that does not end: who stands
where, and who is the odd one out. Pure.
"""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Mapping

NO_ANSWER = "(it does not answer)"


def odd_ones(
    stacks: Mapping[int, str], world_size: int, waiting: Collection[int]
) -> tuple[int, ...]:
    """The ranks that the others seem to wait for.

    Those that wait in no collective operation; where all of them do, those that stand elsewhere
    than most; else, as where two ranks stand at two operations, all.

    Args:
        stacks: Of the ranks that answered. world_size: Number of ranks. waiting: Ranks that are
        known to wait in a collective operation; those at the same place do, too.
    """
    places = grouped(stacks, world_size)
    elsewhere = sorted(
        rank for ranks in places.values() if not set(ranks) & set(waiting) for rank in ranks
    )
    if elsewhere:
        return tuple(elsewhere)
    largest = max(len(ranks) for ranks in places.values())
    if len(places) > 1 and sum(len(ranks) == largest for ranks in places.values()) == 1:
        return tuple(
            sorted(rank for ranks in places.values() if len(ranks) < largest for rank in ranks)
        )
    return tuple(range(world_size))


def grouped(stacks: Mapping[int, str], world_size: int) -> dict[str, list[int]]:
    """Ranks by stack, ranks with equal ones together, in the order of the lowest rank."""
    places: dict[str, list[int]] = {}
    for rank in range(world_size):
        places.setdefault(stacks.get(rank, NO_ANSWER).rstrip(), []).append(rank)
    return places


def side_by_side(stacks: Mapping[int, str], world_size: int, odd: Collection[int]) -> str:
    """The stacks of all ranks one after the other, equal ones once, those of the odd ranks first
    and marked.
    """
    places = sorted(
        grouped(stacks, world_size).items(),
        key=lambda place: (not set(place[1]) & set(odd), place[1]),
    )
    marked = len(odd) < world_size
    lines = []
    for stack, ranks in places:
        lines.append(
            f"[{ranks_text(ranks)}]"
            + ("  <-- the odd one out" if marked and set(ranks) & set(odd) else "")
        )
        lines.append(textwrap.indent(textwrap.dedent(stack), "  "))
    return "\n".join(lines)


def ranks_text(ranks: Collection[int]) -> str:
    """ "rank 3", or "ranks 0-2, 5"."""
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and spans[-1][1] == rank - 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    text = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
    return ("rank " if len(ranks) == 1 else "ranks ") + text
