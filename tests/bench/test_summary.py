"""Medians, ratios and verdicts of the benchmarks."""

from collections.abc import Mapping

import pytest

from bench.rows import OURS, RAY, Contender, Metric, Row, Target
from bench.summary import (
    Measurement,
    compare,
    compare_all,
    median,
    ratio,
    samples,
    span,
    target_text,
    verdict,
)


def metric(better: str = "less", target: Target | None = None) -> Metric:
    return Metric(key="value", label="a label", unit="ms", better=better, target=target)


def row(*names: str, metrics: tuple[Metric, ...] = (metric(),)) -> Row:
    return Row(
        name="row",
        contenders=tuple(Contender(name=name, module="m", argument="a") for name in names),
        metrics=metrics,
    )


def measured(
    contender: str,
    number: int,
    values: Mapping[str, float],
    failure: str | None = None,
    name: str = "row",
) -> Measurement:
    return Measurement(
        row=name,
        contender=contender,
        round=number,
        values=values,
        duration_s=1.0,
        load_before=0.0,
        failure=failure,
    )


def test_samples_exclude_failures_and_other_rows_contenders_and_metrics() -> None:
    measurements = [
        measured(OURS, 0, {"value": 3.0}),
        measured(OURS, 1, {"value": 99.0}, failure="exit code 1"),
        measured(OURS, 2, {"other": 98.0}),
        measured(RAY, 0, {"value": 97.0}),
        measured(OURS, 0, {"value": 96.0}, name="another row"),
        measured(OURS, 3, {"value": 1.0}),
    ]
    assert samples(measurements, "row", OURS, "value") == [3.0, 1.0]


def test_median_and_span() -> None:
    assert (median([5.0, 1.0, 2.0]), span([5.0, 1.0, 2.0])) == (2.0, (1.0, 5.0))
    assert (median([]), span([])) == (None, None)


@pytest.mark.parametrize(
    ("ours", "peer", "expected"),
    [(3.0, 2.0, 1.5), (0.0, 2.0, 0.0), (None, 2.0, None), (3.0, None, None), (3.0, 0.0, None)],
)
def test_ratio_is_ours_divided_by_the_peers(
    ours: float | None, peer: float | None, expected: float | None
) -> None:
    assert ratio(ours, peer) == expected


@pytest.mark.parametrize(
    ("better", "ours", "expected"),
    [
        ("less", 10.0, "met"),
        ("less", 10.1, "missed"),
        ("more", 10.0, "met"),
        ("more", 9.9, "missed"),
    ],
)
def test_an_absolute_target_is_met_at_its_limit_and_missed_beyond(
    better: str, ours: float, expected: str
) -> None:
    assert verdict(metric(better, Target(limit=10.0)), ours, {}) == expected


@pytest.mark.parametrize(("ours", "expected"), [(2.4, "met"), (2.5, "missed")])
def test_ratio_target_multiplies_the_peers_value(ours: float, expected: str) -> None:
    assert (
        verdict(metric("less", Target(limit=1.2, peers=("torchrun",))), ours, {"torchrun": 2.0})
        == expected
    )


@pytest.mark.parametrize(("ours", "expected"), [(2.5, "met"), (2.6, "missed")])
def test_ratio_target_may_allow_a_difference(ours: float, expected: str) -> None:
    target = Target(limit=1.0, peers=("a",), plus=0.5)
    assert verdict(metric("less", target), ours, {"a": 2.0}) == expected


def test_ratio_target_with_several_peers_uses_the_best_one() -> None:
    peers = {"a": 100.0, "b": 200.0}
    assert verdict(metric("more", Target(limit=2.0, peers=("a", "b"))), 399.0, peers) == "missed"
    assert verdict(metric("more", Target(limit=2.0, peers=("a", "b"))), 400.0, peers) == "met"
    assert verdict(metric("less", Target(limit=2.0, peers=("a", "b"))), 201.0, peers) == "missed"


def test_verdict_needs_the_values_of_all_peers_of_the_target() -> None:
    target = Target(limit=2.0, peers=("a", "b"))
    assert verdict(metric("more", target), 1000.0, {"a": 1.0, "b": None}) == "not measured"
    assert verdict(metric("more", target), None, {"a": 1.0, "b": 1.0}) == "not measured"
    assert verdict(metric("more"), 1.0, {}) == "no target"


@pytest.mark.parametrize(
    ("better", "target", "expected"),
    [
        ("less", Target(limit=1.0), "<= 1 ms"),
        ("more", Target(limit=12_000), ">= 12 000 ms"),
        ("less", Target(limit=1.2, peers=("torchrun",)), "<= 1.2x torchrun"),
        ("more", Target(limit=2.0, peers=("a", "b")), ">= 2x the best of a, b"),
        ("less", Target(limit=1.0, peers=("a",), plus=0.3), "<= 1x a + 0.3 ms"),
        ("less", None, "-"),
    ],
)
def test_target_text(better: str, target: Target | None, expected: str) -> None:
    assert target_text(metric(better, target)) == expected


def test_a_line_compares_medians_over_the_rounds() -> None:
    contest = row(
        OURS, RAY, "torchrun", metrics=(metric("less", Target(limit=1.2, peers=("torchrun",))),)
    )
    measurements = [
        *(measured(OURS, number, {"value": value}) for number, value in enumerate((2.0, 9.0, 2.2))),
        *(
            measured(RAY, number, {"value": value})
            for number, value in enumerate((22.0, 22.0, 1.0))
        ),
        *(measured("torchrun", number, {"value": 2.0}) for number in range(3)),
    ]
    line = compare(contest, contest.metrics[0], measurements)
    assert (line.ours, line.ours_span, line.ray, line.ray_ratio) == (2.2, (2.0, 9.0), 22.0, 0.1)
    assert [(peer.name, peer.value, peer.ratio) for peer in line.peers] == [("torchrun", 2.0, 1.1)]
    assert line.verdict == "met"


def test_value_of_ray_may_come_from_a_program_of_syncline() -> None:
    both = Metric(
        key="calls",
        label="calls",
        unit="per s",
        better="more",
        target=Target(limit=0.9, peers=(RAY,)),
        ray_key="ray_calls",
    )
    contest = row(OURS, metrics=(both,))
    line = compare(
        contest,
        both,
        [measured(OURS, number, {"calls": 95.0, "ray_calls": 100.0}) for number in range(3)],
    )
    assert (line.ours, line.ray, line.ray_ratio, line.verdict) == (95.0, 100.0, 0.95, "met")
    assert line.peers == ()


def test_failed_peers_stay_in_the_line_and_peers_without_the_metric_do_not() -> None:
    contest = row(OURS, "failing", "silent")
    measurements = [
        measured(OURS, 0, {"value": 1.0}),
        measured("failing", 0, {}, failure="timeout after 120 s"),
        measured("silent", 0, {"other": 1.0}),
    ]
    line = compare(contest, contest.metrics[0], measurements)
    assert [(peer.name, peer.value, peer.ratio) for peer in line.peers] == [("failing", None, None)]
    assert line.ray is None


def test_every_metric_has_a_line_without_measurements() -> None:
    contest = row(OURS, RAY, metrics=(metric("less", Target(limit=1.0)), metric()))
    assert [line.verdict for line in compare_all([contest], [])] == ["not measured", "no target"]
