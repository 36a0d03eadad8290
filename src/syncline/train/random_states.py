"""The states of this process's random generators: those of Python and NumPy here, those of torch in
`torch.random_states`.

Only what the program has loaded is looked at; generators that it made itself are its own matter. A
state is plain values for JSON.
"""

from __future__ import annotations

import base64
import importlib
import random
import sys
from array import array
from collections.abc import Mapping
from typing import Any

import numpy as np


def capture() -> dict[str, Any]:
    """How all of them stand now; some 13 kB as JSON."""
    states: dict[str, Any] = {"python": _python()}
    if "numpy.random" in sys.modules:
        states["numpy"] = _numpy()
    if _uses_torch():
        states.update(_torch_states().capture())
    return states


def restore(states: Mapping[str, Any]) -> None:
    """Let the generators go on where `capture` found them. ValueError, KeyError or TypeError where
    that cannot be read.
    """
    version, words, gauss = states["python"]
    random.setstate((int(version), tuple(array("I", base64.b64decode(words))), gauss))
    if "numpy" in states:
        np.random.set_state(_arrays(states["numpy"]))
    if "torch" in states and _uses_torch():
        _torch_states().restore(states)


def _python() -> list[Any]:
    version, words, gauss = random.getstate()
    return [version, base64.b64encode(array("I", words)).decode(), gauss]


def _numpy() -> dict[str, Any]:
    state: Any = np.random.get_state(legacy=False)
    return {**_plain(state), "state": _plain(state["state"])}


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same with arrays as `[type, base64]`."""
    return {
        name: [value.dtype.str, base64.b64encode(value.tobytes()).decode()]
        if isinstance(value, np.ndarray)
        else value
        for name, value in values.items()
    }


def _arrays(values: Mapping[str, Any]) -> dict[str, Any]:
    """What `_plain` was made of, also deeper down."""
    made: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            made[name] = _arrays(value)
        elif isinstance(value, list):
            made[name] = np.frombuffer(base64.b64decode(value[1]), value[0])
        else:
            made[name] = value
    return made


def _uses_torch() -> bool:
    return hasattr(
        sys.modules.get("torch"), "default_generator"
    )  # its import may be under way in another thread


def _torch_states() -> Any:
    return importlib.import_module("syncline.train.torch.random_states")
