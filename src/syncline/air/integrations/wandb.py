"""Weights & Biases: `setup_wandb` for training functions, and `WandbLoggerCallback`."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from syncline import settings
from syncline.air.integrations.run_identity import RunIdentity
from syncline.optional import load
from syncline.tune.logger.tracker import TrackerRunFile
from syncline.tune.logger.wandb import (
    WANDB_ENV_VAR,
    WANDB_GROUP_ENV_VAR,
    WANDB_MODE_ENV_VAR,
    WANDB_POPULATE_RUN_LOCATION_HOOK,
    WANDB_PROCESS_RUN_INFO_HOOK,
    WANDB_PROJECT_ENV_VAR,
    WANDB_SETUP_API_KEY_HOOK,
    WandbLoggerCallback,
    call_hook,
    find_project,
    loggable,
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
    """Start a W&B run in a training function, and return it.

    In a trial, the W&B run has the id and name of the trial, and the search as its group. In a
    worker of a trainer, its name and group are the name of the trainer's run. After a restart it
    continues the same W&B run.

    Args:
        config: Configuration of the W&B run.
        api_key: Key of W&B; by default it is found as described in `WandbLoggerCallback`.
        api_key_file: File with the key in its first line.
        rank_zero_only: Return a run that logs nothing on all ranks but 0.
        kwargs: Arguments of `wandb.init`, which override the values above. `trial_id` and
            `trial_name` mean `id` and `name`.

    Raises:
        ImportError: wandb is not installed.
        ValueError: There is no key, or there are two.
    """
    wandb = load("wandb", purpose="setup_wandb", install="wandb")
    here = RunIdentity.current()
    if rank_zero_only and here.rank:
        return wandb.init(mode="disabled")
    set_api_key(api_key_file, api_key)
    arguments: dict[str, Any] = {
        "id": kwargs.pop("trial_id", None) or here.trial_id or kwargs.get("id") or _kept_id(here),
        "name": kwargs.pop("trial_name", None) or _name(here),
        "resume": "allow",
        "reinit": "finish_previous",
        "allow_val_change": True,
        "config": loggable(config or {}),
        "project": find_project(kwargs.pop("project", None)),
        "group": kwargs.pop("group", None)
        or here.experiment_name
        or settings.environment(WANDB_GROUP_ENV_VAR),
    }
    run = wandb.init(**{**arguments, **kwargs})
    call_hook(WANDB_PROCESS_RUN_INFO_HOOK, run)
    return run


def _kept_id(here: RunIdentity) -> str | None:
    """Return the stored id of this rank's W&B run, or create one; None outside of a trainer."""
    if here.storage is None:
        return None
    kept = TrackerRunFile(here.storage.files, f"setup_wandb rank {here.rank}")
    run_id = kept.read() or secrets.token_hex(8)
    kept.write(run_id)
    return run_id


def _name(here: RunIdentity) -> str | None:
    return f"{here.trial_name}-rank-{here.rank}" if here.rank else here.trial_name
