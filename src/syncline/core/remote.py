"""`remote` and `method`: remote functions, actor classes, and the handles of actors."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, NoReturn, TypeVar, overload

from syncline.core import definitions
from syncline.core import engine as engines
from syncline.core.dag.nodes import ClassMethodNode, ClassNode, FunctionNode, bind_method
from syncline.core.definitions import ActorDefinition, AnyFunction, CallDefinition, TaskDefinition
from syncline.core.engine import ActorRecord
from syncline.core.lifecycle import ensure_engine
from syncline.core.options import ActorOptions, Keywords, MethodOptions, TaskOptions, updated
from syncline.core.refs import Hold, Id
from syncline.core.signatures import CallCheck, call_check, parameter_list
from syncline.core.tracebacks import forget_engine
from syncline.suggestions import did_you_mean

Remote = TypeVar("Remote")
F = TypeVar("F", bound=AnyFunction)

_MAX_VARIANTS = 32


class _Variants(Generic[Remote]):
    """Cache of `.options()` results, so that calls in a loop share one definition."""

    __slots__ = ("_made",)

    def __init__(self) -> None:
        self._made: dict[object, Remote] = {}

    def get(self, keywords: Keywords, make: Callable[[Keywords], Remote]) -> Remote:
        key = tuple((name, type(value), value) for name, value in keywords.items())
        try:
            made = self._made.get(key)
        except TypeError:  # an unhashable value, such as a dict: do not cache
            return make(keywords)
        if made is None:
            made = make(keywords)
            if len(self._made) >= _MAX_VARIANTS:
                self._made.clear()
            self._made[key] = made
        return made


class RemoteFunction:
    """A function that runs in workers: `f.remote(...)` returns a reference immediately."""

    def __init__(self, function: AnyFunction, options: TaskOptions) -> None:
        functools.update_wrapper(self, function)
        name = options.name or str(getattr(function, "__qualname__", function))
        definitions.check_num_returns(function, options.num_returns)
        if definitions.is_generator(function) and options.num_returns is None:
            options = updated(options, {"num_returns": "streaming"})
        self._definition = TaskDefinition(function, name, options)
        self._variants: _Variants[RemoteFunction] = _Variants()

    @functools.cached_property
    def _check(self) -> CallCheck:
        # Computed late: a recursive function reaches a worker before its default values do.
        return call_check(parameter_list(self._definition.function))

    def remote(self, *args: object, **kwargs: object) -> Any:
        """Submit one call.

        Returns an `ObjectRef`; with `num_returns` above 1 a list of them, with 0 None, for
        generators an `ObjectRefGenerator`. Raises TypeError for arguments that do not fit or cannot
        be pickled, ValueError for infeasible resources.
        """
        try:
            self._check(self._definition.name, args, kwargs)
            return (engines.current or ensure_engine()).submit_task(self._definition, args, kwargs)
        except BaseException as error:
            forget_engine(error)
            raise

    def options(self, **options: object) -> RemoteFunction:
        """Return the same function with other options."""
        return self._variants.get(options, self._with)

    def _remote(
        self,
        args: Sequence[object] | None = None,
        kwargs: Mapping[str, object] | None = None,
        **options: object,
    ) -> Any:
        """Submit one call with other options: an older spelling of `options(...).remote(...)`."""
        target = self.options(**options) if options else self
        return target.remote(*(args or ()), **(kwargs or {}))

    def bind(self, *args: object, **kwargs: object) -> FunctionNode:
        """Return a node of a graph: one call, which `execute()` of the graph submits."""
        return FunctionNode(self, args, kwargs)

    @property
    def _function(self) -> AnyFunction:
        """The ordinary function, under Ray's name; `__wrapped__` is the same."""
        return self._definition.function

    def _with(self, options: Keywords) -> RemoteFunction:
        return RemoteFunction(self._definition.function, updated(self._definition.options, options))

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        name = self._definition.name
        raise TypeError(
            f"{name} is a remote function and cannot be called directly: write "
            f"`{name}.remote(...)` to run it in a worker, "
            f"or `{name}.__wrapped__(...)` to run it here."
        )

    def __repr__(self) -> str:
        return f"RemoteFunction({self._definition.name})"

    def __reduce__(self) -> tuple[object, ...]:
        return (RemoteFunction, (self._definition.function, self._definition.options))


