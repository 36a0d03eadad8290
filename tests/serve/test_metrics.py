"""`serve.metrics`: the classes of `util.metrics`, reported by the replica itself."""

from syncline.core import metrics as core_metrics
from syncline.serve import metrics
from syncline.util import metrics as util_metrics


class Published:
    """An engine that must not be asked."""

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"the publisher used the engine: {name}")


def test_metrics_that_a_replica_reports_are_not_published_twice() -> None:
    assert metrics.Counter is util_metrics.Counter
    metrics.Counter("reported_by_the_replica").inc(2)
    try:
        (found,) = [each for each in metrics.collect() if each.name == "reported_by_the_replica"]
        assert dict(found.series) == {(): 2.0}
        core_metrics.publisher.publish(Published())
    finally:
        core_metrics.publisher.reset()
