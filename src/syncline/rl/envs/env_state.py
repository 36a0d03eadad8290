"""Exact states of environments, to continue runs after a restart.

Covered: environments with `get_state` and `set_state`, and others by their attributes, including
wrappers and random generators. Not covered: environments whose attributes cannot be pickled, such
as simulators in C++ or open windows; their state is None, and they begin new episodes.

Attributes are saved instead of objects, because a program may move its classes to another module,
and because many gymnasium environments pickle only their constructor arguments (`EzPickle`) and
would lose their state. Restoring a state does not replace the environment object.
"""

from __future__ import annotations

import io
import logging
import pickle
from collections.abc import Sequence
from typing import Any

import cloudpickle
import gymnasium as gym

from syncline.rl.envs.older_gym import OlderGymEnv
from syncline.rl.value_types import Env, StateDict

logger = logging.getLogger("syncline")

_NOT_SAVED = frozenset({"_cached_spec", "spec"})
"""Attributes of layers that the restored environment already has."""

_WRAPPERS = (gym.Wrapper, OlderGymEnv)

_warned: set[str] = set()


def get_env_state(env: Any) -> bytes | None:
    """Return the state of an environment with its wrappers, or None if it cannot be saved."""
    layers = _layers(env)
    try:
        states = [_layer_state(layer) for layer in layers]
        buffer = io.BytesIO()
        _StatePickler(buffer, layers).dump([_type_name(layer) for layer in layers])
        _StatePickler(buffer, layers).dump(states)
    except Exception as error:
        _warn(layers[-1], error)
        return None
    return buffer.getvalue()


def set_env_state(env: Any, state: bytes) -> None:
    """Restore the state that `get_env_state` returned.

    Raises:
        ValueError: Its classes differ from those of the saved environment.
    """
    layers = _layers(env)
    buffer = io.BytesIO(state)
    saved = pickle.load(buffer)
    present = [_type_name(layer) for layer in layers]
    if saved != present:
        raise ValueError(
            f"The checkpoint contains an environment with the layers {saved}, but this one has "
            f"{present} (outermost wrapper first). Restore with the same environment."
        )
    for layer, layer_state in zip(layers, _StateUnpickler(buffer, layers).load(), strict=True):
        _set_layer_state(layer, layer_state)


def _layers(env: Env) -> list[Any]:
    """Return the wrappers of an environment, outermost first, and then the environment."""
    layers = [env]
    while isinstance(layers[-1], _WRAPPERS):
        layers.append(layers[-1].env)
    return layers


def _layer_state(layer: Any) -> StateDict:
    if _offers_state(layer):
        state = {"own": layer.get_state()}
        if isinstance(layer, gym.Env):
            state["np_random"] = layer.__dict__.get("_np_random")
        return state
    return {"attributes": {k: v for k, v in vars(layer).items() if k not in _not_saved(layer)}}


def _set_layer_state(layer: Any, state: StateDict) -> None:
    if "own" in state:
        layer.set_state(state["own"])
        if state.get("np_random") is not None:
            layer._np_random = state["np_random"]
        return
    attributes = state["attributes"]
    for name in [name for name in vars(layer) if name not in _not_saved(layer)]:
        if name not in attributes:
            del layer.__dict__[name]
    layer.__dict__.update(attributes)


def _not_saved(layer: object) -> frozenset[str]:
    """Return the attributes to skip; for wrappers including the environment, a separate layer."""
    return _NOT_SAVED | {"env"} if isinstance(layer, _WRAPPERS) else _NOT_SAVED


def _offers_state(layer: object) -> bool:
    """Return True if the class of a layer defines both methods (wrappers forward attributes)."""
    return callable(getattr(type(layer), "get_state", None)) and callable(
        getattr(type(layer), "set_state", None)
    )


def _type_name(layer: object) -> str:
    return type(layer).__name__


def _warn(env: Env, error: Exception) -> None:
    name = _type_name(env)
    if name in _warned:
        return
    _warned.add(name)
    logger.warning(
        "The state of the environment %s cannot be saved (%s: %s). A restored run will begin new "
        "episodes. Define get_state() and set_state(state) in its class for an exact restore.",
        name,
        type(error).__name__,
        error,
    )


class _StatePickler(cloudpickle.Pickler):  # type: ignore[misc]  # untyped base
    """Pickles attributes; references to layers are resolved to the existing layers on load."""

    def __init__(self, file: io.BytesIO, layers: Sequence[object]) -> None:
        super().__init__(file)
        self._places = {id(layer): index for index, layer in enumerate(layers)}

    def persistent_id(self, obj: object) -> int | None:
        return self._places.get(id(obj))

    def reducer_override(self, obj: object) -> Any:
        """Also save environments inside of environments by their attributes."""
        if isinstance(obj, gym.Env) or "_ezpickle_args" in getattr(obj, "__dict__", ()):
            return _empty, (type(obj),), dict(vars(obj)), None, None, _fill
        return super().reducer_override(obj)


class _StateUnpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, layers: Sequence[object]) -> None:
        super().__init__(file)
        self._layers = layers

    def persistent_load(self, pid: int) -> Any:
        return self._layers[pid]


def _empty(cls: type) -> Any:
    return object.__new__(cls)


def _fill(obj: object, attributes: StateDict) -> None:
    obj.__dict__.update(attributes)
