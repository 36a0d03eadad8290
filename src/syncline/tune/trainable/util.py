"""`with_parameters` and `with_resources`: bind large objects, or resources, to a trainable."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from syncline.core import api
from syncline.core.engine import Engine
from syncline.core.lifecycle import ensure_engine, is_initialized
from syncline.core.refs import ObjectRef
from syncline.suggestions import did_you_mean
from syncline.tune.execution.placement_groups import (
    PlacementGroupFactory,
    resource_dict_to_pg_factory,
)
from syncline.tune.result import Config
from syncline.tune.trainable.function_trainable import requested_resources
from syncline.tune.trainable.trainable import Trainable
from syncline.tune.trainable.trainable_state import trainable_name

TrainableT = TypeVar("TrainableT", bound=Callable[..., object])


class Parameters:
    """Values by name, pickled as references: they are put into the object store when they are first
    sent, and fetched on use. Without an engine the values themselves are pickled.
    """

    def __init__(self, values: Mapping[str, object]) -> None:
        self._values: Config = dict(values)
        self._references: dict[str, ObjectRef[Any]] = {}
        self._engine: Engine | None = None
        if is_initialized():
            self._put()

    def fetch(self) -> Config:
        """Return the values."""
        fetched = [name for name, value in self._values.items() if isinstance(value, ObjectRef)]
        for name, value in zip(
            fetched,
            api.get([self._values[name] for name in fetched]) if fetched else (),
            strict=True,
        ):
            self._values[name] = value
        return dict(self._values)

    def __getstate__(self) -> Config:
        return {
            "_values": self._put() if is_initialized() else self._values,
            "_references": {},
            "_engine": None,
        }

    def _put(self) -> dict[str, ObjectRef[Any]]:
        """Return references to the values in the current engine."""
        engine = ensure_engine()
        if engine is not self._engine:
            self._references = {
                name: value if isinstance(value, ObjectRef) else api.put(value)
                for name, value in self._values.items()
            }
            self._engine = engine
        return self._references


def with_parameters(trainable: TrainableT, **kwargs: object) -> TrainableT:
    """Return `trainable` with `kwargs` bound: its function, or its `setup`, gets them by name in
    addition to the configuration.

    Large objects are put into the object store once, and every trial reads them there. References
    from `syncline.put` are accepted, too.

    Raises:
        ValueError: `trainable` is neither a function nor a subclass of Trainable, or does not take
            one of the names.
    """
    _check("with_parameters", trainable)
    parameters = Parameters(kwargs)
    if inspect.isclass(trainable):
        given: Any = trainable
        _check_names(given.setup, kwargs)

        def setup(self: Any, config: Config) -> None:
            given.setup(self, config, **parameters.fetch())

        return cast("TrainableT", _subclass(trainable, setup=setup))
    _check_names(trainable, kwargs)

    def bound(config: Config) -> object:
        return trainable(config, **parameters.fetch())

    return cast("TrainableT", _like(bound, trainable))


def with_resources(
    trainable: TrainableT,
    resources: Mapping[str, float]
    | PlacementGroupFactory
    | Callable[[Config], PlacementGroupFactory | Mapping[str, float]],
) -> TrainableT:
    """Return `trainable` with other resources for its trials; they replace its own request.

    Args:
        trainable: A function, or a subclass of Trainable.
        resources: `{"cpu": 2, "gpu": 0.5}`, a PlacementGroupFactory, or a function that takes the
            configuration and returns one of these.

    Raises:
        ValueError: `trainable` is neither, or an amount is invalid.
        TypeError: `resources` has an unknown type.
    """
    _check("with_resources", trainable)
    given: Any = (
        resource_dict_to_pg_factory(resources) if isinstance(resources, Mapping) else resources
    )
    if not isinstance(given, PlacementGroupFactory) and not callable(given):
        requested_resources(given, {})  # raises
    if inspect.isclass(trainable):

        def default_resource_request(
            cls: type[Trainable], config: Config
        ) -> PlacementGroupFactory | None:
            return requested_resources(given, config)

        return cast(
            "TrainableT",
            _subclass(trainable, default_resource_request=classmethod(default_resource_request)),
        )

    def copy(*args: object, **kwargs: object) -> object:
        return trainable(*args, **kwargs)

    wrapped = _like(copy, trainable)
    # `inspect.signature` reads `__wrapped__`.
    wrapped.__dict__.update(_resources=given, __wrapped__=trainable)
    return cast("TrainableT", wrapped)


def _like(wrapper: Callable[..., object], function: Callable[..., object]) -> Callable[..., object]:
    """Give `wrapper` the name and the resources of `function`."""
    wrapper.__name__ = wrapper.__qualname__ = trainable_name(function)
    wrapper.__doc__ = function.__doc__
    if hasattr(function, "_resources"):
        wrapper.__dict__["_resources"] = function._resources
    return wrapper


def _subclass(trainable: type, **methods: object) -> type:
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
            f"tune.{function}({trainable!r}, …): {kind} is no trainable: pass a function that "
            "takes the configuration, or a subclass of `tune.Trainable`."
        )


def _check_names(function: Callable[..., object], names: Mapping[str, object]) -> None:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # some built-in callables have no signature
        return
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    unknown = [name for name in names if name not in parameters]
    if unknown:
        raise ValueError(
            f"tune.with_parameters(…, {', '.join(f'{name}=…' for name in names)}): "
            f"`{function.__qualname__}` takes no `{unknown[0]}`, only {', '.join(parameters)}: use "
            f"the same name in both.{did_you_mean(unknown[0], parameters)}"
        )
