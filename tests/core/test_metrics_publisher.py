"""Metrics of several processes together; the processes themselves are in the conformance suite."""

from __future__ import annotations

from syncline.core.metrics_publisher import GAUGE_AGE_S, Published, merged
from syncline.core.metrics_text import HistogramValue, UserMetric, metrics_text

NOW = 1000.0


def process(worker_id: str, *metrics: UserMetric, time: float = NOW) -> Published:
    return Published(worker_id=worker_id, time=time, metrics=metrics)


def counter(value: float, **tags: str) -> UserMetric:
    series = ((tuple(tags.items()), value),)
    return UserMetric(name="calls", kind="counter", description="Calls", series=series)


def gauge(value: float) -> UserMetric:
    return UserMetric(name="size", kind="gauge", description="", series=(((), value),))


def histogram(*counts: int, bounds: tuple[float, ...] = (1.0,)) -> UserMetric:
    value = HistogramValue(bounds, counts, float(sum(counts)))
    return UserMetric(name="times", kind="histogram", description="", series=(((), value),))


def test_counters_are_summed_by_tags_also_of_processes_that_ended() -> None:
    (family,) = merged(
        [
            process("a", counter(1, m="x"), counter(5, m="y")),
            process("b", counter(2, m="x"), time=0),
        ],
        NOW,
    )
    assert dict(family.series) == {(("m", "x"),): 3, (("m", "y"),): 5}


def test_gauges_are_kept_apart_and_end_with_their_process() -> None:
    old = NOW - GAUGE_AGE_S - 1
    (family,) = merged([process("a", gauge(1)), process("b", gauge(2), time=old)], NOW)
    assert dict(family.series) == {(("worker_id", "a"),): 1}


def test_histograms_of_equal_bounds_are_summed() -> None:
    (family,) = merged(
        [
            process("a", histogram(1, 2)),
            process("b", histogram(3, 4)),
            process("c", histogram(1, 1, 1, bounds=(1.0, 2.0)), time=NOW + 1),
        ],
        NOW,
    )
    assert dict(family.series) == {(): HistogramValue((1.0,), (4, 6), 10.0)}


def test_of_two_kinds_of_a_name_the_first_wins() -> None:
    other = UserMetric(name="calls", kind="gauge", description="", series=(((), 7.0),))
    (family,) = merged([process("a", counter(1)), process("b", other, time=NOW + 1)], NOW)
    assert (family.kind, dict(family.series)) == ("counter", {(): 1})


def test_text_is_that_of_prometheus() -> None:
    text = metrics_text(merged([process("a", histogram(1, 2), counter(1, m='x"'))], NOW))
    assert text == (
        "# HELP calls Calls\n# TYPE calls counter\n"
        'calls{m="x\\""} 1\n'
        "# HELP times \n# TYPE times histogram\n"
        'times_bucket{le="1"} 1\ntimes_bucket{le="+Inf"} 3\ntimes_sum 3\ntimes_count 3\n'
    )
