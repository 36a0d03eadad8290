"""Spaces as plain dicts, in RLlib's format, for JSON and msgpack.

Covered: Box, Discrete, MultiBinary, MultiDiscrete, Text, and nested Dict and Tuple. Not covered:
other spaces, and the random generators of spaces.
"""

from __future__ import annotations

import base64
import io
import zlib
from typing import TYPE_CHECKING

import numpy as np
from gymnasium import spaces

from syncline.rl.value_types import CheckedSpace, Space

if TYPE_CHECKING:
    from syncline.runs.json_values import JsonObject


def gym_space_to_dict(space: Space | None) -> JsonObject | None:
    """Return a space as a dict of plain values; None for None.

    Raises:
        ValueError: The kind of space is not supported.
    """
    if space is None:
        return None
    if isinstance(space, spaces.Box):
        return {
            "space": "box",
            "low": _array_to_text(space.low),
            "high": _array_to_text(space.high),
            "shape": list(space.shape),
            "dtype": space.dtype.str,
        }
    if isinstance(space, spaces.Discrete):
        return {"space": "discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiBinary):
        size = space.n if isinstance(space.n, int) else [int(n) for n in space.n]
        return {"space": "multi-binary", "n": size}
    if isinstance(space, spaces.MultiDiscrete):
        made = {
            "space": "multi-discrete",
            "nvec": _array_to_text(space.nvec),
            "dtype": np.dtype(space.dtype).str,
        }
        return {**made, "start": _array_to_text(space.start)} if np.any(space.start) else made
    if isinstance(space, spaces.Text):
        return {
            "space": "text",
            "min_length": int(space.min_length),
            "max_length": int(space.max_length),
            "charset": "".join(space.character_list),
        }
    if isinstance(space, spaces.Tuple):
        return {"space": "tuple", "spaces": [gym_space_to_dict(each) for each in space.spaces]}
    if isinstance(space, spaces.Dict):
        parts = {key: gym_space_to_dict(each) for key, each in space.spaces.items()}
        return {"space": "dict", "spaces": parts}
    raise ValueError(
        f"The space {space} of type {type(space).__name__} cannot be saved. Supported: Box, "
        "Discrete, MultiBinary, MultiDiscrete, Text, Dict and Tuple."
    )


def gym_space_from_dict(saved: JsonObject | None) -> CheckedSpace:
    """Return the space of `gym_space_to_dict`.

    Raises:
        ValueError: The kind of space is not supported.
    """
    if saved is None:
        return None
    kind = saved["space"]
    if kind == "box":
        low, high = _array_from_text(saved["low"]), _array_from_text(saved["high"])
        return spaces.Box(low, high, tuple(saved["shape"]), np.dtype(saved["dtype"]))
    if kind == "discrete":
        return spaces.Discrete(saved["n"], start=saved.get("start", 0))
    if kind == "multi-binary":
        return spaces.MultiBinary(saved["n"])
    if kind == "multi-discrete":
        start = _array_from_text(saved["start"]) if "start" in saved else None
        dtype = np.dtype(saved["dtype"])
        return spaces.MultiDiscrete(_array_from_text(saved["nvec"]), dtype=dtype, start=start)
    if kind == "text":
        return spaces.Text(
            saved["max_length"], min_length=saved["min_length"], charset=saved["charset"]
        )
    if kind == "tuple":
        return spaces.Tuple([gym_space_from_dict(each) for each in saved["spaces"]])
    if kind == "dict":
        return spaces.Dict({key: gym_space_from_dict(s) for key, s in saved["spaces"].items()})
    raise ValueError(f"Cannot read a space of kind {kind!r}.")


def _array_to_text(array: np.ndarray) -> str:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return base64.b64encode(zlib.compress(buffer.getvalue())).decode("ascii")


def _array_from_text(text: str) -> np.ndarray:
    data = zlib.decompress(base64.b64decode(text))
    array: np.ndarray = np.load(io.BytesIO(data), allow_pickle=False)
    return array
