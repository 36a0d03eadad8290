"""How long a model's gradients keep its rank waiting, as `DistributedDataParallel` measures it now
and then.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel


class _Iterations:
    """Counts the calls of a model that a backward pass may follow; a class, so that models with it
    can be pickled.
    """

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, model: torch.nn.Module, inputs: Any) -> None:
        self.count += torch.is_grad_enabled()


def meter(model: DistributedDataParallel) -> Callable[[], float]:
    """Gives the seconds so far that were spent on reducing gradients and not hidden behind the
    backward pass; the model may go meanwhile.

    Torch measures some iterations: the first ten, then each hundredth. Their mean stands for all.
    """
    known, iterations = weakref.ref(model), _Iterations()
    model.register_forward_pre_hook(iterations)

    def exposed_s() -> float:
        model = known()
        if model is None:
            return 0.0
        measured: dict[str, float] = model._get_ddp_logging_data()  # type: ignore[no-untyped-call]
        exposed_ns = measured.get("avg_backward_comm_time", 0) - measured.get(
            "avg_backward_compute_comm_overlap_time", 0
        )
        return max(0.0, exposed_ns / 1e9) * iterations.count

    return exposed_s