class ActorClassMetadata:
    """An actor class as Ray describes it: `ActorClass.__ray_metadata__`."""

    def __init__(self, cls: type) -> None:
        self.class_name = cls.__name__
        self.modified_class: type = types.new_class(
            cls.__name__,
            (cls,),
            {},
            lambda body: body.update(
                __module__=cls.__module__,
                __qualname__=cls.__qualname__,
                __doc__=cls.__doc__,
                __ray_actor_class__=cls,
            ),
        )
        """An ordinary class derived from the actor's; `__ray_actor_class__` is the actor's."""


class ActorClassInheritanceException(TypeError):
    """An actor class is used as a base class."""


class ActorClass:
    """A class whose instances run in their own workers.

    `Class.remote(...)` creates an instance and returns its handle.
    """

    def __init__(self, cls: type, options: ActorOptions) -> None:
        self.__doc__ = cls.__doc__
        self.__module__ = cls.__module__
        self.__name__ = cls.__name__
        self.__qualname__ = cls.__qualname__
        self.__wrapped__ = cls
        self._options = options
        self._variants: _Variants[ActorClass] = _Variants()

    # Computed late: a class that refers to itself reaches a worker before its methods do.
    @functools.cached_property
    def _definition(self) -> ActorDefinition:
        cls, options = self.__wrapped__, self._options
        return ActorDefinition(
            cls,
            cls.__name__,
            options,
            _method_table(cls, options),
            is_async=definitions.is_async_class(cls),
            signatures=definitions.find_signatures(cls),
        )

    @functools.cached_property
    def _check(self) -> CallCheck:
        return call_check(definitions.constructor_parameters(self.__wrapped__))

    def remote(self, *args: object, **kwargs: object) -> ActorHandle:
        """Start an actor and return its handle; the first call reports a failed constructor.

        Raises TypeError for arguments that do not fit or cannot be pickled, ValueError for a name
        that is taken and for infeasible resources.
        """
        try:
            self._check(self.__name__, args, kwargs)
            return ActorHandle(*ensure_engine().create_actor(self._definition, args, kwargs))
        except BaseException as error:
            forget_engine(error)
            raise

    def options(self, **options: object) -> ActorClass:
        """Return the same class with other options."""
        if "name" in options:  # used once, so not worth caching
            return self._with(options)
        return self._variants.get(options, self._with)

    def _remote(
        self,
        args: Sequence[object] | None = None,
        kwargs: Mapping[str, object] | None = None,
        **options: object,
    ) -> ActorHandle:
        """Start an actor with other options: an older spelling of `options(...).remote(...)`."""
        target = self.options(**options) if options else self
        return target.remote(*(args or ()), **(kwargs or {}))

    def bind(self, *args: object, **kwargs: object) -> ClassNode:
        """Return a node of a graph: one actor, which `execute()` of the graph starts."""
        return ClassNode(self, args, kwargs)

    @property
    def __ray_actor_class__(self) -> type:
        """The ordinary class, under Ray's name; `__wrapped__` is the same."""
        return self.__wrapped__

    @functools.cached_property
    def __ray_metadata__(self) -> ActorClassMetadata:
        """The class for programs that derive from it or inspect it."""
        return ActorClassMetadata(self.__wrapped__)

    def _with(self, options: Keywords) -> ActorClass:
        return _checked(ActorClass(self.__wrapped__, updated(self._options, options)))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "__wrapped__" not in self.__dict__:
            raise AttributeError(name)
        value = getattr(self.__wrapped__, name)
        return _copy_function(value) if isinstance(value, types.FunctionType) else value

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        name = self.__name__
        raise TypeError(
            f"{name} is an actor class and cannot be instantiated directly: write "
            f"`{name}.remote(...)` to start an actor, "
            f"or `{name}.__wrapped__(...)` for an ordinary instance."
        )

    def __class_getitem__(cls, item: object) -> types.GenericAlias:
        return types.GenericAlias(cls, item)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._definition.methods]

    def __mro_entries__(self, bases: tuple[object, ...]) -> NoReturn:
        name = self.__name__
        raise ActorClassInheritanceException(
            f"{name} is an actor class and cannot be a base class: derive from the ordinary class "
            f"(`{name}.__wrapped__`), and make the result an actor class with `syncline.remote`."
        )

    def __repr__(self) -> str:
        return f"ActorClass({self.__name__})"

    def __reduce__(self) -> tuple[object, ...]:
        return (ActorClass, (self.__wrapped__, self._options))


