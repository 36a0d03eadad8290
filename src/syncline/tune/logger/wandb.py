"""`WandbLoggerCallback`, and the lookup of API key and project and the conversion of values, which
`syncline.air.integrations.wandb` shares.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from importlib import import_module
from numbers import Real
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from syncline import settings
from syncline.optional import load, require
from syncline.runs import json_values
from syncline.train.metric_values import flatten
from syncline.tune.logger.tracker import (
    TIMEOUT_S,
    LibraryRun,
    Outcome,
    TrackedRun,
    TrackerCallback,
    is_key_under,
)
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
    Config,
    Metrics,
)

logger = logging.getLogger("syncline")

WANDB_ENV_VAR = "WANDB_API_KEY"
WANDB_PROJECT_ENV_VAR = "WANDB_PROJECT_NAME"
WANDB_GROUP_ENV_VAR = "WANDB_GROUP_NAME"
WANDB_MODE_ENV_VAR = "WANDB_MODE"
WANDB_SETUP_API_KEY_HOOK = "WANDB_SETUP_API_KEY_HOOK"
"""Variable with the name `module.function` of a function that returns the API key."""
WANDB_POPULATE_RUN_LOCATION_HOOK = "WANDB_POPULATE_RUN_LOCATION_HOOK"
"""Variable with the name of a function that sets the variables of project and group."""
WANDB_PROCESS_RUN_INFO_HOOK = "WANDB_PROCESS_RUN_INFO_HOOK"
"""Variable with the name of a function that is called with each new W&B run."""

Options: TypeAlias = Mapping[str, Any]
"""Keyword arguments for a class of the library."""

_LEFT_OUT = (DONE, SHOULD_CHECKPOINT)


class WandbLoggerCallback(TrackerCallback):
    """Logs each trial, or a training run, as a run of Weights & Biases.

    The run has the trial's id and name, or the training run's name, and the configuration. The API
    key comes from the arguments, from `WANDB_API_KEY`, from an earlier `wandb login`, or from the
    function named by `WANDB_SETUP_API_KEY_HOOK`; `WANDB_MODE=offline` and `disabled` need none.
    Numbers and media are logged. Arrays of three dimensions become an image (height, width,
    channels), of four dimensions images, and of five dimensions videos. A resumed training run
    continues its W&B run.

    Args:
        project: W&B project; by default `WANDB_PROJECT_NAME`.
        group: W&B group; by default `WANDB_GROUP_NAME`, else the search's name. A training run has
            none by default.
        api_key_file: File with the API key in its first line.
        api_key: The API key.
        excludes: Keys of results and of the configuration to leave out.
        log_config: Update the run's configuration with every result, for schedulers that change it.
        upload_checkpoints: Log checkpoints as artifacts; those of trials only if they are local.
        save_checkpoints: Older name of `upload_checkpoints`.
        upload_timeout: Seconds that the end of the search or training run waits for pending calls.
        video_kwargs: Arguments of `wandb.Video`.
        image_kwargs: Arguments of `wandb.Image`.
        kwargs: Arguments of `wandb.init`; they override the arguments above.

    Raises:
        ImportError: wandb is not installed.
    """

    AUTO_CONFIG_KEYS = (TRIAL_ID, EXPERIMENT_TAG, NODE_IP, "experiment_id", HOSTNAME, PID, DATE)
    """Keys of results that become part of the run's configuration."""

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
        video_kwargs: Options | None = None,
        image_kwargs: Options | None = None,
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

    def setup(self, *args: object, **info: object) -> None:
        set_api_key(self.api_key_path, self.api_key)
        self.project = find_project(self.project)
        if not self.project:
            raise ValueError(
                "W&B keeps runs in projects, but no project is set: "
                f"give `project=…` or set {WANDB_PROJECT_ENV_VAR}."
            )
        self.group = self.group or settings.environment(WANDB_GROUP_ENV_VAR)

    @property
    def logs_checkpoints(self) -> bool:
        return self.upload_checkpoints

    @property
    def destination(self) -> str:
        return self.project or ""

    def _begin_run(self, tracked: TrackedRun, run: LibraryRun | None) -> LibraryRun:
        if run is not None:
            return run
        config = {key: value for key, value in tracked.config.items() if key not in self.excludes}
        arguments: Config = {
            "id": tracked.id,
            "name": tracked.name,
            "resume": "allow" if tracked.is_resumed else None,
            "reinit": "create_new",
            "allow_val_change": True,
            "group": self.group or tracked.experiment,
            "project": self.project,
            "config": loggable(config),
            "dir": tracked.local_path,
        }
        run = _wandb().init(**{**arguments, **self.kwargs})
        run.config.update({f"{tracked.kind}_log_path": tracked.path}, allow_val_change=True)
        call_hook(WANDB_PROCESS_RUN_INFO_HOOK, run)
        return run

    def _run_key(self, run: LibraryRun, tracked: TrackedRun) -> str:
        return str(run.id)

    def _log_result(self, run: LibraryRun, tracked: TrackedRun, result: Metrics, step: int) -> None:
        left_out = (*_LEFT_OUT, *self.excludes, *(() if self.log_config else (CONFIG,)))
        logged: dict[str, object] = {}
        config: Config = dict(result.get(CONFIG) or {}) if self.log_config else {}
        for key, value in flatten(result).items():
            if is_key_under(key, left_out):
                continue
            value = loggable(value, video_kwargs=self.video_kwargs, image_kwargs=self.image_kwargs)
            if is_key_under(key, self.AUTO_CONFIG_KEYS):
                config[key] = value
            elif _is_shown(value):
                logged[key] = value
        run.config.update(
            loggable({key: value for key, value in config.items() if key != "callbacks"}),
            allow_val_change=True,
        )
        run.log(logged, step=step)

    def _log_checkpoint(self, run: LibraryRun, tracked: TrackedRun, directory: str) -> None:
        artifact = _wandb().Artifact(name=tracked.artifact_name, type="model")
        artifact.add_dir(directory)
        run.log_artifact(artifact)

    def _end_run(self, run: LibraryRun, tracked: TrackedRun, outcome: Outcome) -> None:
        run.finish(exit_code=0 if outcome == "finished" else 1)


