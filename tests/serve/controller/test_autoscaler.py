"""Decisions of the autoscaler, from loads over time."""

import pytest

from syncline.serve.config import AutoscalingConfig
from syncline.serve.controller.autoscaler import Autoscaler
from syncline.serve.wire.routes import DeploymentId

ID = DeploymentId("app", "D")


class Clock:
    """An autoscaler with a load that changes over time."""

    def __init__(self, policy=None, current=None, **options):
        options = {"max_replicas": 100, **options}
        self.now = 1000.0
        config = AutoscalingConfig(**options)
        first = config.first_replicas if current is None else current
        self.scaler = Autoscaler(ID, config, policy, now=self.now, current=first)
        self.decisions = []
        self.load(0)

    def load(self, ongoing, queued=0):
        self.scaler.record(self.now, queued=queued, ongoing=ongoing)
        return self

    def run(self, seconds):
        end = self.now + seconds
        while True:
            due = self.scaler.due_at(self.now)
            if due is None or due > end:
                self.now = end
                return self
            self.now = max(self.now, due)
            replicas = [f"r{i}" for i in range(self.scaler.current)]
            decision = self.scaler.decide(self.now, replicas)
            if decision is not None:
                self.decisions.append((self.now - 1000, decision))

    @property
    def current(self):
        return self.scaler.current


def test_a_burst_is_seen_within_a_tenth_of_a_second_after_an_idle_hour():
    clock = Clock(upscale_delay_s=0).run(3600)
    clock.load(64).run(0.1)
    assert clock.current == 32


def test_one_short_request_is_not_a_load():
    clock = Clock(upscale_delay_s=0).run(60)
    clock.load(10).run(0.005)
    clock.load(0).run(5)
    assert clock.decisions == []


def test_a_load_that_was_there_before_is_averaged_over_the_look_back_period():
    clock = Clock(upscale_delay_s=0, look_back_period_s=10).load(2).run(10)
    assert clock.current == 1
    clock.load(22).run(5)
    assert clock.current == 6  # the mean of 2 and 22 is 12


def test_more_replicas_must_be_desired_for_the_whole_delay():
    clock = Clock(upscale_delay_s=5, look_back_period_s=1).run(10)
    clock.load(10).run(3.5)
    clock.load(0).run(2)
    clock.load(10).run(4.5)
    assert clock.current == 1
    clock.run(1)
    assert clock.current == 5


def test_scaling_up_takes_the_least_that_was_desired_during_the_delay():
    clock = Clock(upscale_delay_s=5, look_back_period_s=0.1).run(10)
    clock.load(6).run(2)
    clock.load(100).run(3.2)
    assert [d.after for _, d in clock.decisions] == [3]
    clock.run(3)
    assert clock.current == 50


def test_scaling_down_takes_the_most_that_was_desired_during_the_delay():
    clock = Clock(current=10, downscale_delay_s=5, look_back_period_s=0.1)
    clock.load(20).run(10)
    clock.load(2).run(2)
    clock.load(8).run(0.5)
    clock.load(2).run(2.4)
    assert clock.current == 10
    clock.run(0.4)
    assert clock.current == 4
    clock.run(5)
    assert clock.current == 1


def test_no_replica_stops_within_the_delay_after_one_started():
    clock = Clock(upscale_delay_s=0, downscale_delay_s=5, look_back_period_s=0.5).run(100)
    clock.load(10).run(0.5)
    clock.load(0).run(4)
    assert clock.current == 5
    clock.run(2)
    assert clock.current == 1


def test_queued_calls_count_once():
    clock = Clock(upscale_delay_s=0).run(10)
    clock.load(2, queued=2).run(1)
    assert clock.current == 2


def test_the_window_does_not_reach_back_before_the_deployment():
    clock = Clock(upscale_delay_s=0, look_back_period_s=600).load(6).run(0.2)
    assert clock.current == 3


def test_from_zero_a_call_starts_replicas_at_once():
    clock = Clock(min_replicas=0, upscale_delay_s=30).run(100)
    assert clock.current == 0
    clock.load(0, queued=1).run(0)
    assert clock.current == 1
    clock = Clock(min_replicas=0, upscaling_factor=3, max_replicas=2).run(100)
    clock.load(0, queued=1).run(0)
    assert clock.current == 2