def _copy_function(function: types.FunctionType) -> types.FunctionType:
    """Return an equal but not identical function.

    Pickle would find the original by its name in its module and send only that name, although its
    class travels by value. Workers would then have to import the module, which may exist on the
    driver's machine only.
    """
    copy = types.FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    functools.update_wrapper(copy, function)
    return copy


def _checked(actor_class: ActorClass) -> ActorClass:
    """Return the class; ValueError if its methods and options contradict each other."""
    definition = actor_class._definition
    options = definition.options
    if options.allow_out_of_order_execution is False and (
        definition.is_async or (options.max_concurrency or 1) > 1
    ):
        raise ValueError(
            f"`allow_out_of_order_execution=False` is impossible for {definition.name}, whose "
            f"calls overlap (async methods or `max_concurrency` above 1): leave it out, or make "
            f"the methods ordinary ones with `max_concurrency=1`"
        )
    return actor_class


def _method_table(cls: type, options: ActorOptions) -> dict[str, MethodOptions]:
    """Return the options of every method, with the actor's own options as defaults."""
    table = dict(definitions.OPTIONS_OF_EVERY_ACTOR)
    for name, function in definitions.find_methods(cls).items():
        given = dict(getattr(function, definitions.OPTIONS_ATTRIBUTE, {}))
        if given.get("num_returns") is None and definitions.is_generator(function):
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
            f"method {method} is in the concurrency group {group!r}, which the class does not "
            f"have: declare it with "
            f"`@syncline.remote(concurrency_groups={{{group!r}: 2}})`.{did_you_mean(group, groups)}"
        )


class ActorMethod:
    """One method of one actor: `handle.method.remote(...)`."""

    __slots__ = ("_hold", "_definition", "_check", "_variants")

    def __init__(self, definition: CallDefinition, hold: Hold) -> None:
        self._definition = definition
        self._check = call_check(definition.signature)
        # Not the handle: that would be a cycle, and the actor must end with its last handle.
        self._hold = hold
        self._variants: _Variants[ActorMethod] = _Variants()

    def remote(self, *args: object, **kwargs: object) -> Any:
        """Submit one call and return the same types as `RemoteFunction.remote`.

        Raises TypeError for arguments that do not fit or cannot be pickled.
        """
        try:
            self._check(self._definition.name, args, kwargs)
            return (engines.current or ensure_engine()).submit_call(self._definition, args, kwargs)
        except BaseException as error:
            forget_engine(error)
            raise

    def options(self, **options: object) -> ActorMethod:
        """Return the same method with other options."""
        return self._variants.get(options, self._with)

    def _remote(
        self,
        args: Sequence[object] | None = None,
        kwargs: Mapping[str, object] | None = None,
        **options: object,
    ) -> Any:
        """Submit one call with other options: an older spelling of `options(...).remote(...)`."""
        target = self.options(**options) if options else self
        return target.remote(*(args or ()), **(kwargs or {}))

    def bind(
        self, *args: object, **kwargs: object
    ) -> ClassMethodNode | tuple[ClassMethodNode, ...]:
        """Return a node of a graph: one call, which `execute()` of the graph submits.

        Returns one node for each return value if there are several. Raises TypeError for arguments
        that do not fit.
        """
        self._check(self._definition.name, args, kwargs)
        return bind_method(self, args, kwargs, self._definition.options.num_returns)

    @property
    def name(self) -> str:
        """Name of the method."""
        return self._definition.method

    @property
    def actor_id(self) -> int:
        """The actor's number."""
        return self._definition.actor_id

    @property
    def actor_call(self) -> ActorMethod:
        """Method of the same actor that calls a function with it: `actor_call.remote(f, ...)`."""
        return ActorMethod(
            replace(
                self._definition, method="__ray_call__", options=MethodOptions(), signature=None
            ),
            self._hold,
        )

    def _with(self, options: Keywords) -> ActorMethod:
        definition = self._definition
        changed = updated(definition.options, options)
        _check_group(definition.name, changed.concurrency_group, definition.groups)
        return ActorMethod(replace(definition, options=changed), self._hold)

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        name = self._definition.method
        raise TypeError(
            f"{self._definition.name} is an actor's method and cannot be called directly: "
            f"write `{name}.remote(...)`."
        )

    def __repr__(self) -> str:
        return f"ActorMethod({self._definition.name})"

    def __reduce__(self) -> tuple[object, ...]:
        return (ActorMethod, (self._definition, self._hold))


