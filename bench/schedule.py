"""Order of the measurements: contenders alternate, and their order rotates. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.rows import Contender, Group, Row


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One measurement to make, with its round from 0."""

    row: Row
    contender: Contender
    round: int


def choose(
    rows: Sequence[Row], names: Sequence[str], group: Group | None = None
) -> tuple[Row, ...]:
    """Return the rows with these names in their own order, all rows without names; of one group if
    `group` is given.

    Raises:
        ValueError: No row has one of the names.
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


def planned_runs(
    rows: Sequence[Row], rounds: int, absent: frozenset[str] = frozenset()
) -> Iterator[PlannedRun]:
    """Yield every contender not in `absent` once per round, row by row, up to its `max_runs`; the
    first contender changes from round to round.
    """
    for row in rows:
        present = [contender for contender in row.contenders if contender.name not in absent]
        for number in range(rounds * row.runs_per_round):
            for offset in range(len(present)):
                contender = present[(number + offset) % len(present)]
                if contender.max_runs is None or number < contender.max_runs:
                    yield PlannedRun(row=row, contender=contender, round=number)
