"""What a program asks for, resolved once and handed to the engine unchanged with every call.

A plan is made when `@remote` or `.options()` is evaluated, not per call. Each carries one slot,
`prepared`, in which the engine that runs it keeps what it worked out for it (a registered function,
a scheduling class); `prepared_for` says whose that is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from syncline.core.options import ActorOptions, MethodOptions, TaskOptions


class Plan:
    """The base of the three plans: the engine's slot."""

    __slots__ = ("prepared", "prepared_for")

    def __init__(self) -> None:
        self.prepared: Any = None  # owned by the engine named in `prepared_for`
        self.prepared_for: object | None = None


class TaskPlan(Plan):
    """One remote function with its options."""

    __slots__ = ("function", "is_generator", "name", "options")

    def __init__(
        self, function: Callable[..., Any], name: str, options: TaskOptions, *, is_generator: bool
    ) -> None:
        super().__init__()
        self.function = function
        self.name = name
        self.options = options
        self.is_generator = is_generator

    def __reduce__(self) -> tuple[Any, ...]:
        return (_task_plan, (self.function, self.name, self.options, self.is_generator))


class ActorPlan(Plan):
    """One actor class with its options and the options of its methods by name."""

    __slots__ = ("cls", "is_async", "methods", "name", "options")

    def __init__(
        self,
        cls: type,
        name: str,
        options: ActorOptions,
        methods: dict[str, MethodOptions],
        *,
        is_async: bool,
    ) -> None:
        super().__init__()
        self.cls = cls
        self.name = name
        self.options = options
        self.methods = methods
        self.is_async = is_async

    @property
    def groups(self) -> tuple[str, ...]:
        """The concurrency groups that calls may name."""
        return tuple(self.options.concurrency_groups)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_actor_plan, (self.cls, self.name, self.options, self.methods, self.is_async))


class CallPlan(Plan):
    """One method of one actor with the options of the call."""

    __slots__ = ("actor_id", "class_name", "groups", "method", "options")

    def __init__(
        self,
        actor_id: int,
        class_name: str,
        method: str,
        options: MethodOptions,
        groups: tuple[str, ...],
    ) -> None:
        super().__init__()
        self.actor_id = actor_id
        self.class_name = class_name
        self.method = method
        self.groups = groups
        self.options = options

    @property
    def name(self) -> str:
        """As errors and logs spell it: `Class.method`."""
        return f"{self.class_name}.{self.method}"


def _task_plan(
    function: Callable[..., Any], name: str, options: TaskOptions, is_generator: bool
) -> TaskPlan:
    return TaskPlan(function, name, options, is_generator=is_generator)


def _actor_plan(
    cls: type, name: str, options: ActorOptions, methods: dict[str, MethodOptions], is_async: bool
) -> ActorPlan:
    return ActorPlan(cls, name, options, methods, is_async=is_async)