class ActorHandle:
    """Handle of an actor: `handle.method.remote(...)`. May be passed to tasks and actors.

    An actor without a name ends once its last handle is gone and its pending calls have run.
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
        # Called once per method: the result becomes an attribute of the instance.
        if name.startswith("_syncline_"):
            raise AttributeError(name)
        record = self._syncline_record
        options = record.methods.get(name)
        if options is None:
            if name.startswith("__"):
                raise AttributeError(name)
            names = sorted(n for n in record.methods if not n.startswith("_"))
            raise AttributeError(
                f"The actor class {record.class_name} has no method {name!r}."
                f"{did_you_mean(name, names)} It has {', '.join(names) or 'none'}. "
                f"(Attributes of an actor are not visible outside of it: write a method.)"
            )
        method = ActorMethod(
            CallDefinition(
                record.actor_id,
                record.class_name,
                name,
                options,
                record.groups,
                record.signatures.get(name),
            ),
            self._syncline_hold,
        )
        self.__dict__[name] = method
        return method

    def __class_getitem__(cls, item: object) -> types.GenericAlias:
        return types.GenericAlias(cls, item)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._syncline_record.methods]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ActorHandle) and other._actor_id == self._actor_id

    def __hash__(self) -> int:
        return hash(self._syncline_record.actor_id)

    def __repr__(self) -> str:
        return f"Actor({self._syncline_record.class_name}, {self._actor_id.hex()})"

    def __reduce__(self) -> tuple[object, ...]:
        return (ActorHandle, (self._syncline_record, self._syncline_hold))


@overload
def remote(target: type, /) -> ActorClass: ...  # type: ignore[overload-overlap]
@overload
def remote(target: Callable[..., object], /) -> RemoteFunction: ...
@overload
def remote(**options: object) -> Callable[[Any], Any]: ...
def remote(*target: object, **options: object) -> Any:
    """Make a function a task, or a class an actor: `@remote`, `@remote(num_cpus=2)`, `remote(f)`.

    `TaskOptions` and `ActorOptions` in `syncline.core.options` describe the options. Raises
    TypeError for any other object, ValueError for unknown options and impossible values.
    """
    if len(target) == 1 and callable(target[0]) and not options:
        return _make_remote(target[0], {})
    if target or not options:
        raise TypeError(
            "`remote` takes one function or class, or options by name: write `@syncline.remote`, "
            "`@syncline.remote(num_cpus=2)`, or `syncline.remote(num_cpus=2)(f)`"
        )
    return functools.partial(_make_remote, options=options)


def _make_remote(target: Any, options: Keywords) -> RemoteFunction | ActorClass:
    if isinstance(target, (RemoteFunction, ActorClass)):
        raise TypeError(
            f"{target!r} is remote already: apply `remote` once, "
            f"and change options with `.options(...)`"
        )
    if inspect.isclass(target):
        return _checked(ActorClass(target, updated(ActorOptions(), options)))
    if not (inspect.isroutine(target) or "cython" in type(target).__name__):
        raise TypeError(
            f"`remote` needs a function or a class, but got a {type(target).__name__} "
            f"({target!r}): wrap it in a function"
        )
    if inspect.iscoroutinefunction(target) or inspect.isasyncgenfunction(target):
        raise ValueError(
            f"{target.__name__} is an `async def`, which can only be a method of an actor: make it "
            f"an ordinary function that calls `asyncio.run(...)`, or a method of a remote class"
        )
    return RemoteFunction(target, updated(TaskOptions(), options))


def method(*target: object, **options: object) -> Callable[[F], F]:
    """Set options of one method of an actor class, such as `@method(num_returns=2)`.

    `MethodOptions` in `syncline.core.options` describes the options. Raises TypeError without
    options, ValueError for unknown ones.
    """
    if target or not options:
        raise TypeError("`method` takes options by name: write `@syncline.method(num_returns=2)`")
    updated(MethodOptions(), options)  # raises here, at the decorator, for invalid options

    def annotate(function: F) -> F:
        definitions.check_num_returns(function, options.get("num_returns"))
        setattr(function, definitions.OPTIONS_ATTRIBUTE, options)
        return function

    return annotate
