"""States of this process's global random generators: Python, NumPy, and torch if it is imported.

Covered of torch are the CPU generator, and those of CUDA devices once the program uses CUDA.
Generators that the program created are not covered. A state consists of plain values that JSON can
hold.
"""

from __future__ import annotations

import base64
import os
import random
import sys
from array import array
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from syncline.optional import deferred

if TYPE_CHECKING:
    import numpy as np
else:
    np = deferred("numpy")

States: TypeAlias = Mapping[str, Any]


def capture() -> dict[str, Any]:
    """Return the current states, about 13 kB as JSON. Does not initialize CUDA."""
    version, words, gauss = random.getstate()
    states: dict[str, Any] = {"python": [version, _encoded(array("I", words)), gauss]}
    if "numpy.random" in sys.modules:
        state: Any = np.random.get_state(legacy=False)
        states["numpy"] = {**_plain(state), "state": _plain(state["state"])}
    torch = _torch()
    if torch is not None:
        states["torch"] = _encoded(torch.get_rng_state().numpy())
        if torch.cuda.is_initialized():
            states["cuda"] = [_encoded(one.numpy()) for one in torch.cuda.get_rng_state_all()]
    return states


def restore(states: States) -> None:
    """Restore states that `capture` has returned.

    The states of CUDA devices are set on at most as many devices as there are; if the program has
    not used CUDA yet, when it does.

    Raises:
        ValueError, KeyError, TypeError: They cannot be read.
    """
    version, words, gauss = states["python"]
    random.setstate((int(version), tuple(array("I", base64.b64decode(words))), gauss))
    if "numpy" in states:
        np.random.set_state(_arrays(states["numpy"]))
    torch = _torch()
    if "torch" in states and torch is not None:
        torch.set_rng_state(_tensor(torch, states["torch"]))
        devices = states.get("cuda") or ()
        if devices and torch.cuda.is_available():
            for number, text in zip(range(torch.cuda.device_count()), devices, strict=False):
                torch.cuda.set_rng_state(_tensor(torch, text), number)


def seed_anew() -> None:
    """Seed the generators from the system, as in a new process."""
    random.seed()
    if "numpy.random" in sys.modules:
        # Without an argument it takes ten times as long, for as many random bits.
        np.random.seed(np.frombuffer(os.urandom(16), np.uint32))
    torch = _torch()
    if torch is not None:
        torch.default_generator.seed()


def _encoded(state: Any) -> str:
    return base64.b64encode(state.tobytes()).decode()


def _tensor(torch: Any, text: str) -> Any:
    return torch.from_numpy(np.frombuffer(base64.b64decode(text), np.uint8).copy())


def _plain(values: States) -> dict[str, Any]:
    """Replace arrays by `[type, base64]`."""
    return {
        name: [value.dtype.str, _encoded(value)] if isinstance(value, np.ndarray) else value
        for name, value in values.items()
    }


def _arrays(values: States) -> dict[str, Any]:
    """Invert `_plain`, recursively."""
    arrays: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            arrays[name] = _arrays(value)
        elif isinstance(value, list):
            arrays[name] = np.frombuffer(base64.b64decode(value[1]), value[0])
        else:
            arrays[name] = value
    return arrays


def _torch() -> Any:
    torch = sys.modules.get("torch")
    # Another thread may be importing torch: the module may exist without its content.
    return torch if hasattr(torch, "default_generator") else None
