"""The states of torch's random generators: that of the CPU, and those of all CUDA devices once the
program uses CUDA.

Not covered: generators that the program made itself, and those of other devices.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def capture() -> dict[str, Any]:
    """How they stand now. CUDA is asked only where the program has used it, so that nothing is
    initialised here.
    """
    states: dict[str, Any] = {"torch": _text(torch.get_rng_state())}
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        states["cuda"] = [_text(state) for state in torch.cuda.get_rng_state_all()]
    return states


def restore(states: Mapping[str, Any]) -> None:
    """Let them go on where `capture` found them; on as many CUDA devices as there are, now or when
    the program first uses CUDA.
    """
    torch.set_rng_state(_state(states["torch"]))
    devices = states.get("cuda") or ()
    if devices and torch.cuda.is_available():
        for number, text in zip(range(torch.cuda.device_count()), devices, strict=False):
            torch.cuda.set_rng_state(_state(text), number)


def _text(state: torch.Tensor) -> str:
    return base64.b64encode(state.numpy().tobytes()).decode()


def _state(text: str) -> torch.Tensor:
    return torch.from_numpy(np.frombuffer(base64.b64decode(text), np.uint8).copy())
