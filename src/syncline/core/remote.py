"""`remote` and `method`: remote functions, actor classes, and the handles of actors."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Collection, Mapping
from typing import Any, Generic, TypeVar, overload

from syncline.core import actor_methods, refs
from syncline.core.engine import ActorRecord
from syncline.core.errors import did_you_mean
from syncline.core.ids import Id
from syncline.core.lifecycle import ensure_engine
from syncline.core.options import ActorOptions, MethodOptions, TaskOptions, updated
from syncline.core.plans import ActorPlan, CallPlan, TaskPlan
from syncline.core.refs import Hold
from syncline.core.tracebacks import forget_engine

Remote = TypeVar("Remote")

_MAX_VARIANTS = 32


class _Variants(Generic[Remote]):
    """Remembers what `.options()` made, so that a loop which calls it every time makes one plan."""

    __slots__ = ("_made",)

    def __init__(self) -> None:
        self._made: dict[Any, Remote] = {}

    def get(
        self, keywords: Mapping[str, Any], make: Callable[[Mapping[str, Any]], Remote]
    ) -> Remote:
        key = tuple((name, type(value), value) for name, value in keywords.items())
        try:
            made = self._made.get(key)
        except TypeError:  # a dict or a list among the values: those are not remembered
            return make(keywords)
        if made is None:
            made = make(keywords)
            if len(self._made) >= _MAX_VARIANTS:
                self._made.clear()
            self._made[key] = made
        return made


class _Arity:
    """Whether arguments fit a signature; positional ones by their number alone, which costs next to
    nothing.
    """

    __slots__ = ("_least", "_most", "_signature", "_what")

    def __init__(
        self, function: Callable[..., Any], what: str, *, skip_first: bool = False
    ) -> None:
        self._what = what
        self._least, self._most = 0, float("inf")
        self._signature = _signature(function, skip_first=skip_first)
        if self._signature is None:
            return
        kinds = inspect.Parameter
        parameters = self._signature.parameters.values()
        positional = [
            p for p in parameters if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)
        ]
        if not any(p.kind is kinds.VAR_POSITIONAL for p in parameters):
            self._most = len(positional)
        self._least = sum(p.default is kinds.empty for p in positional)
        if any(p.kind is kinds.KEYWORD_ONLY and p.default is kinds.empty for p in parameters):
            self._most = -1  # keywords are needed, so numbers do not tell

    def check(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """TypeError where a call with these arguments could only fail."""
        if (not kwargs and self._least <= len(args) <= self._most) or self._signature is None:
            return
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(
                f"{self._what}{self._signature} cannot be called like this: {error}"
            ) from None


def _signature(function: Callable[..., Any], *, skip_first: bool) -> inspect.Signature | None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions written in C do not tell
        return None
    if skip_first:
        return signature.replace(parameters=list(signature.parameters.values())[1:])
    return signature


class RemoteFunction:
    """A function whose calls run elsewhere: `f.remote(...)` returns a reference at once."""

    def __init__(self, function: Callable[..., Any], options: TaskOptions) -> None:
        functools.update_wrapper(self, function)
        name = options.name or str(getattr(function, "__qualname__", function))
        is_generator = actor_methods.is_generator(function)
        if is_generator and options.num_returns is None:
            options = updated(options, {"num_returns": "streaming"})
        self._plan = TaskPlan(function, name, options, is_generator=is_generator)
        self._variants: _Variants[RemoteFunction] = _Variants()

    @functools.cached_property
    def _arity(self) -> _Arity:
        # When it is first needed: a function that refers to itself arrives in a worker before its
        # default values do.
        return _Arity(self._plan.function, getattr(self._plan.function, "__name__", "function"))

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """Submit one call.

        Returns an `ObjectRef`; with `num_returns` above 1 a list of them, with 0 None, for
        generators an `ObjectRefGenerator`. Raises TypeError for arguments that do not fit or cannot
        be pickled, ValueError for resources that can never be met.
        """
        try:
            self._arity.check(args, kwargs)
            return (refs._engine or ensure_engine()).submit_task(self._plan, args, kwargs)
        except BaseException as error:
            forget_engine(error)
            raise

    def options(self, **options: Any) -> RemoteFunction:
        """The same function with other options."""
        return self._variants.get(options, self._with)

    def _with(self, options: Mapping[str, Any]) -> RemoteFunction:
        return RemoteFunction(self._plan.function, updated(self._plan.options, options))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name = self._plan.name
        raise TypeError(
            f"{name} is a remote function and cannot be called directly: write `{name}.remote(...)` to run it in a worker, "
            f"or `{name}.__wrapped__(...)` to run it here."
        )

    def __repr__(self) -> str:
        return f"RemoteFunction({self._plan.name})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_remote_function, (self._plan.function, self._plan.options))


def _remote_function(function: Callable[..., Any], options: TaskOptions) -> RemoteFunction:
    return RemoteFunction(function, options)


class ActorClass:
    """A class whose instances live in workers of their own: `Class.remote(...)` makes one and
    returns its handle.
    """

    def __init__(self, cls: type, options: ActorOptions) -> None:
        self.__doc__ = cls.__doc__
        self.__module__ = cls.__module__
        self.__name__ = cls.__name__
        self.__qualname__ = cls.__qualname__
        self.__wrapped__ = cls
        self._options = options
        self._variants: _Variants[ActorClass] = _Variants()

    # When they are first needed: a class that refers to itself arrives in a worker before its
    # methods do.

    @functools.cached_property
    def _plan(self) -> ActorPlan:
        cls, options = self.__wrapped__, self._options
        return ActorPlan(
            cls,
            cls.__name__,
            options,
            _method_table(cls, options),
            is_async=actor_methods.is_async_class(cls),
        )

    @functools.cached_property
    def _arity(self) -> _Arity:
        return _constructor_arity(self.__wrapped__)

    def remote(self, *args: Any, **kwargs: Any) -> ActorHandle:
        """Start an actor; its constructor runs with these arguments, and a failure of it is told by
        the first call.

        Raises TypeError for arguments that do not fit or cannot be pickled, ValueError for a name
        that is taken and for resources that can never be met.
        """
        try:
            self._arity.check(args, kwargs)
            return ActorHandle(*ensure_engine().create_actor(self._plan, args, kwargs))
        except BaseException as error:
            forget_engine(error)
            raise

    def options(self, **options: Any) -> ActorClass:
        """The same class with other options."""
        if "name" in options:  # such options are used once
            return self._with(options)
        return self._variants.get(options, self._with)

    def _with(self, options: Mapping[str, Any]) -> ActorClass:
        return _checked(ActorClass(self.__wrapped__, updated(self._options, options)))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "__wrapped__" not in self.__dict__:
            raise AttributeError(name)
        value = getattr(self.__wrapped__, name)
        return _twin(value) if isinstance(value, types.FunctionType) else value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name = self.__name__
        raise TypeError(
            f"{name} is an actor class and cannot be instantiated directly: write `{name}.remote(...)` to start an actor, "
            f"or `{name}.__wrapped__(...)` for an ordinary instance."
        )

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        name = self.__name__
        raise TypeError(
            f"{name} is an actor class, from which nothing can derive: derive from the ordinary class (`{name}.__wrapped__`), "
            f"and make an actor class of the result with `syncline.remote`."
        )

    def __repr__(self) -> str:
        return f"ActorClass({self.__name__})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_actor_class, (self.__wrapped__, self._options))


def _twin(function: types.FunctionType) -> types.FunctionType:
    """A function that is the same but not identical.

    Were a method found by its name in its module, it would be pickled as that name, though its
    class travels by value: workers would have to import the module, which is there on the program's
    machine only.
    """
    twin = types.FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    twin.__kwdefaults__ = function.__kwdefaults__
    functools.update_wrapper(twin, function)
    return twin


def _actor_class(cls: type, options: ActorOptions) -> ActorClass:
    return ActorClass(cls, options)


def _checked(actor_class: ActorClass) -> ActorClass:
    """The same, if its methods and options agree; ValueError otherwise."""
    _ = actor_class._plan
    return actor_class


def _no_arguments() -> None: ...


def _constructor_arity(cls: type) -> _Arity:
    constructor = inspect.getattr_static(cls, "__init__")
    if constructor is object.__init__:
        return _Arity(_no_arguments, cls.__name__)
    return _Arity(constructor, cls.__name__, skip_first=True)


def _method_table(cls: type, options: ActorOptions) -> dict[str, MethodOptions]:
    """The options of every method, with what the actor's own options say of them."""
    table = dict(actor_methods.OPTIONS_OF_EVERY_ACTOR)
    for name, function in actor_methods.find_methods(cls).items():
        given = dict(getattr(function, actor_methods.OPTIONS_ATTRIBUTE, {}))
        if given.get("num_returns") is None and actor_methods.is_generator(function):
            given["num_returns"] = "streaming"
        if given.get("max_task_retries") is None and options.max_task_retries:
            given["max_task_retries"] = options.max_task_retries
        _check_group(
            f"{cls.__name__}.{name}", given.get("concurrency_group"), options.concurrency_groups
        )
        table[name] = updated(MethodOptions(), given)
    return table


