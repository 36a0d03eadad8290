"""Options of deployments: `DeploymentConfig` and the classes of its options.

Every class checks its fields on creation, and every option that takes one of these classes also
takes a dict of its fields. Defined elsewhere, but exported here: options of autoscaling
(`autoscaling_config.py`), gangs (`gang_config.py`), logs (`logging_config.py`) and proxies
(`proxy_options.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields, replace
from typing import Any

from syncline.core.option_checks import bundle_labels
from syncline.core.options import ActorOptions, updated
from syncline.core.placement import check_bundles
from syncline.core.remote import ActorClass
from syncline.records import dataclass
from syncline.serve import option_values as check
from syncline.serve.autoscaling_config import (
    AggregationFunction,
    AutoscalingConfig,
    AutoscalingContext,
    AutoscalingPolicy,
)
from syncline.serve.gang_config import (
    AUTO_MAX_REPLICAS,
    GangPlacementStrategy,
    GangRuntimeFailurePolicy,
    GangSchedulingConfig,
    whole_gangs,
)
from syncline.serve.logging_config import LoggingConfig, TracingConfig
from syncline.serve.proxy_options import ControllerOptions, HTTPOptions, ProxyLocation, gRPCOptions
from syncline.suggestions import did_you_mean, suggest_arguments, unknown_argument

__all__ = [
    "AggregationFunction",
    "AutoscalingConfig",
    "AutoscalingContext",
    "AutoscalingPolicy",
    "BackpressureConfig",
    "ControllerOptions",
    "DeploymentActorConfig",
    "DeploymentConfig",
    "GangPlacementStrategy",
    "GangRuntimeFailurePolicy",
    "GangSchedulingConfig",
    "HTTPOptions",
    "LoggingConfig",
    "ProxyLocation",
    "RequestRouterConfig",
    "TracingConfig",
    "gRPCOptions",
]

MOST_REPLICAS_PER_NODE = 100
DEFAULT_REQUEST_ROUTER = "syncline.serve.request_router:PowerOfTwoChoicesRequestRouter"
_DEFAULT_ROUTERS = (
    DEFAULT_REQUEST_ROUTER,
    "ray.serve._private.request_router:PowerOfTwoChoicesRequestRouter",
)
_ACTOR_IDENTITY = ("name", "namespace", "lifetime", "get_if_exists")
"""Options of deployment actors that are reserved for serve."""
_REPLICA_OPTIONS = (
    "accelerator_type",
    "fallback_strategy",
    "label_selector",
    "memory",
    "num_cpus",
    "num_gpus",
    "resources",
    "runtime_env",
)


@suggest_arguments
@dataclass(frozen=True, kw_only=True)
class BackpressureConfig:
    """HTTP response to requests that are refused because the queue is full."""

    status_code: int = 503
    """Status: 503 or 429."""
    retry_after_s: float | None = None
    """Seconds for the Retry-After header; None: no header."""

    def __post_init__(self) -> None:
        check.choice("status_code", self.status_code, (503, 429))
        check.number("retry_after_s", self.retry_after_s, least=0, optional=True)


@suggest_arguments
@dataclass(frozen=True, kw_only=True)
class RequestRouterConfig:
    """The class that chooses a replica for each request, and its options."""

    request_router_class: str | Callable[..., object] = DEFAULT_REQUEST_ROUTER
    """A subclass of `RequestRouter`, or its import path."""
    request_router_kwargs: Mapping[str, object] = field(default_factory=dict)
    """Keyword arguments of its `initialize_state`."""
    request_routing_stats_period_s: float = 10.0
    """Seconds between calls of `record_routing_stats` of a replica."""
    request_routing_stats_timeout_s: float = 30.0
    """Seconds until such a call counts as failed."""
    initial_backoff_s: float = 0.025
    """Initial delay before a custom router that chose no replica is called again.

    It is also called on every change, but never while all replicas are full.
    """
    backoff_multiplier: float = 2
    """Factor between consecutive delays."""
    max_backoff_s: float = 0.5
    """Maximum delay."""

    def __post_init__(self) -> None:
        router = self.request_router_class
        if not isinstance(router, str) and not callable(router):
            raise check.wrong_type("request_router_class", router, "a class or its import path")
        name = "request_router_kwargs"
        object.__setattr__(self, name, check.mapping(name, self.request_router_kwargs))
        check.jsonable(name, self.request_router_kwargs)
        for name in (
            "request_routing_stats_period_s",
            "request_routing_stats_timeout_s",
            "initial_backoff_s",
            "backoff_multiplier",
            "max_backoff_s",
        ):
            check.number(name, getattr(self, name), above=0)

    @property
    def is_default(self) -> bool:
        """True if no custom class is set."""
        return self.request_router_class in _DEFAULT_ROUTERS

    def load(self) -> Any:
        """Return the class; raise ImportError or AttributeError for a wrong import path."""
        router = self.request_router_class
        return check.imported(router) if isinstance(router, str) else router


@suggest_arguments
@dataclass(frozen=True, kw_only=True)
class DeploymentActorConfig:
    """An actor that all replicas of a deployment share; see `get_deployment_actor`."""

    name: str
    """Name within the deployment."""
    actor_class: Any
    """A class decorated with `remote`, or its import path "module:name".

    In a target of the controller: the pickled tuple (class, init_args, init_kwargs).
    """
    init_args: tuple[object, ...] = ()
    """Positional arguments of its constructor."""
    init_kwargs: Mapping[str, object] = field(default_factory=dict)
    """Keyword arguments of its constructor."""
    actor_options: Mapping[str, object] = field(default_factory=dict)
    """Options of the actor, such as `num_cpus`."""

    def __post_init__(self) -> None:
        check.text("name", self.name, empty=False)
        if not isinstance(self.actor_class, (str, bytes, type, ActorClass)):
            raise check.wrong_type(
                "actor_class", self.actor_class, "a class decorated with `remote`, or its path"
            )
        if not isinstance(self.init_args, (list, tuple)):
            raise check.wrong_type("init_args", self.init_args, "a list of arguments")
        object.__setattr__(self, "init_args", tuple(self.init_args))
        object.__setattr__(self, "init_kwargs", check.mapping("init_kwargs", self.init_kwargs))
        options = check.mapping("actor_options", self.actor_options)
        for name in _ACTOR_IDENTITY:
            if name in options:
                raise ValueError(
                    f"`actor_options` of deployment actor {self.name!r} has {name!r}, which serve "
                    "sets itself: remove it"
                )
        updated(ActorOptions(), options)
        object.__setattr__(self, "actor_options", options)

    def load(self) -> Any:
        """Return the class; raise ImportError or AttributeError for a wrong import path."""
        actor_class = self.actor_class
        return check.imported(actor_class) if isinstance(actor_class, str) else actor_class


@dataclass(frozen=True, kw_only=True)
class DeploymentConfig:
    """Options of a deployment; see `with_options` for the forms that programs may pass."""

    num_replicas: int = 1
    """Number of replicas; without effect if `autoscaling_config` is set."""
    ray_actor_options: Mapping[str, Any] = field(default_factory=dict)
    """Resources and environment of each replica; one CPU by default."""
    placement_group_bundles: tuple[Mapping[str, float], ...] | None = None
    """Bundles that each replica reserves; it runs in the first one."""
    placement_group_strategy: str | None = None
    """Placement of the bundles; None: "PACK"."""
    placement_group_bundle_label_selector: tuple[Mapping[str, str], ...] | None = None
    """Labels that the node of each bundle must have; one item is for all bundles."""
    max_replicas_per_node: int | None = None
    """Maximum number of replicas on one node."""
    user_config: Any = None
    """Argument of `reconfigure`; a JSON value."""
    max_ongoing_requests: int = 5
    """Maximum number of concurrent requests per replica."""
    max_queued_requests: int = -1
    """Maximum number of queued requests per caller before more are refused; -1: no limit."""
    backpressure_config: BackpressureConfig = field(default_factory=BackpressureConfig)
    """HTTP response to refused requests."""
    autoscaling_config: AutoscalingConfig | None = None
    """Options of autoscaling; None: a fixed number of replicas."""
    graceful_shutdown_wait_loop_s: float = 2.0
    """Accepted as in Ray: a replica without requests stops immediately."""
    graceful_shutdown_timeout_s: float = 20.0
    """Seconds for a stopping replica to finish its requests before it is killed."""
    health_check_period_s: float = 10.0
    """Seconds between calls of `check_health`."""
    health_check_timeout_s: float = 30.0
    """Seconds until such a call counts as failed."""
    logging_config: LoggingConfig | None = None
    """Logging options; None: those of the application."""
    request_router_config: RequestRouterConfig = field(default_factory=RequestRouterConfig)
    """Choice of the replica for each request."""
    max_constructor_retry_count: int = 20
    """Attempts to start all replicas, at most three per replica, before the deployment fails."""
    rolling_update_percentage: float = 0.2
    """Fraction of the replicas that an update replaces at a time, at least one."""
    max_surge_percent: float = 0
    """Percentage of the replicas that an update replaces at a time, if that is more."""
    gang_scheduling_config: GangSchedulingConfig | None = None
    """Groups of replicas that start and stop together; None: replicas are independent."""
    deployment_actors: tuple[DeploymentActorConfig, ...] = ()
    """Actors that all replicas share."""
    idempotent: bool = False
    """True if requests may run again after the replica that handled them died."""

    def __post_init__(self) -> None:
        self._convert()
        check.integer("num_replicas", self.num_replicas, least=1)
        check.integer("max_ongoing_requests", self.max_ongoing_requests, least=1)
        check.integer("max_queued_requests", self.max_queued_requests, least=-1)
        if self.max_queued_requests == 0:
            raise ValueError(
                "`max_queued_requests=0` would refuse every request: give 1 or more, or -1 for no "
                "limit"
            )
        check.jsonable("user_config", self.user_config)
        for name in ("graceful_shutdown_wait_loop_s", "graceful_shutdown_timeout_s"):
            check.number(name, getattr(self, name), least=0)
        for name in ("health_check_period_s", "health_check_timeout_s"):
            check.number(name, getattr(self, name), above=0)
        check.integer("max_constructor_retry_count", self.max_constructor_retry_count, least=1)
        check.number("rolling_update_percentage", self.rolling_update_percentage, above=0, most=1)
        check.number("max_surge_percent", self.max_surge_percent, least=0, most=100)
        check.integer(
            "max_replicas_per_node",
            self.max_replicas_per_node,
            least=1,
            most=MOST_REPLICAS_PER_NODE,
            optional=True,
        )
        check.boolean("idempotent", self.idempotent)
        self._check_placement()
        self._check_gangs()

    def _convert(self) -> None:
        """Convert the accepted argument forms to instances of the option classes."""
        converted: dict[str, Any] = {
            "ray_actor_options": _replica_options(self.ray_actor_options),
            "placement_group_bundles": _dicts(
                "placement_group_bundles", self.placement_group_bundles
            ),
            "placement_group_bundle_label_selector": _dicts(
                "placement_group_bundle_label_selector", self.placement_group_bundle_label_selector
            ),
        }
        for name, cls in _OPTION_CLASSES.items():
            value = getattr(self, name)
            if value is None:
                value = _DEFAULTS.get(name, lambda: None)()
            else:
                value = check.options(cls, value, name)
            converted[name] = value
        actors = self.deployment_actors or ()
        if not isinstance(actors, (list, tuple)):
            raise check.wrong_type("deployment_actors", actors, "a list")
        converted["deployment_actors"] = tuple(
            check.options(DeploymentActorConfig, actor, f"deployment_actors[{i}]")
            for i, actor in enumerate(actors)
        )
        for name, value in converted.items():
            object.__setattr__(self, name, value)
        names = [actor.name for actor in self.deployment_actors]
        for actor_name in names:
            if names.count(actor_name) > 1:
                raise ValueError(f"`deployment_actors` has two actors named {actor_name!r}")

    def _check_placement(self) -> None:
        bundles = self.placement_group_bundles
        strategy = self.placement_group_strategy
        if bundles is None:
            for name in ("placement_group_strategy", "placement_group_bundle_label_selector"):
                if getattr(self, name) is not None:
                    raise ValueError(f"`{name}` needs `placement_group_bundles`: set both")
            return
        if self.max_replicas_per_node is not None:
            raise ValueError(
                "`max_replicas_per_node` and `placement_group_bundles` are mutually exclusive: "
                "remove one of them"
            )
        check_bundles(bundles, strategy or "PACK")
        name = "placement_group_bundle_label_selector"
        selectors = self.placement_group_bundle_label_selector
        if selectors is not None:
            if len(selectors) not in (1, len(bundles)):
                raise ValueError(
                    f"`{name}` has {len(selectors)} items for {len(bundles)} bundles: give one "
                    "for all, or one for each"
                )
            bundle_labels(name, selectors, len(selectors))
        for name, amount in self.resources.items():
            reserved = bundles[0].get(name, 0)
            if amount > reserved:
                raise ValueError(
                    f"a replica needs {name}: {amount:g}, but the first of "
                    f"`placement_group_bundles`, in which it runs, has {reserved:g}: raise it, or "
                    "lower `ray_actor_options`"
                )

    def _check_gangs(self) -> None:
        gangs = self.gang_scheduling_config
        if gangs is None:
            return
        for name in ("max_replicas_per_node", "placement_group_strategy"):
            if getattr(self, name) is not None:
                raise ValueError(
                    f"`{name}` and `gang_scheduling_config` are mutually exclusive: remove one"
                )
        if self.autoscaling_config is None:
            gangs.check_replicas(self.num_replicas)
        else:
            gangs.check_bounds(self.autoscaling_config)

    @property
    def actor_options(self) -> ActorOptions:
        """Checked options of the actor of a replica."""
        return updated(ActorOptions(), self.ray_actor_options)

    @property
    def resources(self) -> dict[str, float]:
        """Resources of each replica by name, without zeros and placement group."""
        return self.actor_options.resources_needed()

    @property
    def bundle_labels(self) -> list[Mapping[str, str]]:
        """Labels of the nodes of `placement_group_bundles`, one item for each; empty: any."""
        selectors = self.placement_group_bundle_label_selector or ()
        bundles = len(self.placement_group_bundles or ())
        return list(selectors) * (bundles if len(selectors) == 1 else 1)

    @property
    def first_replicas(self) -> int:
        """Number of replicas of a new deployment."""
        if self.autoscaling_config is not None:
            return whole_gangs(self.autoscaling_config.first_replicas, self.gang_size)
        return self.num_replicas

    @property
    def gang_size(self) -> int:
        """Number of replicas that start and stop together; 1 without gangs."""
        return 1 if self.gang_scheduling_config is None else self.gang_scheduling_config.gang_size

    def with_options(self, owner: str, options: Mapping[str, Any]) -> DeploymentConfig:
        """Return the configuration updated with a program's options.

        `num_replicas` and `autoscaling_config` replace each other; `num_replicas="auto"` autoscales
        from 1 to 100 replicas. `owner` is the name of the function in errors. Raises TypeError for
        unknown names and wrong types, and ValueError for invalid values and combinations.
        """
        given = dict(options)
        for name in given:
            if name == "version":
                raise ValueError(
                    f"`version` of `{owner}` was removed: serve detects changed code itself. "
                    "Leave it out."
                )
            if name not in OPTION_NAMES:
                raise unknown_argument(f"{owner}()", name, OPTION_NAMES)
        if given.get("max_ongoing_requests", ...) is None:
            raise ValueError("`max_ongoing_requests=None` is invalid: give an integer of 1 or more")
        _settle_replicas(given)
        if given.get("user_config", ...) is not ...:
            check.jsonable("user_config", given["user_config"])
        return replace(self, **given)


OPTION_NAMES = tuple(f.name for f in fields(DeploymentConfig))
"""Names of the options of `@deployment`, except `name`."""

_OPTION_CLASSES: dict[str, type] = {
    "backpressure_config": BackpressureConfig,
    "autoscaling_config": AutoscalingConfig,
    "logging_config": LoggingConfig,
    "request_router_config": RequestRouterConfig,
    "gang_scheduling_config": GangSchedulingConfig,
}
_DEFAULTS: dict[str, Callable[[], object]] = {
    "backpressure_config": BackpressureConfig,
    "request_router_config": RequestRouterConfig,
}


def _settle_replicas(given: dict[str, Any]) -> None:
    """Resolve `num_replicas` against `autoscaling_config`, and expand "auto"."""
    count = given.get("num_replicas")
    scaling = given.get("autoscaling_config")
    if count == "auto":
        del given["num_replicas"]
        given["autoscaling_config"] = _auto_config(scaling)
        return
    if count is None:
        given.pop("num_replicas", None)
        return
    if isinstance(count, str):
        raise ValueError(f"`num_replicas={count!r}` is unknown: give an integer or 'auto'")
    if scaling is not None:
        raise ValueError(
            f"`num_replicas={count!r}` and `autoscaling_config` are mutually exclusive: remove one "
            "of them, or set `num_replicas='auto'`"
        )
    given["autoscaling_config"] = None


def _auto_config(given: object) -> AutoscalingConfig:
    defaults = {"min_replicas": 1, "max_replicas": AUTO_MAX_REPLICAS, "target_ongoing_requests": 2}
    if isinstance(given, AutoscalingConfig):
        is_default = given.max_replicas == AutoscalingConfig().max_replicas
        return replace(given, max_replicas=AUTO_MAX_REPLICAS) if is_default else given
    changes = {} if given is None else check.mapping("autoscaling_config", given)
    return check.options(AutoscalingConfig, {**defaults, **changes}, "autoscaling_config")


def _replica_options(value: object) -> dict[str, Any]:
    """Return checked `ray_actor_options` with the default CPU."""
    if value is None:
        value = {}
    given = check.mapping("ray_actor_options", value)
    for name in given:
        if name not in _REPLICA_OPTIONS:
            raise ValueError(
                f"`ray_actor_options` has {name!r}, which a replica does not take."
                f"{did_you_mean(name, _REPLICA_OPTIONS)} It takes {', '.join(_REPLICA_OPTIONS)}."
            )
    if given.get("num_cpus") is None:
        given["num_cpus"] = 1
    updated(ActorOptions(), given)
    return given


def _dicts(name: str, value: Sequence[object] | None) -> tuple[dict[str, Any], ...] | None:
    if value is None:
        return None
    if not isinstance(value, (list, tuple)):
        raise check.wrong_type(name, value, "a list of dicts")
    return tuple(check.mapping(f"{name}[{i}]", item) for i, item in enumerate(value))
