"""`WandbLoggerCallback`, and what `syncline.air.integrations.wandb` shares with it: the key, the
project, values as W&B takes them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from importlib import import_module
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from syncline import settings
from syncline.optional import load, require
from syncline.runs import json_values
from syncline.train.metric_values import flatten
from syncline.tune.logger.tracker import TIMEOUT_S, Outcome, Tracked, TrackerCallback, is_below
from syncline.tune.result import (
    CONFIG,
    DATE,
    DONE,
    EXPERIMENT_TAG,
    HOSTNAME,
    NODE_IP,
    PID,
    SHOULD_CHECKPOINT,
    TRIAL_ID,
)

logger = logging.getLogger("syncline")

WANDB_ENV_VAR = "WANDB_API_KEY"
WANDB_PROJECT_ENV_VAR = "WANDB_PROJECT_NAME"
WANDB_GROUP_ENV_VAR = "WANDB_GROUP_NAME"
WANDB_MODE_ENV_VAR = "WANDB_MODE"
WANDB_SETUP_API_KEY_HOOK = "WANDB_SETUP_API_KEY_HOOK"
"""Names a function, `module.function`, that returns the key."""
WANDB_POPULATE_RUN_LOCATION_HOOK = "WANDB_POPULATE_RUN_LOCATION_HOOK"
"""Names a function that sets the variables of project and group."""
WANDB_PROCESS_RUN_INFO_HOOK = "WANDB_PROCESS_RUN_INFO_HOOK"
"""Names a function that is called with each run of W&B when it has begun."""

_LEFT_OUT = (DONE, SHOULD_CHECKPOINT)


class WandbLoggerCallback(TrackerCallback):
    """Logs each trial, or a training run, as a run of Weights & Biases.

    The run has the trial's id and name, or the training run's name, and the configuration. The key
    comes from the arguments, from `WANDB_API_KEY`, from an earlier `wandb login`, or from the
    function that `WANDB_SETUP_API_KEY_HOOK` names; with `WANDB_MODE` offline or disabled none is
    needed. Numbers and media are logged; arrays of three, four and five dimensions as an image
    (height, width, channels), images, and videos. A training run that is started again goes on in
    its run of W&B.

    Args:
        project: W&B's project; `WANDB_PROJECT_NAME` by default.
        group: W&B's group; `WANDB_GROUP_NAME`, else the search's name by default; a training run
            has none.
        api_key_file: A file with the key in its first line.
        api_key: The key.
        excludes: Keys of results and of the configuration that are not logged.
        log_config: Whether every result updates the run's configuration, for schedulers that change
            it.
        upload_checkpoints: Whether checkpoints are logged as artifacts; those of trials if they are
            on this machine.
        save_checkpoints: The older name of `upload_checkpoints`.
        upload_timeout: So many seconds the end of the search, or of the training run, waits for
            what has not been sent.
        video_kwargs: For `wandb.Video`.
        image_kwargs: For `wandb.Image`. kwargs: For `wandb.init`; they beat what is said above.

    Raises:
        ImportError: wandb is not installed.
    """

    AUTO_CONFIG_KEYS = (TRIAL_ID, EXPERIMENT_TAG, NODE_IP, "experiment_id", HOSTNAME, PID, DATE)
    """Values of results that become part of the run's configuration."""

    def __init__(
        self,
        project: str | None = None,
        group: str | None = None,
        api_key_file: str | None = None,
        api_key: str | None = None,
        excludes: list[str] | None = None,
        log_config: bool = False,
        upload_checkpoints: bool = False,
        save_checkpoints: bool = False,
        upload_timeout: float = TIMEOUT_S,
        video_kwargs: dict[str, Any] | None = None,
        image_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        require("wandb", purpose="WandbLoggerCallback", install="wandb")
        super().__init__("Weights & Biases", upload_timeout)
        self.project = project
        self.group = group
        self.api_key_path = api_key_file
        self.api_key = api_key
        self.excludes = excludes or []
        self.log_config = log_config
        self.upload_checkpoints = upload_checkpoints or save_checkpoints
        self.video_kwargs = video_kwargs or {}
        self.image_kwargs = image_kwargs or {}
        self.kwargs = kwargs

    def setup(self, *args: Any, **info: Any) -> None:
        set_api_key(self.api_key_path, self.api_key)
        self.project = find_project(self.project)
        if not self.project:
            raise ValueError(
                f"W&B keeps runs in projects, and none is named: give `project=…`, or set {WANDB_PROJECT_ENV_VAR}."
            )
        self.group = self.group or settings.environment(WANDB_GROUP_ENV_VAR)

    @property
    def logs_checkpoints(self) -> bool:
        return self.upload_checkpoints

    @property
    def place(self) -> str:
        return self.project or ""

    def _begin_run(self, tracked: Tracked, run: Any) -> Any:
        if run is not None:
            return run
        config = {key: value for key, value in tracked.config.items() if key not in self.excludes}
        arguments: dict[str, Any] = {
            "id": tracked.id,
            "name": tracked.name,
            "resume": "allow" if tracked.is_continued else None,
            "reinit": "create_new",
            "allow_val_change": True,
            "group": self.group or tracked.experiment,
            "project": self.project,
            "config": as_logged(config),
            "dir": tracked.local_path,
        }
        run = _wandb().init(**{**arguments, **self.kwargs})
        run.config.update({f"{tracked.kind}_log_path": tracked.path}, allow_val_change=True)
        call_hook(WANDB_PROCESS_RUN_INFO_HOOK, run)
        return run

    def _key_of(self, run: Any, tracked: Tracked) -> str:
        return str(run.id)

    def _log_result(self, run: Any, tracked: Tracked, result: dict[str, Any], step: int) -> None:
        left_out = (*_LEFT_OUT, *self.excludes, *(() if self.log_config else (CONFIG,)))
        logged: dict[str, Any] = {}
        config: dict[str, Any] = dict(result.get(CONFIG) or {}) if self.log_config else {}
        for key, value in flatten(result).items():
            if is_below(key, left_out):
                continue
            value = as_logged(value, video_kwargs=self.video_kwargs, image_kwargs=self.image_kwargs)
            if is_below(key, self.AUTO_CONFIG_KEYS):
                config[key] = value
            elif _is_shown(value):
                logged[key] = value
        run.config.update(
            as_logged({key: value for key, value in config.items() if key != "callbacks"}),
            allow_val_change=True,
        )
        run.log(logged, step=step)

    def _log_checkpoint(self, run: Any, tracked: Tracked, directory: str) -> None:
        artifact = _wandb().Artifact(name=tracked.artifact_name, type="model")
        artifact.add_dir(directory)
        run.log_artifact(artifact)

    def _end_run(self, run: Any, tracked: Tracked, outcome: Outcome) -> None:
        run.finish(exit_code=0 if outcome == "finished" else 1)


def set_api_key(api_key_file: str | None = None, api_key: str | None = None) -> None:
    """Put W&B's key where its library looks for it; see `WandbLoggerCallback` for where it is
    found.

    Raises:
        ValueError: There is none, or two.
    """
    if settings.environment(WANDB_MODE_ENV_VAR) in ("offline", "disabled"):
        return
    if api_key_file and api_key:
        raise ValueError(
            "Both `api_key_file` and `api_key` are given, and they may differ: give one of them."
        )
    if api_key_file:
        api_key = (
            Path(settings.local_path(api_key_file))
            .read_text(encoding="utf-8")
            .partition("\n")[0]
            .strip()
        )
    if not api_key and not settings.environment(WANDB_ENV_VAR):
        if getattr(getattr(_wandb(), "api", None), "api_key", None):
            return
        api_key = call_hook(WANDB_SETUP_API_KEY_HOOK)
    if api_key:
        os.environ[WANDB_ENV_VAR] = api_key
    elif not settings.environment(WANDB_ENV_VAR):
        raise ValueError(
            f"W&B has no key, so nothing could be sent: set {WANDB_ENV_VAR}, give `api_key` or `api_key_file`, run `wandb login`, or set "
            f"{WANDB_MODE_ENV_VAR}=offline."
        )


def find_project(project: str | None) -> str | None:
    """The project that is given, else that of the environment, which
    `WANDB_POPULATE_RUN_LOCATION_HOOK` may fill in.
    """
    if not project and not settings.environment(WANDB_PROJECT_ENV_VAR):
        call_hook(WANDB_POPULATE_RUN_LOCATION_HOOK)
    return project or settings.environment(WANDB_PROJECT_ENV_VAR) or None


def call_hook(variable: str, *arguments: Any) -> Any:
    """Call the function that an environment variable names; None if it names none, or, with a log
    line, if the function fails.
    """
    name = settings.environment(variable)
    if not name:
        return None
    module, _, function = name.rpartition(".")
    try:
        return getattr(import_module(module), function)(*arguments)
    except Exception:
        logger.exception(
            "The function %s, which %s names, failed; the run goes on without what it would have done.",
            name,
            variable,
        )
        return None


def as_logged(
    value: Any,
    *,
    video_kwargs: Mapping[str, Any] | None = None,
    image_kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """`value` as W&B can hold it: numbers, texts, media, dictionaries and lists of these. Arrays of
    three, four and five dimensions become media, other objects their description.
    """
    options: dict[str, Any] = {"video_kwargs": video_kwargs, "image_kwargs": image_kwargs}
    if isinstance(value, Mapping):
        return {str(key): as_logged(item, **options) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [as_logged(item, **options) for item in value]
    if isinstance(value, np.ndarray) and value.ndim in (3, 4, 5):
        return _media(value, video_kwargs or {}, image_kwargs or {})
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.size == 1):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value if _is_medium(value) else json_values.plain(value)


def _media(array: Any, video_kwargs: Mapping[str, Any], image_kwargs: Mapping[str, Any]) -> Any:
    if array.ndim == 3:
        return _wandb().Image(array, **image_kwargs)
    kind, options = (
        (_wandb().Image, image_kwargs) if array.ndim == 4 else (_wandb().Video, video_kwargs)
    )
    media = [kind(item, **options) for item in array]
    return media[0] if len(media) == 1 else media


def _is_medium(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "wandb"


def _is_shown(value: Any) -> bool:
    """Whether a value belongs into charts: a number, or media."""
    if isinstance(value, list):
        return bool(value) and _is_medium(value[0])
    return isinstance(value, Real) or _is_medium(value)


def _wandb() -> Any:
    return load("wandb", purpose="Weights & Biases", install="wandb")
