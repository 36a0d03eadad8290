"""Tables of the benchmarks: number formats, and alignment of the peers' cells."""

import io
from typing import get_args

import pytest
from rich.console import Console

from bench.rows import Group
from bench.summary import Line, Peer
from bench.table import TITLES, extent, factor, number, render


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "-"),
        (0.01234, "0.0123"),
        (1.234, "1.23"),
        (99.6, "99.6"),
        (123.4, "123"),
        (12_345.6, "12 346"),
        (2.0, "2"),
        (0.0, "0"),
    ],
)
def test_number(value: float | None, expected: str) -> None:
    assert number(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "-"),
        (1.0084, "1.008x"),
        (0.00041, "0.00041x"),
        (0.5, "0.500x"),
        (23.46, "23.5x"),
        (2_014.0, "2 014x"),
    ],
)
def test_factor_shows_one_percent_around_one(value: float | None, expected: str) -> None:
    assert factor(value) == expected


def test_extent() -> None:
    assert (extent((1.0, 2.5)), extent(None)) == ("1-2.5", "-")


def printed(*lines: Line) -> list[str]:
    console = Console(width=200, file=io.StringIO())
    with console.capture() as capture:
        for table in render(lines):
            console.print(table)
    return capture.get().splitlines()


def line(peers: tuple[Peer, ...], verdict: str = "met", group: Group = "machine") -> Line:
    return Line(
        row="tasks",
        group=group,
        label="task round trips",
        unit="per s",
        ours=9000.0,
        ours_span=(8000.0, 9500.0),
        ray=900.0,
        ray_ratio=10.0,
        peers=peers,
        target=">= 2x pool",
        verdict=verdict,
    )


def test_each_peer_has_a_line_with_its_value_and_ratio() -> None:
    text = printed(
        line(
            (
                Peer(name="futures", value=6000.0, span=(5000.0, 7000.0), ratio=1.5),
                Peer(name="pool", value=None, span=None, ratio=None),
            )
        )
    )
    (futures,) = [row for row in text if "futures" in row]
    cells = [cell.strip() for cell in futures.split("│")[1:-1]]
    assert cells[:6] == ["task round trips", "per s", "9 000", "8 000-9 500", "900", "10.0x"]
    assert cells[6:] == ["futures", "6 000", "5 000-7 000", "1.500x", ">= 2x pool", "met"]
    (pool,) = [row for row in text if "pool" in row and "futures" not in row]
    assert [cell.strip() for cell in pool.split("│")[7:11]] == ["pool", "-", "-", "-"]


def test_columns_are_aligned_and_missed_targets_marked() -> None:
    text = [row for row in printed(line((), "missed"), line((), "met")) if row.startswith("│")]
    assert len({tuple(place for place, sign in enumerate(row) if sign == "│") for row in text}) == 1
    assert ["missed" in row for row in text] == [True, False]


def test_every_group_has_a_title() -> None:
    assert set(TITLES) == set(get_args(Group))


def test_each_group_with_lines_has_a_table() -> None:
    assert [table.title for table in render([line(()), line((), group="cluster")])] == [
        TITLES["machine"],
        TITLES["cluster"],
    ]
    assert [table.title for table in render([line((), group="cluster")])] == [TITLES["cluster"]]