def test_to_zero_only_from_one_and_after_its_own_delay():
    options = {"downscale_delay_s": 2, "downscale_to_zero_delay_s": 10, "look_back_period_s": 1}
    clock = Clock(min_replicas=0, current=3, **options).load(6).run(20)
    clock.load(0).run(5)
    assert clock.current == 1
    clock.run(20)
    assert clock.current == 0
    times = {d.after: at for at, d in clock.decisions}
    assert times[1] - 20 == pytest.approx(3, abs=0.5)
    assert times[0] - 20 == pytest.approx(11, abs=0.6)


def test_a_rare_call_keeps_the_last_replica():
    clock = Clock(min_replicas=0, current=1, downscale_delay_s=20, look_back_period_s=5)
    for _ in range(20):
        clock.load(1).run(0.05)
        clock.load(0).run(10)
    assert clock.current == 1


def test_factors_apply_to_the_step_and_then_wait_for_the_delay():
    clock = Clock(upscaling_factor=0.5, upscale_delay_s=2, look_back_period_s=0.1).run(10)
    clock.load(40).run(2.5)
    assert clock.current == 11  # 1 + (20 - 1) / 2, rounded up
    clock.run(1.5)
    assert clock.current == 11
    clock.run(1)
    assert clock.current == 16


def test_a_small_factor_does_not_keep_replicas_for_ever():
    options = {"downscaling_factor": 0.1, "downscale_delay_s": 1, "look_back_period_s": 0.1}
    clock = Clock(current=4, **options).load(8).run(5)
    clock.load(0).run(30)
    assert clock.current == 1


@pytest.mark.parametrize(("how", "expected"), [("mean", 3), ("max", 10), ("min", 1)])
def test_aggregation_functions(how, expected):
    clock = Clock(upscale_delay_s=0, look_back_period_s=10, aggregation_function=how)
    clock.load(2).run(0.1)
    scaler = clock.scaler
    for step in range(100):
        clock.load(20 if step % 5 == 0 else 2)
        clock.now += 0.1
    decision = scaler.decide(clock.now, ["r0"])
    assert (decision.after if decision else 1) == expected


def test_bounds():
    clock = Clock(min_replicas=2, max_replicas=4, upscale_delay_s=0).load(1000).run(5)
    assert clock.current == 4
    decision = clock.scaler.configure(AutoscalingConfig(max_replicas=3), None, clock.now)
    assert (decision.before, decision.after) == (4, 3)


def test_nothing_is_due_while_nothing_can_change():
    clock = Clock(look_back_period_s=5).load(2).run(10)
    clock.load(0).run(10)
    assert clock.scaler.due_at(clock.now) is None


def test_a_decision_tells_its_numbers():
    clock = Clock(upscale_delay_s=0).run(10)
    clock.load(6, queued=2).run(1)
    text = str(clock.decisions[-1][1])
    assert "-> 4 replicas" in text
    assert "load 8.0, queued 2" in text


def test_a_custom_policy_gets_the_facts_and_its_state_back():
    seen = []

    def policy(context, extra):
        seen.append(context)
        return 5 + extra, {"calls": context.policy_state.get("calls", 0) + 1}

    clock = Clock(policy=lambda c: policy(c, 1), upscale_delay_s=0, min_replicas=2)
    clock.scaler.record_stats("r0", {"gpu": 0.5})
    clock.load(4, queued=2).run(2.5)
    assert clock.current == 6
    first, last = seen[0], seen[-1]
    assert (first.app_name, first.deployment_name, first.current_num_replicas) == ("app", "D", 2)
    assert last.policy_state["calls"] >= 2
    assert last.total_num_requests == pytest.approx(6, abs=0.1)
    assert last.total_queued_requests == pytest.approx(2, abs=0.1)
    assert first.aggregated_metrics == {"gpu": {"r0": 0.5}}
    assert last.config.min_replicas == 2


def test_delays_and_bounds_apply_to_custom_policies():
    clock = Clock(policy=lambda c: (1000, {}), upscale_delay_s=3, max_replicas=7).run(2)
    assert clock.current == 1
    clock.run(3)
    assert clock.current == 7
