"""The order of the measurements: contenders alternate, and no contender always runs after the same
other one. Pure.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.rows import Contender, Group, Row


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One measurement to make: this contender of this row in this round (from 0; a row may have
    several in one round of the others).
    """

    row: Row
    contender: Contender
    round: int


def choose(
    rows: Sequence[Row], names: Sequence[str], group: Group | None = None
) -> tuple[Row, ...]:
    """The rows named, in their own order; all of them if no name is given; of one group if that is
    given.

    Raises ValueError on a name that no row has.
    """
    known = [row.name for row in rows]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(
            f"no row is named {', '.join(map(repr, unknown))}: choose from {', '.join(known)}"
        )
    return tuple(
        row for row in rows if (not names or row.name in names) and group in (None, row.group)
    )


def turns(rows: Sequence[Row], rounds: int, absent: frozenset[str] = frozenset()) -> Iterator[Turn]:
    """Row by row, round by round, every contender that is not `absent` once; each round begins with
    the next contender.
    """
    for row in rows:
        present = [contender for contender in row.contenders if contender.name not in absent]
        for number in range(rounds * row.turns_per_round):
            for place in range(len(present)):
                yield Turn(
                    row=row, contender=present[(number + place) % len(present)], round=number
                )
