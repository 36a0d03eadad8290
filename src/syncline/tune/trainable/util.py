"""`with_parameters` and `with_resources`: a trainable with large objects, or with what its trials
hold.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from syncline.core import api
from syncline.core.engine import Engine
from syncline.core.lifecycle import ensure_engine, is_initialized
from syncline.core.refs import ObjectRef
from syncline.tune.execution.placement_groups import (
    PlacementGroupFactory,
    resource_dict_to_pg_factory,
)
from syncline.tune.trainable.function_trainable import requested
from syncline.tune.trainable.names import trainable_name
from syncline.tune.trainable.trainable import Trainable

TrainableT = TypeVar("TrainableT", bound=Callable[..., Any])


class Parameters:
    """Values by name that travel as references: they are put into the object store once, when they
    are first sent, and fetched where used.

    Where no engine runs, they travel themselves.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values: dict[str, Any] = dict(values)
        self._references: dict[str, ObjectRef[Any]] = {}
        self._engine: Engine | None = None
        if is_initialized():
            self._put()

    def fetch(self) -> dict[str, Any]:
        """The values."""
        fetched = [name for name, value in self._values.items() if isinstance(value, ObjectRef)]
        for name, value in zip(
            fetched,
            api.get([self._values[name] for name in fetched]) if fetched else (),
            strict=True,
        ):
            self._values[name] = value
        return dict(self._values)

    def __getstate__(self) -> dict[str, Any]:
        return {
            "_values": self._put() if is_initialized() else self._values,
            "_references": {},
            "_engine": None,
        }

    def _put(self) -> dict[str, ObjectRef[Any]]:
        """References to the values in the engine that runs now."""
        engine = ensure_engine()
        if engine is not self._engine:
            self._references = {
                name: value if isinstance(value, ObjectRef) else api.put(value)
                for name, value in self._values.items()
            }
            self._engine = engine
        return self._references


def with_parameters(trainable: TrainableT, **kwargs: Any) -> TrainableT:
    """`trainable`, whose function, or whose `setup`, gets `kwargs` by name besides the
    configuration.

    The objects may be large: they go into the object store once, and every trial reads them there.
    References to objects that lie there already (`syncline.put`) may be given too.

    Raises:
        ValueError: `trainable` is neither a function nor a class derived from Trainable; it does
        not take one of the names.
    """
    _check("with_parameters", trainable)
    parameters = Parameters(kwargs)
    if inspect.isclass(trainable):
        given: Any = trainable
        _check_names(given.setup, kwargs)

        def setup(self: Any, config: dict[str, Any]) -> None:
            given.setup(self, config, **parameters.fetch())

        return cast("TrainableT", _subclass(trainable, setup=setup))
    _check_names(trainable, kwargs)

    def with_them(config: dict[str, Any]) -> Any:
        return trainable(config, **parameters.fetch())

    return cast("TrainableT", _like(with_them, trainable))


def with_resources(
    trainable: TrainableT,
    resources: Mapping[str, float]
    | PlacementGroupFactory
    | Callable[[dict[str, Any]], PlacementGroupFactory | Mapping[str, float]],
) -> TrainableT:
    """`trainable`, whose trials hold these resources while they run, whatever it says itself.

    Args:
        trainable: A function, or a class derived from Trainable. resources: `{"cpu": 2, "gpu":
        0.5}`, a PlacementGroupFactory, or a function that takes the configuration and returns one
        of these.

    Raises:
        ValueError: `trainable` is neither of these; amounts that cannot be.
        TypeError: resources of another kind.
    """
    _check("with_resources", trainable)
    given: Any = (
        resource_dict_to_pg_factory(resources) if isinstance(resources, Mapping) else resources
    )
    if not isinstance(given, PlacementGroupFactory) and not callable(given):
        requested(given, {})  # says what is wrong
    if inspect.isclass(trainable):

        def default_resource_request(
            cls: type[Trainable], config: dict[str, Any]
        ) -> PlacementGroupFactory | None:
            return requested(given, config)

        return cast(
            "TrainableT",
            _subclass(trainable, default_resource_request=classmethod(default_resource_request)),
        )

    def same(*args: Any, **kwargs: Any) -> Any:
        return trainable(*args, **kwargs)

    wrapped = _like(same, trainable)
    wrapped.__dict__.update(
        _resources=given, __wrapped__=trainable
    )  # `inspect.signature` looks there
    return cast("TrainableT", wrapped)


def _like(wrapper: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """`wrapper` under the name of `function`, with its resources."""
    wrapper.__name__ = wrapper.__qualname__ = trainable_name(function)
    wrapper.__doc__ = function.__doc__
    if hasattr(function, "_resources"):
        wrapper.__dict__["_resources"] = function._resources
    return wrapper


def _subclass(trainable: type, **methods: Any) -> type:
    names = {
        "__doc__": trainable.__doc__,
        "__module__": trainable.__module__,
        "__qualname__": trainable.__qualname__,
    }
    return type(trainable.__name__, (trainable,), {**names, **methods})


def _check(function: str, trainable: object) -> None:
    is_class = inspect.isclass(trainable)
    if not callable(trainable) or (is_class and not issubclass(cast("type", trainable), Trainable)):
        kind = (
            f"the class {cast('type', trainable).__name__}"
            if is_class
            else f"a {type(trainable).__name__}"
        )
        raise ValueError(
            f"tune.{function}({trainable!r}, …): {kind} is no trainable: give a function that takes the configuration, or a class derived "
            "from `tune.Trainable`."
        )


def _check_names(function: Callable[..., Any], names: Mapping[str, Any]) -> None:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # some built-in callables do not say what they take
        return
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    unknown = [name for name in names if name not in parameters]
    if unknown:
        raise ValueError(
            f"tune.with_parameters(…, {', '.join(f'{name}=…' for name in names)}): `{function.__qualname__}` takes no `{unknown[0]}`, only "
            f"{', '.join(parameters)}: rename one of the two."
        )
