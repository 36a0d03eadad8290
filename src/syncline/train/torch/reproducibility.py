"""`enable_reproducibility`: the same program, the same numbers."""

from __future__ import annotations

import os
import random

import numpy as np
import torch


def enable_reproducibility(seed: int = 0) -> None:
    """Make this process deterministic: seed torch (CUDA too), random and numpy, and let torch
    choose deterministic algorithms only.

    Slower; an operation that has no deterministic algorithm raises RuntimeError. Worker processes
    of DataLoaders are covered: torch derives their seeds from its own. Call it first in the
    training function, before CUDA is used. Datasets of `syncline.data` are shuffled and transformed
    in other processes: `DataContext.get_current().seed = 0`, set before they are made, makes these
    deterministic, too.
    """
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    # Read by cuBLAS when it is first used; without it its results depend on the order in which
    # streams get their work space.
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
