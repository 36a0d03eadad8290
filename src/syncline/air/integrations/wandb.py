"""Weights & Biases: `setup_wandb` for the functions that train, and `WandbLoggerCallback` for the search around them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from syncline import settings
from syncline.air.integrations.surroundings import Surroundings
from syncline.data.optional import load
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

    In a trial, the run has the trial's id and name and the search as its group; a trial that is started again goes on in its run.

    Args:
        config: Becomes the run's configuration.
        api_key: W&B's key; where it is found otherwise, `WandbLoggerCallback` says.
        api_key_file: A file with the key in its first line.
        rank_zero_only: Whether the other ranks of a trainer get a run that logs nothing.
        kwargs: For `wandb.init`; they beat what is said above. `trial_id` and `trial_name` stand for `id` and `name`.

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
        "id": kwargs.pop("trial_id", None) or here.trial_id,
        "name": kwargs.pop("trial_name", None) or here.trial_name,
        "resume": "allow",
        "reinit": "finish_previous",
        "allow_val_change": True,
        "config": as_logged(config or {}),
        "project": find_project(kwargs.pop("project", None)),
        "group": kwargs.pop("group", None) or here.experiment_name or settings.environment(WANDB_GROUP_ENV_VAR),
    }
    run = wandb.init(**{**arguments, **kwargs})
    call_hook(WANDB_PROCESS_RUN_INFO_HOOK, run)
    return run
