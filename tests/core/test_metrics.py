import itertools
import threading
from typing import Any

import cloudpickle
import pytest

from syncline.core import metrics
from syncline.core.metrics import Counter, Gauge, Histogram
from syncline.core.metrics_text import HistogramValue

_names = itertools.count()
WRONG: Any = 1


@pytest.fixture
def name():
    return f"metric_{next(_names)}"


def series(name: str) -> dict:
    return dict(next(each.series for each in metrics.collect() if each.name == name))


def test_counter_adds_by_tags(name):
    counter = Counter(name, "Requests", tag_keys=("model",))
    counter.inc(tags={"model": "a"})
    counter.inc(2, tags={"model": "a"})
    counter.set_default_tags({"model": "b"}).inc(0.5)
    assert series(name) == {(("model", "a"),): 3.0, (("model", "b"),): 0.5}


def test_gauge_keeps_the_last_value(name):
    gauge = Gauge(name)
    gauge.set(4)
    gauge.set(-1.5)
    assert series(name) == {(): -1.5}


def test_histogram_counts_up_to_its_bounds(name):
    histogram = Histogram(name, boundaries=[1, 10])
    for value in (0.5, 1, 1.1, 10, 11):
        histogram.observe(value)
    assert series(name) == {(): HistogramValue((1.0, 10.0), (2, 2, 1), 23.6)}


def test_metrics_of_one_name_are_one_metric(name):
    Counter(name).inc()
    Counter(name).inc()
    assert series(name) == {(): 2.0}
    with pytest.raises(ValueError, match="is a counter already"):
        Gauge(name)


def test_metric_without_values_is_not_reported(name):
    Counter(name)
    assert name not in [each.name for each in metrics.collect()]


def test_pickled_metric_counts_where_it_arrives(name):
    counter = Counter(name, tag_keys=("a",)).set_default_tags({"a": "1"})
    cloudpickle.loads(cloudpickle.dumps(counter)).inc()
    other = cloudpickle.loads(cloudpickle.dumps(Histogram(f"{name}_h", boundaries=[1])))
    other.observe(2)
    assert series(name) == {(("a", "1"),): 1.0}
    assert series(f"{name}_h")[()].counts == (0, 1)


def test_threads_lose_no_counts(name):
    counter = Counter(name)
    threads = [
        threading.Thread(target=lambda: [counter.inc() for _ in range(2_000)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert series(name) == {(): 8_000.0}


def test_series_of_a_metric_are_limited(name, monkeypatch):
    monkeypatch.setattr(metrics, "MOST_SERIES", 3)
    counter = Counter(name, tag_keys=("id",))
    for id in "abcda":
        counter.inc(tags={"id": id})
    assert [tags[0][1] for tags in series(name)] == ["a", "b", "c"]
    assert series(name)[(("id", "a"),)] == 2.0


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (lambda: Counter(3), TypeError, "name"),
        (lambda: Counter("a b"), ValueError, "letters"),
        (lambda: Counter("tags_1", tag_keys="ab"), TypeError, "tag_keys"),
        (lambda: Counter("tags_2", tag_keys=(1,)), TypeError, "tag_keys"),
        (lambda: Counter("tags_3", tag_keys=("a-b",)), ValueError, "a-b"),
        (lambda: Counter("inc_1").inc(0), ValueError, "more than 0"),
        (lambda: Counter("inc_2").inc(-1), ValueError, "more than 0"),
        (lambda: Counter("inc_3").inc("1"), TypeError, "a number"),
        (lambda: Counter("inc_4").inc(tags={"a": "b"}), ValueError, "no tag 'a'"),
        (lambda: Counter("inc_5", tag_keys=("a",)).inc(), ValueError, "needs values"),
        (lambda: Counter("inc_6", tag_keys=("a",)).inc(tags={"a": WRONG}), TypeError, "string"),
        (lambda: Histogram("bounds_1"), ValueError, "boundaries"),
        (lambda: Histogram("bounds_2", boundaries=[2, 1]), ValueError, "ascending"),
        (lambda: Histogram("bounds_3", boundaries=[0]), ValueError, "above 0"),
    ],
)
def test_wrong_use_is_refused(use, error, message):
    with pytest.raises(error, match=message):
        use()