def _check_group(method: str, group: str | None, groups: Collection[str]) -> None:
    if group is not None and group not in groups:
        raise ValueError(
            f"method {method} is in the concurrency group {group!r}, which the class does not have: declare it with "
            f"`@syncline.remote(concurrency_groups={{{group!r}: 2}})`.{did_you_mean(group, groups)}"
        )


class ActorMethod:
    """One method of one actor: `handle.method.remote(...)`."""

    __slots__ = ("_hold", "_plan", "_variants")

    def __init__(self, plan: CallPlan, hold: Hold) -> None:
        self._plan = plan
        self._hold = hold  # not the handle, which would be a cycle: the actor must end as soon as the last handle is gone
        self._variants: _Variants[ActorMethod] = _Variants()

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """Submit one call; returns what `RemoteFunction.remote` returns, and raises TypeError for
        arguments that cannot be pickled.
        """
        try:
            return (refs._engine or ensure_engine()).submit_call(self._plan, args, kwargs)
        except BaseException as error:
            forget_engine(error)
            raise

    def options(self, **options: Any) -> ActorMethod:
        """The same method with other options."""
        return self._variants.get(options, self._with)

    def _with(self, options: Mapping[str, Any]) -> ActorMethod:
        plan = self._plan
        changed = updated(plan.options, options)
        _check_group(plan.name, changed.concurrency_group, plan.groups)
        return ActorMethod(
            CallPlan(plan.actor_id, plan.class_name, plan.method, changed, plan.groups), self._hold
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name = self._plan.method
        raise TypeError(
            f"{self._plan.name} is an actor's method and cannot be called directly: write `{name}.remote(...)`."
        )

    def __repr__(self) -> str:
        return f"ActorMethod({self._plan.name})"

    def __reduce__(self) -> tuple[Any, ...]:
        plan = self._plan
        return (
            _actor_method,
            (self._hold, plan.class_name, plan.method, plan.options, plan.groups),
        )


def _actor_method(
    hold: Hold, class_name: str, method: str, options: MethodOptions, groups: tuple[str, ...]
) -> ActorMethod:
    return ActorMethod(CallPlan(hold.id, class_name, method, options, groups), hold)


class ActorHandle:
    """An actor, as programs hold it: `handle.method.remote(...)`. May be passed to tasks and
    actors.

    An actor that has no name ends when its last handle is gone, after the calls made until then.
    """

    def __init__(self, record: ActorRecord, hold: Hold) -> None:
        self._syncline_record = record
        self._syncline_hold = hold

    @property
    def _actor_id(self) -> Id:
        return Id(self._syncline_record.actor_id)

    @property
    def _ray_actor_id(self) -> Id:
        return self._actor_id

    def __getattr__(self, name: str) -> ActorMethod:
        # Reached once for each method: what it finds is an attribute of the instance afterwards.
        if name.startswith("_syncline_"):
            raise AttributeError(name)
        record = self._syncline_record
        options = record.methods.get(name)
        if options is None:
            if name.startswith("__"):
                raise AttributeError(name)
            names = sorted(n for n in record.methods if not n.startswith("_"))
            raise AttributeError(
                f"The actor class {record.class_name} has no method {name!r}.{did_you_mean(name, names)} "
                f"It has {', '.join(names) or 'none'}. (Attributes of an actor are not visible outside of it: write a method.)"
            )
        method = ActorMethod(
            CallPlan(record.actor_id, record.class_name, name, options, record.groups),
            self._syncline_hold,
        )
        self.__dict__[name] = method
        return method

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._syncline_record.methods]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ActorHandle) and other._actor_id == self._actor_id

    def __hash__(self) -> int:
        return hash(self._syncline_record.actor_id)

    def __repr__(self) -> str:
        return f"Actor({self._syncline_record.class_name}, {self._actor_id.hex()})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (ActorHandle, (self._syncline_record, self._syncline_hold))


