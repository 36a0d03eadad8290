"""Weights & Biases: `setup_wandb` for the functions that train, and `WandbLoggerCallback` for the
search or the trainer around them.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from syncline import settings
from syncline.air.integrations.surroundings import Surroundings
from syncline.optional import load
from syncline.tune.logger.kept import KeptRun
from syncline.tune.logger.wandb import (
    WANDB_ENV_VAR,
    WANDB_GROUP_ENV_VAR,
    WANDB_MODE_ENV_VAR,
    WANDB_POPULATE_RUN_LOCATION_HOOK,
    WANDB_PROCESS_RUN_INFO_HOOK,
    WANDB_PROJECT_ENV_VAR,
    WANDB_SETUP_API_KEY_HOOK,
    WandbLoggerCallback,
    as_logged,
    call_hook,
    find_project,
    set_api_key,
)

__all__ = [
    "WANDB_ENV_VAR",
    "WANDB_GROUP_ENV_VAR",
    "WANDB_MODE_ENV_VAR",
    "WANDB_POPULATE_RUN_LOCATION_HOOK",
    "WANDB_PROCESS_RUN_INFO_HOOK",
    "WANDB_PROJECT_ENV_VAR",
    "WANDB_SETUP_API_KEY_HOOK",
    "WandbLoggerCallback",
    "setup_wandb",
]


def setup_wandb(
    config: Mapping[str, Any] | None = None,
    api_key: str | None = None,
    api_key_file: str | None = None,
    rank_zero_only: bool = True,
    **kwargs: Any,
) -> Any:
    """Begin a run of W&B in a function that trains, and return it.

    In a trial, the run has the trial's id and name and the search as its group; in a worker of a
    trainer, the name of the trainer's run, which is its group, too. Where a trial or a worker group
    is started again, or a trainer's run is continued, it goes on in its run of W&B.

    Args:
        config: Becomes the run's configuration. api_key: W&B's key; where it is found otherwise,
        `WandbLoggerCallback` says. api_key_file: A file with the key in its first line.
        rank_zero_only: Whether the other ranks of a trainer get a run that logs nothing. kwargs:
        For `wandb.init`; they beat what is said above. `trial_id` and `trial_name` stand for `id`
        and `name`.

    Raises:
        ImportError: wandb is not installed.
        ValueError: There is no key, or two.
    """
    wandb = load("wandb", purpose="setup_wandb", install="wandb")
    here = Surroundings.now()
    if rank_zero_only and here.rank:
        return wandb.init(mode="disabled")
    set_api_key(api_key_file, api_key)
    arguments: dict[str, Any] = {
        "id": kwargs.pop("trial_id", None) or here.trial_id or kwargs.get("id") or _kept_id(here),
        "name": kwargs.pop("trial_name", None) or _name(here),
        "resume": "allow",
        "reinit": "finish_previous",
        "allow_val_change": True,
        "config": as_logged(config or {}),
        "project": find_project(kwargs.pop("project", None)),
        "group": kwargs.pop("group", None)
        or here.experiment_name
        or settings.environment(WANDB_GROUP_ENV_VAR),
    }
    run = wandb.init(**{**arguments, **kwargs})
    call_hook(WANDB_PROCESS_RUN_INFO_HOOK, run)
    return run


def _kept_id(here: Surroundings) -> str | None:
    """The id of this rank's run of W&B, made up the first time; None where there is no trainer."""
    if here.storage is None:
        return None
    kept = KeptRun(here.storage.files, f"setup_wandb rank {here.rank}")
    run_id = kept.read() or secrets.token_hex(8)
    kept.write(run_id)
    return run_id


def _name(here: Surroundings) -> str | None:
    return f"{here.trial_name}-rank-{here.rank}" if here.rank else here.trial_name