def set_api_key(api_key_file: str | None = None, api_key: str | None = None) -> None:
    """Export W&B's API key for its library; see `WandbLoggerCallback` for the sources.

    Raises:
        ValueError: No key was found, or both arguments are given.
    """
    if settings.environment(WANDB_MODE_ENV_VAR) in ("offline", "disabled"):
        return
    if api_key_file and api_key:
        raise ValueError(
            "`api_key_file` and `api_key` are both given and may differ: give one of them."
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
            f"W&B has no API key, so nothing could be sent: set {WANDB_ENV_VAR}, give `api_key` "
            f"or `api_key_file`, run `wandb login`, or set {WANDB_MODE_ENV_VAR}=offline."
        )


def find_project(project: str | None) -> str | None:
    """Return the given project, else the one of the environment, which the function named by
    `WANDB_POPULATE_RUN_LOCATION_HOOK` may set.
    """
    if not project and not settings.environment(WANDB_PROJECT_ENV_VAR):
        call_hook(WANDB_POPULATE_RUN_LOCATION_HOOK)
    return project or settings.environment(WANDB_PROJECT_ENV_VAR) or None


def call_hook(variable: str, *arguments: object) -> Any:
    """Call the function named by an environment variable and return its value.

    Returns None if the variable is unset, or, with a log line, if the function fails.
    """
    name = settings.environment(variable)
    if not name:
        return None
    module, _, function = name.rpartition(".")
    try:
        return getattr(import_module(module), function)(*arguments)
    except Exception:
        logger.exception(
            "The function %s, named by %s, failed; the run continues without it.", name, variable
        )
        return None


def loggable(
    value: object, *, video_kwargs: Options | None = None, image_kwargs: Options | None = None
) -> Any:
    """Convert a value to what W&B accepts: numbers, texts, media, dictionaries and lists of these.

    Arrays of three to five dimensions become media; other objects become text.
    """
    options: Config = {"video_kwargs": video_kwargs, "image_kwargs": image_kwargs}
    if isinstance(value, Mapping):
        return {str(key): loggable(item, **options) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [loggable(item, **options) for item in value]
    if isinstance(value, np.ndarray) and value.ndim in (3, 4, 5):
        return _media(value, video_kwargs or {}, image_kwargs or {})
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.size == 1):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value if _is_medium(value) else json_values.plain(value)


def _media(array: np.ndarray, video_kwargs: Options, image_kwargs: Options) -> object:
    if array.ndim == 3:
        return _wandb().Image(array, **image_kwargs)
    kind, options = (
        (_wandb().Image, image_kwargs) if array.ndim == 4 else (_wandb().Video, video_kwargs)
    )
    media = [kind(item, **options) for item in array]
    return media[0] if len(media) == 1 else media


def _is_medium(value: object) -> bool:
    return type(value).__module__.partition(".")[0] == "wandb"


def _is_shown(value: object) -> bool:
    """Return True for values that charts can show: numbers and media."""
    if isinstance(value, list):
        return bool(value) and _is_medium(value[0])
    return isinstance(value, Real) or _is_medium(value)


def _wandb() -> Any:
    return load("wandb", purpose="Weights & Biases", install="wandb")
