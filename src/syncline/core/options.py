"""Options of tasks, actors and method calls.

`@remote(...)`, `.options(...)` and `@method(...)` pass keywords; engines read these classes. Every
option is checked here, once per decorator or `.options()`. Options of Ray that have no effect in
syncline are accepted and logged at debug level.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import field, fields
from typing import Any, Literal, TypeVar

from syncline.core import option_checks as check
from syncline.core import refs
from syncline.core import runtime_env as environments
from syncline.core.placement import (
    PlacementGroup,
    PlacementGroupSchedulingStrategy,
    SchedulingStrategy,
)
from syncline.core.runtime_env import Env
from syncline.records import dataclass
from syncline.suggestions import DIRECT_TRANSPORT, did_you_mean

logger = logging.getLogger("syncline")

NumReturns = int | Literal["streaming", "dynamic"] | None
"""Number of values of a call; None: one, or "streaming" for a generator function."""

Keywords = Mapping[str, Any]
"""Options as a program passes them."""

RetryExceptions = bool | tuple[type[BaseException], ...]
"""Exceptions of user code that cause a retry: all, none, or those of these classes."""

ASYNC_CONCURRENCY = 1000
"""Default `max_concurrency` of an actor with async methods."""

_IGNORED = frozenset(
    {
        "_labels",
        "_metadata",
        "enable_task_events",
        "enable_tensor_transport",
        "isolate_process",
        "object_store_memory",
        "tensor_transport",
    }
)


_TRANSPORT: Mapping[str, tuple[object, ...]] = {
    "enable_tensor_transport": (None, False),
    "tensor_transport": (None, "object_store", "OBJECT_STORE", ""),
}
"""Options of Ray Direct Transport, and their values without an effect."""


@dataclass(frozen=True, kw_only=True)
class _Demand:
    """Options that tasks and actors share."""

    num_cpus: float | None = None
    """CPUs; None: one for a task; an actor needs one to start and holds none afterwards."""
    num_gpus: float | None = None
    """GPUs; a fraction shares one GPU."""
    resources: Mapping[str, float] = field(default_factory=dict)
    """Custom resources by name."""
    memory: int | None = None
    """Bytes of memory to reserve; the limit is not enforced."""
    accelerator_type: str | None = None
    """Required GPU model, such as "H100"."""
    name: str | None = None
    """For a task, the name in logs and errors; for an actor, the name for `get_actor`."""
    scheduling_strategy: SchedulingStrategy = "DEFAULT"
    """"DEFAULT", "SPREAD", or an object of `util.scheduling_strategies`."""
    runtime_env: Env = field(default_factory=dict)
    """Environment of the worker in normal form, without the program's own."""
    label_selector: Mapping[str, str] = field(default_factory=dict)
    """Required labels of the node."""
    fallback_strategy: tuple[Mapping[str, Mapping[str, str]], ...] = ()
    """Selectors to use where no node meets `label_selector`, such as {"label_selector": {...}}."""

    def __post_init__(self) -> None:
        check.amount("num_cpus", self.num_cpus)
        check.amount("num_gpus", self.num_gpus)
        check.amount("memory", self.memory)
        check.resources(self.resources)
        check.text("accelerator_type", self.accelerator_type)
        check.text("name", self.name)
        check.labels("label_selector", self.label_selector)
        check.fallbacks("fallback_strategy", self.fallback_strategy)
        check.strategy(self.scheduling_strategy)

    @property
    def placement_group(self) -> PlacementGroup | None:
        """The placement group of the scheduling strategy, if any."""
        strategy = self.scheduling_strategy
        if (
            isinstance(strategy, PlacementGroupSchedulingStrategy)
            and not strategy.placement_group.is_empty
        ):
            return strategy.placement_group
        return None

    def _needed(self, default_cpus: float) -> dict[str, float]:
        needed: dict[str, float] = {
            "CPU": default_cpus if self.num_cpus is None else self.num_cpus,
            "GPU": self.num_gpus or 0,
            "memory": self.memory or 0,
            **self.resources,
        }
        if self.accelerator_type is not None:
            needed[f"accelerator_type:{self.accelerator_type}"] = 0.001
        return {name: amount for name, amount in needed.items() if amount}


