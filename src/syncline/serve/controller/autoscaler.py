"""The autoscaler of one deployment, which derives the number of replicas from its load. Pure.

    desired = aggregate(queued + ongoing calls over look_back_period_s) / target_ongoing_requests

- A call counts once, from the time a caller queues it until its answer, including streams.
- The window never begins before the deployment. For scaling up it also begins after idle time, so
  that a burst is seen immediately; for scaling down it does not.
- Scale up to the minimum desired during `upscale_delay_s`, down to the maximum desired during
  `downscale_delay_s`, but not earlier than this delay after the last scale-up.
- A factor applies to the step; the next step in the same direction waits for the delay again.
- From zero, a call starts replicas immediately. Scaling to zero is possible only from one replica,
  after `downscale_to_zero_delay_s`.
- With gangs, the number is rounded up to whole gangs, and "one" is one gang.

A custom policy replaces the formula of `desired`; the other rules apply to its result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from syncline.records import dataclass
from syncline.serve.autoscaling_config import AutoscalingConfig, AutoscalingContext
from syncline.serve.controller.load_window import LoadWindow, SlidingExtreme
from syncline.serve.gang_config import whole_gangs
from syncline.serve.wire.routes import DeploymentId

INTERVAL_S = 0.05
"""Seconds between decisions while there is load."""
CUSTOM_INTERVAL_S = 1.0
"""Seconds between calls of a custom policy."""
_ROUNDING = 1e-6  # a mean of exactly 2 targets gives 2 replicas despite rounding errors

Policy = Callable[[AutoscalingContext], tuple[float, Mapping[str, Any]]]


@dataclass(frozen=True, kw_only=True)
class Decision:
    """A change of the number of replicas, with its reasons."""

    before: int
    after: int
    desired: float
    """Replicas desired by the policy, before delays, factors and bounds."""
    load: float
    """Aggregated calls, queued and ongoing."""
    queued: int
    """Calls that are queued now."""
    running: int
    """Running replicas."""
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.before} -> {self.after} replicas: {self.reason} "
            f"(load {self.load:.1f}, queued {self.queued}, desired {self.desired:.2f}, "
            f"running {self.running})"
        )


class Autoscaler:
    """Samples and decisions of one deployment.

    Args:
        id: The deployment.
        config: Options of autoscaling.
        policy: A custom policy; None for the default formula.
        now: Time of creation, on the clock of all later calls.
        current: Initial number of replicas.
        gang_size: Size of a gang; the number of replicas is a multiple of it.
    """

    def __init__(
        self,
        id: DeploymentId,
        config: AutoscalingConfig,
        policy: Policy | None,
        *,
        now: float,
        current: int,
        gang_size: int = 1,
    ) -> None:
        self._id = id
        self.current = current
        """Number of replicas of the last decision."""
        self._load = LoadWindow(config.look_back_period_s, now)
        self._queued = LoadWindow(config.look_back_period_s, now)
        self._policy_state: Mapping[str, object] = {}
        self._stats: dict[str, Mapping[str, float]] = {}
        self._last_up: float | None = None
        self._last_down: float | None = None
        self._decided_at = -math.inf
        self._replicas: Sequence[str] = ()
        self.configure(config, policy, now, gang_size)

    def configure(
        self, config: AutoscalingConfig, policy: Policy | None, now: float, gang_size: int = 1
    ) -> Decision | None:
        """Apply other options. Return a decision if the current number is out of bounds."""
        self._gang_size = gang_size
        self.config = config
        self.policy = policy
        self._load.resize(config.look_back_period_s)
        self._queued.resize(config.look_back_period_s)
        self._up = SlidingExtreme(config.upscale_delay_s, largest=False, initial=self.current)
        self._down = SlidingExtreme(config.downscale_delay_s, largest=True, initial=self.current)
        to_zero_s = config.downscale_to_zero_delay_s
        self._to_zero_delay_s = config.downscale_delay_s if to_zero_s is None else to_zero_s
        self._to_zero = SlidingExtreme(self._to_zero_delay_s, largest=True, initial=self.current)
        bounded = self._bounded(self.current)
        if bounded == self.current or (self.current == 0 and config.min_replicas == 0):
            return None
        return self._change(now, bounded, self.current, "the bounds changed")

    @property
    def interval_s(self) -> float:
        """Seconds between decisions."""
        return INTERVAL_S if self.policy is None else CUSTOM_INTERVAL_S

    def record(self, now: float, *, queued: int, ongoing: int) -> None:
        """Record the calls of all callers, which are valid until the next record."""
        self._load.record(now, queued + ongoing)
        self._queued.record(now, queued)

    def record_stats(self, replica_id: str, stats: Mapping[str, float]) -> None:
        """Record the result of `record_autoscaling_stats` of a replica."""
        self._stats[replica_id] = stats

    def due_at(self, now: float) -> float | None:
        """Return the time of the next decision; None while only a new load can change it."""
        if self.policy is None and self.current == self._bounded(0) and self._load.is_idle(now):
            return None
        if self.current == 0 and self.policy is None:
            return None if self._load.value == 0 else now
        return max(now, self._decided_at + self.interval_s, self._load.settled_at())

    def context(self, now: float, replicas: Sequence[str]) -> AutoscalingContext:
        """Return the context for a custom policy; `replicas` are the running ones."""
        config, how = self.config, self.config.aggregation_function
        for gone in set(self._stats).difference(replicas):
            del self._stats[gone]
        names = sorted({name for stats in self._stats.values() for name in stats})
        return AutoscalingContext(
            deployment_id=self._id,
            deployment_name=self._id.name,
            app_name=self._id.app,
            current_num_replicas=len(replicas),
            target_num_replicas=self.current,
            running_replicas=list(replicas),
            total_num_requests=self._load.aggregate(now, how),
            total_queued_requests=self._queued.aggregate(now, how),
            aggregated_metrics={
                name: {id: stats[name] for id, stats in self._stats.items() if name in stats}
                for name in names
            },
            raw_metrics={
                name: {id: [stats[name]] for id, stats in self._stats.items() if name in stats}
                for name in names
            },
            capacity_adjusted_min_replicas=config.min_replicas,
            capacity_adjusted_max_replicas=config.max_replicas,
            policy_state=dict(self._policy_state),
            last_scale_up_time=self._last_up,
            last_scale_down_time=self._last_down,
            current_time=now,
            config=config,
        )

    def decide(self, now: float, replicas: Sequence[str]) -> Decision | None:
        """Return a change of the number of replicas, if one is due.

        Raises the errors of a custom policy.
        """
        self._decided_at = now
        if self.current == 0 and self._load.value > 0:
            return self._decide_from_zero(now, len(replicas))
        if now < self._load.settled_at():
            return None
        if self.policy is not None:
            desired, state = self.policy(self.context(now, replicas))
            return self.decide_by(now, desired, state, len(replicas))
        how, target = self.config.aggregation_function, self.config.target_ongoing_requests
        up = self._load.aggregate(now, how, since_idle=True) / target
        down = self._load.aggregate(now, how) / target
        return self._decide(now, up, down, len(replicas))

    def decide_by(
        self, now: float, desired: float, state: Mapping[str, object] | None, running: int
    ) -> Decision | None:
        """Return the change that follows from the result of a custom policy."""
        if state is not None:
            self._policy_state = dict(state)
        if self.current == 0 and desired > 0:
            count = self._bounded(_ceil(desired))
            return self._change(now, count, desired, "the policy wants replicas", running)
        return self._decide(now, desired, desired, running)

    def _decide_from_zero(self, now: float, running: int) -> Decision | None:
        count = max(1, math.ceil(self.config.upscaling_factor or 1.0))
        desired = self._load.value / self.config.target_ongoing_requests
        return self._change(now, self._bounded(count), desired, "calls wait and none runs", running)

    def _decide(self, now: float, up: float, down: float, running: int) -> Decision | None:
        """Apply delays, factors and bounds."""
        self._up.record(now, up)
        self._down.record(now, down)
        self._to_zero.record(now, down)
        return self._scale_up(now, up, running) or self._scale_down(now, down, running)

    def _scale_up(self, now: float, desired: float, running: int) -> Decision | None:
        delay_s = self.config.upscale_delay_s
        if self.config.upscaling_factor is not None and _within(self._last_up, now, delay_s):
            return None
        count = self._bounded(self._step(self._up.over(now)))
        if count <= self.current:
            return None
        return self._change(now, count, desired, f"desired for {delay_s:g} s", running)

    def _scale_down(self, now: float, desired: float, running: int) -> Decision | None:
        if 0 < self.current <= self._gang_size:
            delay_s, count = self._to_zero_delay_s, _ceil(self._to_zero.over(now))
        else:
            delay_s = self.config.downscale_delay_s
            count = max(1, self._step(self._down.over(now)))
        if _within(self._last_up, now, delay_s):
            return None
        if self.config.downscaling_factor is not None and _within(self._last_down, now, delay_s):
            return None
        count = self._bounded(count)
        if count >= self.current:
            return None
        return self._change(now, count, desired, f"more was not desired for {delay_s:g} s", running)

    def _step(self, desired: float) -> int:
        """Return the number of replicas after one step towards `desired`."""
        current, delta = self.current, desired - self.current
        factor = self.config.upscaling_factor if delta > 0 else self.config.downscaling_factor
        stepped = _ceil(current + delta * (1.0 if factor is None else factor))
        size = self._gang_size
        if whole_gangs(stepped, size) == current and whole_gangs(_ceil(desired), size) < current:
            stepped = current - size  # a small factor must not keep too many replicas forever
        return stepped

    def _bounded(self, count: int) -> int:
        """Return the nearest number of replicas within the bounds, in whole gangs."""
        size = self._gang_size
        least = whole_gangs(self.config.min_replicas, size)
        most = self.config.max_replicas // size * size
        return max(least, min(most, whole_gangs(count, size)))

    def _change(
        self, now: float, count: int, desired: float, reason: str, running: int = 0
    ) -> Decision | None:
        before, self.current = self.current, count
        if count == before:
            return None
        if count > before:
            self._last_up = now
        else:
            self._last_down = now
        return Decision(
            before=before,
            after=count,
            desired=desired,
            load=self._load.value,
            queued=int(self._queued.value),
            running=running,
            reason=reason,
        )


def _within(since: float | None, now: float, delay_s: float) -> bool:
    return since is not None and now - since < delay_s


def _ceil(value: float) -> int:
    return math.ceil(value - _ROUNDING)
