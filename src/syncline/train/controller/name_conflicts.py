"""Run names that are taken: decides how a training or a search proceeds if its directory holds a
run.

Interrupted, killed and failed runs are continued. Not covered: two programs that start the same run
within milliseconds, of which fencing leaves one (`fencing.py`).
"""

from __future__ import annotations

import itertools
import os
import socket
import time
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from syncline.core import control
from syncline.runs import run_list
from syncline.runs.json_values import JsonObject, encode, parse_json, plain
from syncline.runs.run_record import RunRecord
from syncline.runs.run_storage import LocalDirectory
from syncline.runs.secrets import masked
from syncline.train.console.console_reporter import display_for
from syncline.train.result import Result
from syncline.train.run_config import RunConfig
from syncline.train.storage.context import StorageContext
from syncline.train.workers.reservation import is_hosted
from syncline.train.workers.spec import RunSpec

_Config = TypeVar("_Config", bound=RunConfig)

RECENT_S = 60.0
"""Seconds after its last write for which a run of another host may be alive."""
OBSERVED_S = 15.0
"""Seconds for which a run of another host that wrote recently is watched for further writes."""

_NOUNS = {"train": "a training run", "tune": "a search"}


@dataclass(frozen=True, kw_only=True)
class ExistingRun:
    """The run that a run directory holds."""

    storage: StorageContext
    described: JsonObject
    """Content of `run.json`."""
    state: str

    @property
    def kind(self) -> str:
        """Kind of the run: "train" or "tune"."""
        return str(self.described.get("kind", "train"))

    @property
    def noun(self) -> str:
        """Kind of the run in words."""
        return _NOUNS.get(self.kind, f"a run of the kind {self.kind!r}")

    @property
    def environment(self) -> dict[str, Any]:
        """Process and machine that started the run last."""
        return dict(self.described.get("environment") or {})

    @property
    def is_live(self) -> bool:
        """True if its owner is alive. An owner on another host is watched for some seconds."""
        if self.state != "running":
            return False
        path, environment = self.storage.experiment_fs_path, self.environment
        if environment.get("hostname") != socket.gethostname():
            return self.storage.local and _is_written(LocalDirectory(path))
        return environment.get("pid") != os.getpid() or control.find(f"run:{path}") is not None


def existing_run(storage: StorageContext) -> ExistingRun | None:
    """Return the run that the directory holds, or None.

    Raises:
        ValueError: Its record is damaged.
    """
    record = RunRecord(storage.files)
    described = record.run()
    if not described:
        return None
    state = run_list.state_of(described, record.outcome())
    return ExistingRun(storage=storage, described=described, state=state)


def resolved(
    config: _Config, kind: str, *, attaches: bool = False
) -> tuple[_Config, ExistingRun | None]:
    """Return the configuration under a name that may be used, and the run to continue, if any.

    Args:
        config: Configuration of the run.
        kind: "train" or "tune".
        attaches: True if the caller attaches to a live run.

    Raises:
        ValueError: The directory holds a run of another kind, or one whose owner is alive.
    """
    storage = StorageContext.from_run_config(config)
    existing = existing_run(storage)
    if existing is None:
        return config, None
    name, path = storage.experiment_dir_name, storage.experiment_fs_path
    if config.on_conflict == "new":
        return _under_free_name(config), None
    if existing.kind != kind:
        raise ValueError(
            f"`name={name!r}` is taken: {path!r} holds {existing.noun}, which {_NOUNS[kind]} "
            "cannot continue. Choose another name, or set `RunConfig(on_conflict='new')` for the "
            f"next free one ({name}-2, …)."
        )
    if not attaches:
        check_owner(existing, config)
    return config, existing


def check_owner(existing: ExistingRun, config: RunConfig) -> None:
    """Raise ValueError if the owner of the run is alive, unless the caller takes the run over."""
    if config.on_conflict == "takeover" or not existing.is_live:
        return
    environment, storage = existing.environment, existing.storage
    name = storage.experiment_dir_name
    raise ValueError(
        f"`name={name!r}` is taken: process {environment.get('pid')} on "
        f"{environment.get('hostname')} runs {existing.noun} in {storage.experiment_fs_path!r}. "
        "Wait for its end, or choose another name. `RunConfig(on_conflict='new')` takes the next "
        f"free one ({name}-2, …), and `on_conflict='takeover'` stops that process and continues "
        "the run."
    )


def named(spec: RunSpec, *, attaches: bool) -> RunSpec | Result:
    """Return a training under its final name, or its result if it has finished before.

    Args:
        spec: The training.
        attaches: True if the caller attaches to a live run.

    Raises:
        ValueError: As `resolved`, or the run has finished with another configuration and cannot be
            continued.
    """
    if is_hosted():  # the search gives each trial its own directory
        return spec
    config, existing = resolved(spec.run_config, "train", attaches=attaches)
    spec = replace(spec, run_config=config)
    if existing is None or existing.state != "finished" or config.on_conflict == "takeover":
        return spec
    result = Result.from_path(
        existing.storage.experiment_fs_path, existing.storage.storage_filesystem
    )
    recorded = existing.described.get("config") or {}
    if recorded.get("train_config") == parse_json(encode(masked(plain(spec.train_config)))):
        _say(
            config,
            f"{result.path} has finished, and this is its result. Choose another name to train "
            "again, or set RunConfig(on_conflict=…): 'new' for the next free name, 'takeover' to "
            "continue.",
        )
        return result
    if result.checkpoint is None:
        raise ValueError(
            f"`name={config.name!r}` is taken: {result.path!r} has finished with another "
            "`train_loop_config`, and has no checkpoint to continue from. Choose another name, or "
            f"set `RunConfig(on_conflict='new')` for the next free one ({config.name}-2, …)."
        )
    _say(
        config,
        f"{result.path} has finished with another train_loop_config, and continues from "
        f"{result.checkpoint.path}.",
    )
    return spec


def _under_free_name(config: _Config) -> _Config:
    for number in itertools.count(2):
        candidate = replace(config, name=f"{config.name}-{number}")
        if existing_run(StorageContext.from_run_config(candidate)) is None:
            _say(config, f"the name {config.name!r} is taken: this run is {candidate.name!r}")
            return candidate
    raise AssertionError("itertools.count has no end")


def _say(config: RunConfig, text: str) -> None:
    display_for(config, may_draw=False).print_event(f"syncline: {text}")


def _is_written(directory: LocalDirectory) -> bool:
    """Return True if the files of a run change while they are watched."""
    before = run_list.last_activity(directory)
    if before is None or time.time() - before > RECENT_S:
        return False
    deadline = time.monotonic() + OBSERVED_S
    while time.monotonic() < deadline:
        time.sleep(0.2)
        if run_list.last_activity(directory) != before:
            return True
    return False