@dataclass(frozen=True, kw_only=True)
class TaskOptions(_Demand):
    """Options of a remote function."""

    num_returns: NumReturns = None
    """Number of values of a call."""
    max_retries: int = 3
    """Retries after a crash of the worker process; -1: unlimited."""
    retry_exceptions: RetryExceptions = False
    """Exceptions of the function that count as a crash."""
    max_calls: int = 0
    """Calls after which a worker process is replaced; 0: unlimited."""
    generator_backpressure: int | None = None
    """Maximum number of unconsumed items of a streaming generator; None: unlimited."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check.num_returns(self.num_returns)
        check.count("max_retries", self.max_retries, least=-1)
        check.retry_exceptions(self.retry_exceptions)
        check.count("max_calls", self.max_calls, least=0)
        check.count("_generator_backpressure_num_objects", self.generator_backpressure, least=-1)

    def resources_needed(self) -> dict[str, float]:
        """Return the resources that the task holds, without zeros; one CPU by default."""
        return self._needed(1)


@dataclass(frozen=True, kw_only=True)
class ActorOptions(_Demand):
    """Options of an actor."""

    max_restarts: int = 0
    """Restarts after the death of the process; -1: unlimited."""
    max_task_retries: int = 0
    """Retries of a call whose process died, once the actor has restarted; -1: unlimited."""
    max_concurrency: int | None = None
    """Maximum number of concurrent calls; None: 1, or 1000 for an actor with async methods."""
    concurrency_groups: Mapping[str, int] = field(default_factory=dict)
    """Maximum number of concurrent calls of each group of methods."""
    namespace: str | None = None
    """The namespace of the name; None: the program's."""
    lifetime: Literal["detached", "non_detached"] | None = None
    """"detached": lives until it is killed or the engine ends, even without handles."""
    get_if_exists: bool = False
    """True to return the living actor of this name, if any, instead of creating one."""
    allow_out_of_order_execution: bool | None = None
    """True: a call whose arguments are not ready does not delay later calls of its caller. This
    is always so in async actors and with `max_concurrency` above 1.
    """
    max_pending_calls: int = -1
    """Maximum number of pending calls of one caller; -1: unlimited.

    Further calls raise PendingCallsLimitExceeded.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        check.count("max_restarts", self.max_restarts, least=-1)
        check.count("max_task_retries", self.max_task_retries, least=-1)
        check.count("max_concurrency", self.max_concurrency, least=1)
        check.concurrency_groups(self.concurrency_groups)
        check.text("namespace", self.namespace)
        check.one_of("lifetime", self.lifetime, ("detached", "non_detached", None))
        check.boolean("get_if_exists", self.get_if_exists)
        if self.allow_out_of_order_execution is not None:
            check.boolean("allow_out_of_order_execution", self.allow_out_of_order_execution)
        check.count("max_pending_calls", self.max_pending_calls, least=-1)
        if self.get_if_exists and self.name is None:
            raise ValueError(
                "`get_if_exists=True` needs a name to look up, but `name` is not set: set `name`"
            )
        if self.max_task_retries and not self.max_restarts:
            logger.debug(
                "max_task_retries=%s has no effect without max_restarts", self.max_task_retries
            )

    def resources_needed(self) -> dict[str, float]:
        """Return the resources that a running actor holds, without zeros; no CPU by default."""
        return self._needed(0)

    def resources_to_place(self) -> dict[str, float]:
        """Return the resources that must be free for the actor to start.

        Without `num_cpus` and outside a placement group, that is one CPU more than it holds.
        """
        return self._needed(0 if self.placement_group is not None else 1)


@dataclass(frozen=True, kw_only=True)
class MethodOptions:
    """Options of the calls of one method."""

    num_returns: NumReturns = None
    """Number of values of a call."""
    name: str | None = None
    """Name of the calls in logs and errors; None: `Class.method`."""
    concurrency_group: str | None = None
    """Concurrency group of the method."""
    max_task_retries: int | None = None
    """Retries of a call whose process died; None: the actor's setting."""
    retry_exceptions: RetryExceptions = False
    """Exceptions of the method that cause a retry, within `max_task_retries`."""
    generator_backpressure: int | None = None
    """Maximum number of unconsumed items of a streaming generator; None: unlimited."""

    def __post_init__(self) -> None:
        check.num_returns(self.num_returns)
        check.text("name", self.name)
        check.text("concurrency_group", self.concurrency_group)
        check.count("max_task_retries", self.max_task_retries, least=-1)
        check.retry_exceptions(self.retry_exceptions)
        check.count("_generator_backpressure_num_objects", self.generator_backpressure, least=-1)

    def __reduce__(self) -> tuple[object, ...]:
        return (_method_options, tuple(getattr(self, name) for name in _METHOD_FIELDS))


