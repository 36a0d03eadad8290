"""Run a training function in two workers with any of the libraries."""

import importlib
import os
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed


def train(
    library: str,
    train_fn: Callable[[dict[str, Any]], None],
    config: dict[str, Any],
    *,
    max_failures: int = 0,
    run: Mapping[str, Any] | None = None,
    datasets: Mapping[str, Any] | None = None,
) -> None:
    """Run `train_fn(config)` in two workers: with the library's `TorchTrainer`, or in this process
    as one of torchrun's workers.

    `run` holds further arguments of `RunConfig`, and `datasets` those of the trainer; torchrun
    ignores both.
    """
    config = {**config, "library": library}
    if library == "torchrun":
        torch.distributed.init_process_group("gloo")
        train_fn(config)
        torch.distributed.destroy_process_group()
        return
    base = importlib.import_module(f"{library}.train")
    defaults = {
        "name": "bench",
        "storage_path": os.path.abspath("storage"),
        "failure_config": base.FailureConfig(max_failures=max_failures),
    }
    importlib.import_module(f"{library}.train.torch").TorchTrainer(
        train_fn,
        train_loop_config=config,
        scaling_config=base.ScalingConfig(num_workers=2),
        run_config=base.RunConfig(**{**defaults, **(run or {})}),
        datasets=datasets,
    ).fit()


def wrap(library: str, model: torch.nn.Module) -> torch.nn.Module:
    """Wrap a model in `DistributedDataParallel` as users of the library do."""
    if library == "torchrun":
        return torch.nn.parallel.DistributedDataParallel(model)
    wrapped: torch.nn.Module = importlib.import_module(f"{library}.train.torch").prepare_model(
        model
    )
    return wrapped
