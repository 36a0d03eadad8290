"""Trainables by name, and whether one can be sent to the processes of trials.

Names are known in the program only: a trial's process gets the trainable itself.
"""

from __future__ import annotations

import difflib
import inspect
import logging
import pickle
from collections.abc import Callable
from typing import Any, cast

from syncline.core import culprits
from syncline.core.pickling import can_pickle, dumps
from syncline.tune.error import TuneError
from syncline.tune.trainable.function_trainable import FunctionTrainable, wrap_function
from syncline.tune.trainable.names import trainable_name
from syncline.tune.trainable.trainable import Trainable

logger = logging.getLogger("syncline")

LARGE_BYTES = 95 * 1024**2
"""A trainable that carries more is sent to every process that hosts a trial, which costs time and
memory each time.
"""

_trainables: dict[str, type[Trainable]] = {}
_environments: dict[str, Callable[..., Any]] = {}


def register_trainable(
    name: str, trainable: Callable[..., Any] | type[Trainable], warn: bool = True
) -> None:
    """Make a function or class known under a name, which `Tuner` and `tune.run` then take in its
    place. `warn` is for older programs.

    Raises:
        TypeError: it is neither a function nor a class derived from Trainable.
        ValueError: the function does not take the configuration, and only that.
    """
    _trainables[name] = as_trainable_class(trainable, name)


def register_env(name: str, env_creator: Callable[..., Any]) -> None:
    """Make an environment for reinforcement learning known under a name. TypeError if `env_creator`
    cannot be called.
    """
    if not callable(env_creator):
        raise TypeError(
            f"register_env({name!r}, {env_creator!r}): give a function that makes the environment."
        )
    _environments[name] = env_creator


def get_trainable_cls(trainable_name: str) -> type[Trainable]:
    """The class that is known under a name. TuneError where there is none."""
    validate_trainable(trainable_name)
    return _trainables[trainable_name]


def validate_trainable(trainable_name: str) -> None:
    """TuneError, with what is most like it, if no trainable is known under that name."""
    if trainable_name in _trainables:
        return
    near = difflib.get_close_matches(trainable_name, _trainables, n=1)
    known = (
        f"did you mean {near[0]!r}?"
        if near
        else f"registered are: {', '.join(sorted(_trainables)) or 'none'}."
    )
    raise TuneError(
        f"No trainable is registered as {trainable_name!r}: {known} Register it with `tune.register_trainable({trainable_name!r}, …)`, or "
        "pass the function or class itself."
    )


def is_function_trainable(trainable: str | Callable[..., Any] | type) -> bool:
    """Whether it is, or was made of, a function."""
    if isinstance(trainable, str):
        trainable = get_trainable_cls(trainable)
    if inspect.isclass(trainable):
        return issubclass(trainable, FunctionTrainable)
    return callable(trainable)


def as_trainable_class(
    trainable: str | Callable[..., Any] | type, name: str | None = None
) -> type[Trainable]:
    """The class to train for whatever a program gave: a name, a function (or any object that can be
    called), a class.

    Raises:
        TuneError: an unknown name.
        TypeError, ValueError: as `register_trainable`.
    """
    if isinstance(trainable, str):
        return get_trainable_cls(trainable)
    if inspect.isclass(trainable):
        if not issubclass(trainable, Trainable):
            raise TypeError(
                f"The class {trainable.__name__} cannot be trained, because it is not derived from `tune.Trainable`: derive it, or give a "
                "function that takes the configuration."
            )
        return trainable
    return wrap_function(trainable, name)


def check_picklable(trainable: type[Trainable], name: str) -> None:
    """That a trainable can be sent to the processes of its trials; a warning if it carries very
    much. The engine should run by now.

    Raises:
        TypeError: it cannot be pickled; the message names the part of it that cannot.
    """
    carried = 0

    def count(buffer: pickle.PickleBuffer) -> None:
        nonlocal carried
        carried += buffer.raw().nbytes

    try:
        stream, _ = dumps(trainable, count)
    except Exception as error:
        raise TypeError(_unpicklable(trainable, name, error)) from error
    carried += len(stream)
    if carried > LARGE_BYTES:
        logger.warning(
            "The trainable `%s` carries %.0f MiB of data from the program, which is sent to every process that hosts a trial. Pass large "
            "objects with `tune.with_parameters(%s, name=value)`: they are then stored once.",
            name,
            carried / 1024**2,
            name,
        )


def _unpicklable(trainable: type[Trainable], name: str, error: Exception) -> str:
    value: Any = trainable
    if issubclass(trainable, FunctionTrainable) and "_function" in vars(trainable):
        value = cast("Any", trainable)._function
    # A class that goes by value may fail for its function's sake only.
    failure = can_pickle(value) if value is not trainable else error
    culprit = culprits.find(
        value if failure else trainable, f"`{trainable_name(value)}`", failure or error, can_pickle
    )
    return (
        f"The trainable `{name}` cannot be sent to the processes of its trials, because {culprit.path} is a {culprit.type_name}, which "
        f"cannot be pickled ({culprit.reason}): make it inside the trainable, or keep it out of what the trainable refers to."
    )