_METHOD_FIELDS = tuple(f.name for f in fields(MethodOptions))


def _method_options(*values: Any) -> MethodOptions:
    return MethodOptions(**dict(zip(_METHOD_FIELDS, values, strict=True)))


OPTION_NAMES = frozenset(
    {
        *(field.name for kind in (TaskOptions, ActorOptions) for field in fields(kind)),
        *_IGNORED,
        "_generator_backpressure_num_objects",
        "placement_group",
        "placement_group_bundle_index",
        "placement_group_capture_child_tasks",
    }
)
"""Names of all options of `remote`, of tasks and of actors."""

Options = TypeVar("Options", TaskOptions, ActorOptions, MethodOptions)


def updated(options: Options, keywords: Keywords) -> Options:
    """Return `options` with a program's keywords applied.

    Raises ValueError for unknown names and impossible values, TypeError for wrong types.
    """
    known = {f.name: getattr(options, f.name) for f in fields(options)}
    for name, value in _translated(keywords, known).items():
        if name in known:
            known[name] = value
        elif name in _IGNORED:
            _check_transport(name, value)
            logger.debug("option %s=%r has no effect on this engine and is ignored", name, value)
        else:
            raise ValueError(_unknown(name, type(options), known))
    return type(options)(**known)


def _check_transport(name: str, value: object) -> None:
    if name in _TRANSPORT and value not in _TRANSPORT[name]:
        raise ValueError(f"`{name}={value!r}` is not supported. {DIRECT_TRANSPORT}")


def _unknown(name: str, kind: type, known: Keywords) -> str:
    owner = {
        "TaskOptions": "A remote function",
        "ActorOptions": "An actor class",
        "MethodOptions": "An actor's method",
    }[kind.__name__]
    return (
        f"{owner} has no option {name!r}.{did_you_mean(name, known)} "
        f"It has {', '.join(sorted(known))}."
    )


def _translated(keywords: Keywords, known: Keywords) -> dict[str, Any]:
    """Translate older spellings, and values to the form that options store."""
    given = dict(keywords)
    if "_generator_backpressure_num_objects" in given:
        given["generator_backpressure"] = given.pop("_generator_backpressure_num_objects")
    if "max_concurrency" in given and given["max_concurrency"] == 0:
        given["max_concurrency"] = None
    if "scheduling_strategy" in known:
        _translate_placement_group(given)
    if "runtime_env" in given and "runtime_env" in known:
        given["runtime_env"] = environments.normalize(
            given["runtime_env"], may_install=refs.may_install_packages()
        )
    for name in ("resources", "label_selector", "concurrency_groups"):
        if given.get(name, ...) is None:
            given[name] = {}
    if "fallback_strategy" in given and isinstance(given["fallback_strategy"] or [], list):
        given["fallback_strategy"] = tuple(given["fallback_strategy"] or ())
    if isinstance(given.get("concurrency_groups"), (list, tuple)):
        given["concurrency_groups"] = {
            group["name"]: group["max_concurrency"] for group in given["concurrency_groups"]
        }
    if isinstance(given.get("retry_exceptions"), list):
        given["retry_exceptions"] = tuple(given["retry_exceptions"])
    for name in (
        "scheduling_strategy",
        "max_pending_calls",
        "max_calls",
        "max_retries",
        "max_restarts",
        "retry_exceptions",
    ):
        if given.get(name, ...) is None:  # the same as an absent keyword
            del given[name]
    return given


def _translate_placement_group(given: dict[str, Any]) -> None:
    """Replace the three placement options of older programs by a scheduling strategy."""
    group = given.pop("placement_group", None)
    index = given.pop("placement_group_bundle_index", -1)
    capture = given.pop("placement_group_capture_child_tasks", None)
    strategy = given.get("scheduling_strategy")
    if isinstance(strategy, PlacementGroupSchedulingStrategy) and strategy.is_default:
        given["scheduling_strategy"] = "DEFAULT"
    if group is None or group == "default":
        return
    if given.get("scheduling_strategy") is not None:
        raise ValueError(
            "`placement_group` and `scheduling_strategy` are both set: set only "
            "`scheduling_strategy`"
        )
    given["scheduling_strategy"] = PlacementGroupSchedulingStrategy(group, index, capture)
