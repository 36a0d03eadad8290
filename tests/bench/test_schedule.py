"""The order of measurements: contenders alternate."""

from dataclasses import replace

import pytest

from bench.rows import OURS, RAY, ROWS, Contender, Group, Metric, Row
from bench.schedule import choose, planned_runs


def row(name: str, *contenders: str, runs_per_round: int = 1, group: Group = "machine") -> Row:
    return Row(
        name=name,
        group=group,
        contenders=tuple(
            Contender(name=contender, module="m", argument="a") for contender in contenders
        ),
        metrics=(Metric(key="value", label="", unit="", better="less"),),
        runs_per_round=runs_per_round,
    )


def test_contenders_alternate_and_the_first_one_rotates() -> None:
    order = [
        (planned.row.name, planned.round, planned.contender.name)
        for planned in planned_runs([row("a", "x", "y"), row("b", "z")], 3)
    ]
    assert order == [
        ("a", 0, "x"), ("a", 0, "y"), ("a", 1, "y"), ("a", 1, "x"), ("a", 2, "x"), ("a", 2, "y"),
        ("b", 0, "z"), ("b", 1, "z"), ("b", 2, "z"),
    ]  # fmt: skip


def test_noisy_row_has_several_runs_per_round() -> None:
    assert [
        planned.round for planned in planned_runs([row("a", "x", runs_per_round=3)], 2)
    ] == list(range(6))


def test_a_slow_contender_is_measured_up_to_its_maximum() -> None:
    slow = Contender(name="slow", module="m", argument="a", max_runs=1)
    contest = replace(row("a", "x"), contenders=(*row("a", "x").contenders, slow))
    assert [planned.contender.name for planned in planned_runs([contest], 3)] == [
        "x", "slow", "x", "x",
    ]  # fmt: skip


def test_absent_contenders_do_not_run() -> None:
    assert {
        planned.contender.name
        for planned in planned_runs([row("a", OURS, RAY, "x")], 2, frozenset({RAY}))
    } == {OURS, "x"}


def test_rows_are_chosen_by_name_in_their_own_order() -> None:
    rows = [row("a"), row("b"), row("c")]
    assert [chosen.name for chosen in choose(rows, ["c", "a"])] == ["a", "c"]
    assert len(choose(rows, [])) == 3


def test_rows_are_chosen_by_group() -> None:
    rows = [row("a"), row("b", group="cluster"), row("c", group="cluster")]
    assert [chosen.name for chosen in choose(rows, [], "cluster")] == ["b", "c"]
    assert [chosen.name for chosen in choose(rows, ["a", "c"], "cluster")] == ["c"]


def test_error_lists_the_unknown_row_and_the_known_ones() -> None:
    with pytest.raises(ValueError, match="'startpu'.*choose from a, b"):
        choose([row("a"), row("b")], ["startpu"])


def test_targets_name_contenders_of_their_row() -> None:
    for contest in ROWS:
        names = {contender.name for contender in contest.contenders}
        assert OURS in names
        for metric in contest.metrics:
            measured = names | ({RAY} if metric.ray_key else set())
            assert metric.target is None or set(metric.target.peers) <= measured


def test_names_of_rows_differ() -> None:
    assert len({contest.name for contest in ROWS}) == len(ROWS)
