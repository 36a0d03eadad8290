"""Options of autoscaling, and the inputs of custom policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import Enum
from functools import cached_property
from typing import Any

from syncline.records import dataclass
from syncline.serve import option_values as check
from syncline.serve.wire.routes import DeploymentId
from syncline.suggestions import suggest_arguments

DEFAULT_POLICY = "syncline.serve.autoscaling_policy:default_autoscaling_policy"
_DEFAULT_POLICIES = (
    DEFAULT_POLICY,
    "ray.serve.autoscaling_policy:default_autoscaling_policy",
    "ray.serve.autoscaling_policy.default_autoscaling_policy",
)

Metrics = Mapping[str, Mapping[str, Any]]
"""Values by name and replica id."""


class AggregationFunction(str, Enum):
    """Aggregation of the samples of the look-back period."""

    MEAN = "mean"
    MAX = "max"
    MIN = "min"


class AutoscalingContext:
    """State of a deployment, from which a custom policy computes the number of replicas.

    Request counts and metrics may be passed as functions, which are called on first use.
    """

    def __init__(
        self,
        deployment_id: DeploymentId,
        deployment_name: str,
        app_name: str | None,
        current_num_replicas: int,
        target_num_replicas: int,
        running_replicas: Sequence[str],
        total_num_requests: float | Callable[[], float],
        total_queued_requests: float | Callable[[], float] | None,
        aggregated_metrics: Metrics | Callable[[], Metrics] | None,
        raw_metrics: Metrics | Callable[[], Metrics] | None,
        capacity_adjusted_min_replicas: int,
        capacity_adjusted_max_replicas: int,
        policy_state: dict[str, Any],
        last_scale_up_time: float | None,
        last_scale_down_time: float | None,
        current_time: float | None,
        config: AutoscalingConfig | None,
    ) -> None:
        """See the attributes."""
        self.deployment_id = deployment_id
        self.deployment_name = deployment_name
        self.app_name = app_name
        self.current_num_replicas = current_num_replicas
        """Number of running replicas."""
        self.target_num_replicas = target_num_replicas
        """Number of replicas of the last decision."""
        self.running_replicas = running_replicas
        """Ids of the running replicas."""
        self.capacity_adjusted_min_replicas = capacity_adjusted_min_replicas
        """`min_replicas`, scaled by the target capacity."""
        self.capacity_adjusted_max_replicas = capacity_adjusted_max_replicas
        """`max_replicas`, scaled by the target capacity."""
        self.policy_state = policy_state
        """State that the policy returned at its last call; empty at first."""
        self.last_scale_up_time = last_scale_up_time
        self.last_scale_down_time = last_scale_down_time
        self.current_time = current_time
        self.config = config
        self._total_num_requests = total_num_requests
        self._total_queued_requests = total_queued_requests
        self._aggregated_metrics = aggregated_metrics
        self._raw_metrics = raw_metrics

    @cached_property
    def total_num_requests(self) -> float:
        """Running and queued requests, aggregated over the look-back period."""
        value = self._total_num_requests
        return value() if callable(value) else value

    @cached_property
    def total_queued_requests(self) -> float:
        """Queued requests, aggregated over the look-back period."""
        value = self._total_queued_requests
        return (value() if callable(value) else value) or 0.0

    @property
    def total_running_requests(self) -> float:
        """Running requests, aggregated over the look-back period."""
        return max(0.0, self.total_num_requests - self.total_queued_requests)

    @cached_property
    def aggregated_metrics(self) -> Metrics | None:
        """Results of `record_autoscaling_stats` by name and replica id."""
        value = self._aggregated_metrics
        return value() if callable(value) else value

    @cached_property
    def raw_metrics(self) -> Metrics | None:
        """Samples of `record_autoscaling_stats` by name and replica id."""
        value = self._raw_metrics
        return value() if callable(value) else value


@suggest_arguments
@dataclass(frozen=True, kw_only=True)
class AutoscalingPolicy:
    """A function that computes the number of replicas."""

    policy_function: str | Callable[..., object] = DEFAULT_POLICY
    """`f(AutoscalingContext) -> (replicas, state)`, or its import path "module:name"."""
    policy_kwargs: Mapping[str, object] = field(default_factory=dict)
    """Other keyword arguments of the function."""

    def __post_init__(self) -> None:
        if isinstance(self.policy_function, str):
            check.text("policy_function", self.policy_function, empty=False)
        elif not callable(self.policy_function):
            raise check.wrong_type(
                "policy_function", self.policy_function, "a function or its import path"
            )
        object.__setattr__(
            self, "policy_kwargs", check.mapping("policy_kwargs", self.policy_kwargs)
        )
        check.jsonable("policy_kwargs", self.policy_kwargs)

    @property
    def is_default(self) -> bool:
        """True if no custom function is set."""
        return self.policy_function in _DEFAULT_POLICIES

    def load(self) -> Callable[..., Any]:
        """Return the function; raise ImportError or AttributeError for a wrong import path."""
        if isinstance(self.policy_function, str):
            function: Callable[..., object] = check.imported(self.policy_function)
            return function
        return self.policy_function


@suggest_arguments
@dataclass(frozen=True, kw_only=True)
class AutoscalingConfig:
    """Bounds, target and delays of autoscaling."""

    min_replicas: int = 1
    """Minimum number of replicas; 0: none while there are no requests."""
    initial_replicas: int | None = None
    """Initial number of replicas; None: `min_replicas`."""
    max_replicas: int = 1
    """Maximum number of replicas."""
    target_ongoing_requests: float = 2
    """Target number of running and queued requests per replica."""
    metrics_interval_s: float = 10.0
    """Deprecated and ignored: counts are sent when they change."""
    look_back_period_s: float = 30.0
    """Seconds over which requests are aggregated."""
    upscale_delay_s: float = 30.0
    """Seconds for which more replicas must be desired before they start."""
    downscale_delay_s: float = 600.0
    """Seconds for which fewer replicas must be desired before some stop."""
    downscale_to_zero_delay_s: float | None = None
    """Seconds before the last replica stops; None: `downscale_delay_s`."""
    upscaling_factor: float | None = None
    """Factor of an increase; None: 1."""
    downscaling_factor: float | None = None
    """Factor of a decrease; None: 1."""
    aggregation_function: AggregationFunction = AggregationFunction.MEAN
    """Aggregation over the look-back period: "mean", "max" or "min"."""
    policy: AutoscalingPolicy = field(default_factory=AutoscalingPolicy)
    """A custom policy; the default one compares requests with `target_ongoing_requests`."""

    def __post_init__(self) -> None:
        check.integer("min_replicas", self.min_replicas, least=0)
        check.integer("initial_replicas", self.initial_replicas, least=0, optional=True)
        check.integer("max_replicas", self.max_replicas, least=1)
        target: object = self.target_ongoing_requests
        if target is None:  # as in Ray
            object.__setattr__(self, "target_ongoing_requests", 2)
        for name in ("target_ongoing_requests", "metrics_interval_s", "look_back_period_s"):
            check.number(name, getattr(self, name), above=0)
        for name in ("upscale_delay_s", "downscale_delay_s"):
            check.number(name, getattr(self, name), least=0)
        check.number(
            "downscale_to_zero_delay_s", self.downscale_to_zero_delay_s, least=0, optional=True
        )
        for name in ("upscaling_factor", "downscaling_factor"):
            check.number(name, getattr(self, name), above=0, optional=True)
        function = check.member(
            "aggregation_function", self.aggregation_function, AggregationFunction
        )
        object.__setattr__(self, "aggregation_function", function)
        policy: object = self.policy
        if callable(policy) or isinstance(policy, str):
            policy = {"policy_function": policy}
        object.__setattr__(self, "policy", check.options(AutoscalingPolicy, policy, "policy"))
        self._check_bounds()

    def _check_bounds(self) -> None:
        low, high, initial = self.min_replicas, self.max_replicas, self.initial_replicas
        if low > high:
            raise ValueError(
                f"`min_replicas={low}` is more than `max_replicas={high}`: raise `max_replicas`"
            )
        if initial is not None and not low <= initial <= high:
            raise ValueError(
                f"`initial_replicas={initial}` is outside of `min_replicas={low}` to "
                f"`max_replicas={high}`: give a number between them"
            )

    @property
    def first_replicas(self) -> int:
        """Number of replicas of a new deployment."""
        return self.min_replicas if self.initial_replicas is None else self.initial_replicas
