"""Registry of trainables by name, and the check that a trainable can be sent to processes.

Names are local to the program: the process of a trial gets the trainable itself, together with the
names of environments and other parts (`WithNames`). Installed packages
add names with entry points of the group `syncline.trainables`, which load on first use; the
algorithms of reinforcement learning do.
"""

from __future__ import annotations

import inspect
import logging
import pickle
from collections.abc import Callable
from importlib import metadata
from typing import Any, cast

from syncline.core import serializability
from syncline.core.pickling import can_pickle, dumps
from syncline.suggestions import did_you_mean
from syncline.tune.error import TuneError
from syncline.tune.trainable.function_trainable import FunctionTrainable, wrap_function
from syncline.tune.trainable.trainable import Trainable
from syncline.tune.trainable.trainable_state import trainable_name

logger = logging.getLogger("syncline")

ENTRY_POINTS = "syncline.trainables"
"""Group of entry points: names of trainables and where they are."""

LARGE_BYTES = 95 * 1024**2
"""Size of a trainable above which a warning is logged: every process of a trial gets a copy."""

_trainables: dict[str, type[Trainable]] = {}
_environments: dict[str, Callable[..., object]] = {}
_parts: dict[str, dict[str, Any]] = {}


def register_trainable(
    name: str, trainable: Callable[..., object] | type[Trainable], warn: bool = True
) -> None:
    """Register a function or class under a name, which `Tuner` and `tune.run` accept instead of it.
    `warn` has no effect.

    Raises:
        TypeError: It is neither a function nor a subclass of Trainable.
        ValueError: The function does not take exactly the configuration.
    """
    _trainables[name] = as_trainable_class(trainable, name)


def register_env(name: str, env_creator: Callable[..., object]) -> None:
    """Register an environment for reinforcement learning under a name.

    Raises:
        TypeError: `env_creator` is not callable.
    """
    if not callable(env_creator):
        raise TypeError(
            f"register_env({name!r}, {env_creator!r}): pass a function that creates the "
            "environment."
        )
    _environments[name] = env_creator


def registered_environments() -> dict[str, Callable[..., object]]:
    """Return the functions that create the registered environments, by name; a copy."""
    return dict(_environments)


def register_part(kind: str, name: str, value: Any) -> None:
    """Register a part of trainables, such as a network, under a name."""
    _parts.setdefault(kind, {})[name] = value


def registered_parts(kind: str) -> dict[str, Any]:
    """Return the registered parts of a kind, by name; a copy."""
    return dict(_parts.get(kind, {}))


class WithNames:
    """A trainable that registers the names of this program where it is unpickled.

    Unpickling gives the trainable itself. Values that cannot be pickled keep their names here only.
    """

    def __init__(self, trainable: type[Trainable]) -> None:
        self._trainable = trainable

    def __reduce__(self) -> tuple[Any, ...]:
        environments = {
            name: value for name, value in _environments.items() if can_pickle(value) is None
        }
        parts = {
            kind: {name: value for name, value in each.items() if can_pickle(value) is None}
            for kind, each in _parts.items()
        }
        return _with_registered, (self._trainable, environments, parts)


def _with_registered(
    trainable: type[Trainable],
    environments: dict[str, Callable[..., object]],
    parts: dict[str, dict[str, Any]],
) -> type[Trainable]:
    _environments.update(environments)
    for kind, each in parts.items():
        _parts.setdefault(kind, {}).update(each)
    return trainable


def get_trainable_cls(trainable_name: str) -> type[Trainable]:
    """Return the class registered under a name.

    Raises:
        TuneError: No trainable is registered under it.
    """
    validate_trainable(trainable_name)
    return _trainables[trainable_name]


def validate_trainable(trainable_name: str) -> None:
    """Check that a trainable is registered under a name.

    Raises:
        TuneError: There is none; the message has the closest name.
    """
    if trainable_name in _trainables:
        return
    installed = installed_trainables()
    if trainable_name in installed:
        register_trainable(trainable_name, installed[trainable_name].load())
        return
    known = sorted({*_trainables, *installed})
    raise TuneError(
        f"No trainable is registered as {trainable_name!r}."
        f"{did_you_mean(trainable_name, known)} Registered: "
        f"{', '.join(known) or 'none'}. Register it with "
        f"`tune.register_trainable({trainable_name!r}, …)`, or pass the function or class itself."
    )


def installed_trainables() -> dict[str, metadata.EntryPoint]:
    """Return the trainables that installed packages add, by name, without loading them."""
    return {point.name: point for point in metadata.entry_points(group=ENTRY_POINTS)}


def is_function_trainable(trainable: str | Callable[..., object] | type) -> bool:
    """Return True for a function and for a class made from one."""
    if isinstance(trainable, str):
        trainable = get_trainable_cls(trainable)
    if inspect.isclass(trainable):
        return issubclass(trainable, FunctionTrainable)
    return callable(trainable)


def as_trainable_class(
    trainable: str | Callable[..., object] | type, name: str | None = None
) -> type[Trainable]:
    """Return the trainable class for a name, a function or other callable, or a class.

    Raises:
        TuneError: Unknown name.
        TypeError, ValueError: See `register_trainable`.
    """
    if isinstance(trainable, str):
        return get_trainable_cls(trainable)
    if inspect.isclass(trainable):
        if not issubclass(trainable, Trainable):
            raise TypeError(
                f"The class {trainable.__name__} cannot be trained, because it is no subclass of "
                "`tune.Trainable`: derive it from that, or pass a function that takes the "
                "configuration."
            )
        return trainable
    return wrap_function(trainable, name)


def check_picklable(trainable: type[Trainable], name: str) -> None:
    """Check that a trainable can be sent to processes, and warn if it is large. The engine must
    run, so that bound parameters are pickled as references.

    Raises:
        TypeError: It cannot be pickled; the message names the part at fault.
    """
    size = 0

    def count(buffer: pickle.PickleBuffer) -> None:
        nonlocal size
        size += buffer.raw().nbytes

    try:
        stream, _ = dumps(trainable, count)
    except Exception as error:
        raise TypeError(_unpicklable(trainable, name, error)) from error
    size += len(stream)
    if size > LARGE_BYTES:
        logger.warning(
            "The trainable `%s` contains %.0f MiB of data, which are copied to the process of "
            "every trial. Pass large objects with `tune.with_parameters(%s, name=value)` to store "
            "them once.",
            name,
            size / 1024**2,
            name,
        )


def _unpicklable(trainable: type[Trainable], name: str, error: Exception) -> str:
    value: Any = trainable
    if issubclass(trainable, FunctionTrainable) and "_function" in vars(trainable):
        value = cast("Any", trainable)._function
    # A class pickled by value may fail because of its function only.
    failure = can_pickle(value) if value is not trainable else error
    culprit = serializability.find_unpicklable(
        value if failure else trainable, f"`{trainable_name(value)}`", failure or error, can_pickle
    )
    return (
        f"The trainable `{name}` cannot be sent to the processes of its trials, because "
        f"{culprit.path} is a {culprit.type_name}, which cannot be pickled ({culprit.reason}): "
        "create it inside the trainable, or remove the reference to it."
    )
