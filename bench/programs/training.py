"""One way to run a train function in two workers, whoever launches them."""

import importlib
import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed


def train(library: str, train_fn: Callable[[dict[str, Any]], None], config: dict[str, Any], max_failures: int = 0) -> None:
    """Runs `train_fn(config)` in two workers: with the library's `TorchTrainer`, or in this process as torchrun's worker."""
    config = {**config, "library": library}
    if library == "torchrun":
        torch.distributed.init_process_group("gloo")
        train_fn(config)
        torch.distributed.destroy_process_group()
        return
    base = importlib.import_module(f"{library}.train")
    storage_path = os.path.abspath("storage")
    importlib.import_module(f"{library}.train.torch").TorchTrainer(
        train_fn,
        train_loop_config=config,
        scaling_config=base.ScalingConfig(num_workers=2),
        run_config=base.RunConfig(name="bench", storage_path=storage_path, failure_config=base.FailureConfig(max_failures=max_failures)),
    ).fit()


def wrap(library: str, model: torch.nn.Module) -> torch.nn.Module:
    """The model in `DistributedDataParallel`, wrapped the way that users of the library do it."""
    if library == "torchrun":
        return torch.nn.parallel.DistributedDataParallel(model)
    wrapped: torch.nn.Module = importlib.import_module(f"{library}.train.torch").prepare_model(model)
    return wrapped
