"""One way to search with syncline and with Ray Tune, which share their API."""

import importlib
import os
from types import ModuleType
from typing import Any

CPUS = 2
METRIC, MODE = "loss", "min"


def start(library: str, cpus: int = CPUS) -> ModuleType:
    """Start the library's engine with n CPUs; return its module `tune`."""
    importlib.import_module(library).init(num_cpus=cpus)
    return importlib.import_module(f"{library}.tune")


def run_config(tune: ModuleType, name: str, **others: Any) -> Any:
    """Return the configuration of a quiet search in the working directory."""
    return tune.RunConfig(name=name, storage_path=os.path.abspath("storage"), verbose=0, **others)


def tuner(
    tune: ModuleType,
    trainable: Any,
    space: dict[str, Any],
    samples: int,
    *,
    name: str,
    run: dict[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Return a tuner; `run` holds further arguments of `RunConfig`, `options` of `TuneConfig`."""
    objective = {} if "scheduler" in options else {"metric": METRIC, "mode": MODE}
    return tune.Tuner(
        trainable,
        param_space=space,
        tune_config=tune.TuneConfig(num_samples=samples, **objective, **options),
        run_config=run_config(tune, name, **(run or {})),
    )
