"""One way to search, whichever library does it: the two share their API."""

import importlib
import os
from types import ModuleType
from typing import Any

CPUS = 2
METRIC, MODE = "loss", "min"


def start(library: str, cpus: int = CPUS) -> ModuleType:
    """Starts the library's engine with so many CPUs, and gives its module for tuning."""
    importlib.import_module(library).init(num_cpus=cpus)
    return importlib.import_module(f"{library}.tune")


def run_config(tune: ModuleType, name: str, **others: Any) -> Any:
    """A quiet search of that name, kept in the working directory."""
    return tune.RunConfig(name=name, storage_path=os.path.abspath("storage"), verbose=0, **others)


def tuner(
    tune: ModuleType,
    trainable: Any,
    space: dict[str, Any],
    samples: int,
    *,
    name: str,
    run: dict[str, Any] | None = None,
    **how: Any,
) -> Any:
    """A tuner of so many samples; `run` has further arguments of `RunConfig`, `how` of
    `TuneConfig`.
    """
    objective = {} if "scheduler" in how else {"metric": METRIC, "mode": MODE}
    return tune.Tuner(
        trainable,
        param_space=space,
        tune_config=tune.TuneConfig(num_samples=samples, **objective, **how),
        run_config=run_config(tune, name, **(run or {})),
    )
