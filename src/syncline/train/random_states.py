"""States of this process's global random generators: Python, NumPy, and torch if it is imported.

The torch part is in `torch.random_generators`. Generators that the program created are not covered.
A state consists of plain values that JSON can hold.
"""

from __future__ import annotations

import base64
import random
import sys
from array import array
from collections.abc import Mapping
from typing import Any

import numpy as np

from syncline.runs.json_values import JsonObject, Record

States = Record


def capture() -> JsonObject:
    """Return the current states, about 13 kB as JSON."""
    states: JsonObject = {"python": _python()}
    if "numpy.random" in sys.modules:
        state: Any = np.random.get_state(legacy=False)
        states["numpy"] = {**_plain(state), "state": _plain(state["state"])}
    if _uses_torch():
        from syncline.train.torch import random_generators as torch_states  # loads torch

        states.update(torch_states.capture())
    return states


def restore(states: States) -> None:
    """Restore states that `capture` has returned.

    Raises:
        ValueError, KeyError, TypeError: They cannot be read.
    """
    version, words, gauss = states["python"]
    random.setstate((int(version), tuple(array("I", base64.b64decode(words))), gauss))
    if "numpy" in states:
        np.random.set_state(_arrays(states["numpy"]))
    if "torch" in states and _uses_torch():
        from syncline.train.torch import random_generators as torch_states  # loads torch

        torch_states.restore(states)


def _python() -> list[object]:
    version, words, gauss = random.getstate()
    return [version, base64.b64encode(array("I", words)).decode(), gauss]


def _plain(values: States) -> JsonObject:
    """Replace arrays by `[type, base64]`."""
    return {
        name: [value.dtype.str, base64.b64encode(value.tobytes()).decode()]
        if isinstance(value, np.ndarray)
        else value
        for name, value in values.items()
    }


def _arrays(values: States) -> JsonObject:
    """Invert `_plain`, recursively."""
    arrays: JsonObject = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            arrays[name] = _arrays(value)
        elif isinstance(value, list):
            arrays[name] = np.frombuffer(base64.b64decode(value[1]), value[0])
        else:
            arrays[name] = value
    return arrays


def _uses_torch() -> bool:
    # Another thread may be importing torch: the module may exist without its content.
    return hasattr(sys.modules.get("torch"), "default_generator")
