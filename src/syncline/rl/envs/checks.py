"""Checks of the values that environments return.

Covered: observations and actions against their spaces, rewards, end flags, infos, and finite
numbers in whole fragments. Not covered: multi-agent dicts (`multi_agent_checks`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from syncline.rl.value_types import CheckedSpace, Space, Tree


def mismatch(space: Space, value: object, path: str = "observation") -> str | None:
    """Describe why a value does not belong to a space; return None if it does.

    Values out of bounds are accepted (see `out_of_bounds`), as are lists and numbers of another
    precision, which are converted.
    """
    if isinstance(space, spaces.Dict):
        return _mismatch_of_dict(space, value, path)
    if isinstance(space, spaces.Tuple):
        return _mismatch_of_tuple(space, value, path)
    if isinstance(space, (spaces.Box, spaces.MultiBinary, spaces.MultiDiscrete)):
        return _mismatch_of_array(space, value, path)
    if isinstance(space, spaces.Discrete):
        if isinstance(value, np.ndarray) and value.ndim == 0:
            value = value.item()
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
            return f"{path} is {_shown(value)}, but the space is {space}: it takes one integer"
        last = space.start + space.n - 1
        if not space.start <= value <= last:
            return f"{path} is {value}, but the space is {space}: from {space.start} to {last}"
        return None
    return None if space.contains(value) else f"{path} {_shown(value)} is not in the space {space}"


def out_of_bounds(space: Space, value: Tree, path: str = "observation") -> str | None:
    """Describe the first element of a value out of the bounds of its Box, or return None."""
    if isinstance(space, spaces.Dict):
        found = (out_of_bounds(s, value[key], f"{path}[{key!r}]") for key, s in space.items())
        return next((each for each in found if each), None)
    if isinstance(space, spaces.Tuple):
        found = (out_of_bounds(s, value[i], f"{path}[{i}]") for i, s in enumerate(space))
        return next((each for each in found if each), None)
    if not isinstance(space, spaces.Box):
        return None
    array = np.asarray(value, space.dtype)
    outside = (array < space.low) | (array > space.high)
    if not outside.any():
        return None
    place = tuple(int(i) for i in np.argwhere(outside)[0])
    where = path + (f"[{', '.join(map(str, place))}]" if place else "")
    return f"{where} is {array[place]}, outside of [{space.low[place]}, {space.high[place]}]"


def difference(given: object, found: object, path: str = "") -> str | None:
    """Describe the part in which two spaces are incompatible, or return None.

    Bounds and precision may differ; spaces of other classes are not compared.
    """
    where = f"{path} " if path else ""
    if isinstance(given, spaces.Dict) and isinstance(found, spaces.Dict):
        if set(given.spaces) != set(found.spaces):
            return f"{where}has the keys {sorted(given.spaces)}, not {sorted(found.spaces)}"
        pairs = ((given[key], found[key], f"{path}[{key!r}]") for key in found.spaces)
        return next((each for each in (difference(*pair) for pair in pairs) if each), None)
    if isinstance(given, spaces.Tuple) and isinstance(found, spaces.Tuple):
        if len(given) != len(found):
            return f"{where}has {len(given)} parts, not {len(found)}"
        parts = ((given[i], found[i], f"{path}[{i}]") for i in range(len(found)))
        return next((each for each in (difference(*pair) for pair in parts) if each), None)
    known = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
    containers = (spaces.Dict, spaces.Tuple)
    if isinstance(given, containers) or isinstance(found, containers):
        return f"{where}is {given}, not {found}" if type(given) is not type(found) else None
    if not isinstance(given, known) or not isinstance(found, known):
        return None
    same = given.shape == found.shape
    if isinstance(given, spaces.Discrete) and isinstance(found, spaces.Discrete):
        same = (given.n, given.start) == (found.n, found.start)
    elif type(given) is not type(found):
        same = False
    elif isinstance(given, spaces.MultiDiscrete) and isinstance(found, spaces.MultiDiscrete):
        same = same and bool((given.nvec == found.nvec).all())
    return None if same else f"{where}is {given}, not {found}"


def step_problem(result: object) -> str | None:
    """Describe an error in the result of `step` (except the observation), or return None."""
    if not isinstance(result, tuple) or len(result) != 5:
        size = f" of {len(result)}" if isinstance(result, (tuple, list)) else ""
        return (
            f"step() returned a {type(result).__name__}{size}, but must return a tuple of 5: "
            "(observation, reward, terminated, truncated, info)"
        )
    _, reward, terminated, truncated, info = result
    problem = reward_problem(reward)
    if problem:
        return problem
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        if not isinstance(flag, (bool, np.bool_, int, np.integer)):
            return f"{name} is {_shown(flag)}, but must be True or False"
    return None if isinstance(info, Mapping) else f"info is {_shown(info)}, but must be a dict"


def reward_problem(reward: Tree, path: str = "reward") -> str | None:
    """Describe an error in a reward, or return None."""
    if isinstance(reward, np.ndarray) and reward.size == 1:
        reward = reward.item()
    if not isinstance(reward, (int, float, np.integer, np.floating, np.bool_)):
        return f"{path} is {_shown(reward)}, but must be a number"
    return None if math.isfinite(reward) else f"{path} is {reward}"


def reset_problem(result: object) -> str | None:
    """Describe an error in the result of `reset` (except the observation), or return None."""
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], Mapping):
        return (
            f"reset() returned {_shown(result)}, but must return the tuple (observation, info) "
            "with a dict as info"
        )
    return None


def not_finite(column: Any, name: str = "observation") -> str | None:
    """Return the location of the first NaN or infinity in a column [T, N, …], or None.

    A column is an array, or a dict or tuple of columns.
    """
    if isinstance(column, Mapping):
        found = (not_finite(value, f"{name}[{key!r}]") for key, value in column.items())
        return next((each for each in found if each), None)
    if isinstance(column, (tuple, list)):
        found = (not_finite(value, f"{name}[{i}]") for i, value in enumerate(column))
        return next((each for each in found if each), None)
    if column.dtype.kind != "f" or math.isfinite(column.sum(dtype=np.float64)):
        return None
    bad = np.argwhere(~np.isfinite(column))
    if not len(bad):
        return None
    place = tuple(int(i) for i in bad[0])
    element = f"[{', '.join(map(str, place[2:]))}]" if place[2:] else ""
    return f"{name}{element} of environment {place[1]} at step {place[0]} is {column[place]}"


def _mismatch_of_dict(space: spaces.Dict, value: object, path: str) -> str | None:
    if not isinstance(value, Mapping):
        return f"{path} is {_shown(value)}, but the space is a Dict with {sorted(space.keys())}"
    missing = [key for key in space if key not in value]
    if missing:
        return f"{path} lacks the keys {missing}; it has {list(value)}"
    extra = [key for key in value if key not in space.spaces]
    if extra:
        return f"{path} has the keys {extra}, which the space lacks; it has {list(space.keys())}"
    found = (mismatch(each, value[key], f"{path}[{key!r}]") for key, each in space.items())
    return next((each for each in found if each), None)


def _mismatch_of_tuple(space: spaces.Tuple[Any], value: object, path: str) -> str | None:
    if not isinstance(value, (tuple, list)) or len(value) != len(space):
        return f"{path} is {_shown(value)}, but the space is a Tuple of {len(space)}"
    found = (mismatch(each, value[i], f"{path}[{i}]") for i, each in enumerate(space))
    return next((each for each in found if each), None)


def _mismatch_of_array(space: CheckedSpace, value: Tree, path: str) -> str | None:
    try:
        array = np.asarray(value)
    except ValueError:
        return f"{path} {_shown(value)} is not an array; the space is {space}"
    if array.shape != space.shape:
        return f"{path} has the shape {array.shape}, but the space has {space.shape}"
    if not np.can_cast(array.dtype, space.dtype, "same_kind"):
        integers = array.dtype.kind in "iu" and np.dtype(space.dtype).kind in "iu"
        if not integers and array.dtype != np.bool_:
            return f"{path} has the dtype {array.dtype}, but the space has {space.dtype}"
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        where = path + (f"[{', '.join(map(str, place))}]" if place else "")
        return f"{where} is {array[place]}"
    if isinstance(space, spaces.MultiBinary) and ((array < 0) | (array > 1)).any():
        return f"{path} is {_shown(value)}, but the space is {space}: only 0 and 1"
    if isinstance(space, spaces.MultiDiscrete):
        start = np.asarray(space.start)
        if ((array < start) | (array >= start + space.nvec)).any():
            return f"{path} is {_shown(value)}, but the space is {space}"
    return None


def _shown(value: object) -> str:
    text = repr(value)
    text = text if len(text) <= 200 else f"{text[:200]}…"
    return f"{text} ({type(value).__name__})"
