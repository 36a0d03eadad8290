"""Hooks of the user's class that report statistics."""

import numpy as np
import pytest

from syncline.serve.controller.messages import AutoscalingStats, RoutingStats
from syncline.serve.replica.user_statistics import plain
from tests.serve.replica.harness import run, staged


class Counted:
    def __init__(self):
        self.calls = 0

    async def record_routing_stats(self):
        self.calls += 1
        if self.calls == 2:
            raise OSError("no counter")
        return {"calls": self.calls // 4}

    def record_autoscaling_stats(self):
        return {"load": np.float32(0.5)}


def test_results_are_sent_when_they_change_and_errors_change_nothing(tmp_path):
    async def scenario():
        options = {"routing_stats_period_s": 0.01}
        async with staged(tmp_path, Counted, options=options) as stage:
            seen = {}  # in their order; the first may come twice, before and after the connection
            while len(seen) < 4:
                message = await stage.controller.next()
                if isinstance(message, (RoutingStats, AutoscalingStats)):
                    assert message.replica_id == stage.config.replica_id
                    key = (type(message), *message.stats.items())
                    seen[key] = None
            assert (AutoscalingStats, ("load", 0.5)) in seen
            calls = [fact[1] for kind, fact in seen if kind is RoutingStats]
            assert calls == [0, 1, 2]

    run(scenario)


def test_only_json_values_are_accepted():
    assert plain("hook", {"a": np.int64(3), "b": [{"c": None}]}) == {"a": 3, "b": [{"c": None}]}
    assert plain("hook", None) is None
    with pytest.raises(TypeError, match="`hook` returned a int"):
        plain("hook", 3)
    with pytest.raises(TypeError, match="a value is a object"):
        plain("hook", {"a": object()})