@overload
def remote(target: type, /) -> ActorClass: ...
@overload
def remote(target: types.FunctionType, /) -> RemoteFunction: ...
@overload
def remote(**options: Any) -> Callable[[Any], Any]: ...
def remote(*target: Any, **options: Any) -> Any:
    """Make a function a task, or a class an actor: `@remote`, `@remote(num_cpus=2)`, or
    `remote(f)`.

    Raises TypeError for what is neither, ValueError for unknown options and impossible values.
    `TaskOptions` and `ActorOptions` in `syncline.core.options` describe the options.
    """
    if len(target) == 1 and callable(target[0]) and not options:
        return _make_remote(target[0], {})
    if target or not options:
        raise TypeError(
            "`remote` takes one function or class, or options by name: write `@syncline.remote`, `@syncline.remote(num_cpus=2)`, or "
            "`syncline.remote(num_cpus=2)(f)`"
        )
    return functools.partial(_make_remote, options=options)


def _make_remote(target: Any, options: Mapping[str, Any]) -> RemoteFunction | ActorClass:
    if isinstance(target, (RemoteFunction, ActorClass)):
        raise TypeError(
            f"{target!r} is remote already: apply `remote` once, and change options with `.options(...)`"
        )
    if inspect.isclass(target):
        return _checked(ActorClass(target, updated(ActorOptions(), options)))
    if not (inspect.isroutine(target) or "cython" in type(target).__name__):
        raise TypeError(
            f"`remote` needs a function or a class, but got a {type(target).__name__} ({target!r}): wrap it in a function of its own"
        )
    if inspect.iscoroutinefunction(target) or inspect.isasyncgenfunction(target):
        raise TypeError(
            f"{target.__name__} is an `async def`, which can only be a method of an actor: make it an ordinary function that calls "
            f"`asyncio.run(...)`, or a method of a remote class"
        )
    return RemoteFunction(target, updated(TaskOptions(), options))


def method(*target: Any, **options: Any) -> Any:
    """Options of one method of an actor class: `@method(num_returns=2)`,
    `@method(concurrency_group="io")`.

    `MethodOptions` in `syncline.core.options` describes them. Raises TypeError without options,
    ValueError for unknown ones.
    """
    if target or not options:
        raise TypeError("`method` takes options by name: write `@syncline.method(num_returns=2)`")
    updated(MethodOptions(), options)  # raises for what is wrong, where it stands in the program

    def annotate(function: Callable[..., Any]) -> Callable[..., Any]:
        setattr(function, actor_methods.OPTIONS_ATTRIBUTE, options)
        return function

    return annotate
