"""`AlgorithmRecorder`: writes the run directory of an algorithm that runs outside of a search.

Kind `rl`. Besides the files of every record (see `runs`):

    rl/episodes.jsonl   for each iteration the last episodes that ended: returns and lengths
    videos/             episodes of evaluations; the events "video" name them

`metrics.jsonl` contains the results under flat names, the most important ones first, and
`workers.jsonl` the time split of each env runner. If a record cannot be written, it ends with a
warning and the training continues.
"""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import socket
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from syncline import settings
from syncline.optional import deferred
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.metrics.names import (
    ENV_RUNNER_RESULTS,
    EPISODE_LEN_MEAN,
    EPISODE_RETURN_MEAN,
    EVALUATION_RESULTS,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
)
from syncline.rl.records.time_split import STEPS_PER_S, TIME_SPLIT, RunnerSeconds
from syncline.rl.runners.sample import EpisodeResult, Sample
from syncline.rl.value_types import AgentMapping, Results
from syncline.runs.json_values import JsonObject
from syncline.runs.rotating_lines import RotatingLines
from syncline.runs.run_directory import RunDirectory, RunKind
from syncline.runs.run_record import RunRecord
from syncline.runs.secrets import masked_text
from syncline.runs.tensorboard_writer import ScalarWriter
from syncline.runs.usage import Sampler
from syncline.train import metric_values
from syncline.train.metric_values import Metrics
from syncline.train.storage.context import StorageContext
from syncline.tune.result import CONFIG, DATE, DONE, HOSTNAME, NODE_IP, PID, TIMESTAMP, TRIAL_ID

logger = logging.getLogger("syncline")

KIND: RunKind = "rl"
DIRECTORY = "rl"
EPISODES_FILE = f"{DIRECTORY}/episodes.jsonl"
VIDEOS_DIRECTORY = "videos"
EPISODES_BYTES = 1_000_000
SHOWN_EPISODES = 20
"""Maximum number of recorded episodes per iteration."""
RUNNERS_EVERY_S = 2.0
"""Seconds between samples of the env runners."""
FLUSH_EVERY_S = 30.0
"""Seconds between uploads to remote storage."""
FIRST = (
    f"{ENV_RUNNER_RESULTS}/{EPISODE_RETURN_MEAN}",
    f"{ENV_RUNNER_RESULTS}/{EPISODE_LEN_MEAN}",
    f"{EVALUATION_RESULTS}/{ENV_RUNNER_RESULTS}/{EPISODE_RETURN_MEAN}",
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    STEPS_PER_S,
)
"""Metrics that come first in records and tables."""
_CONSTANT = frozenset({CONFIG, DATE, DONE, HOSTNAME, NODE_IP, PID, TIMESTAMP, TRIAL_ID})


def run_name(algorithm: str, env: str, clock: Callable[[], float] = time.time) -> str:
    """Return a new name for a run: algorithm, environment, time and four random characters."""
    safe = "".join(each if each.isalnum() or each in "-." else "_" for each in env)[:60]
    stamp = time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(clock()))
    return f"{algorithm}_{safe}_{stamp}_{secrets.token_hex(2)}"


def flat_metrics(result: Metrics) -> Results:
    """Return the numbers of a result under flat names (`env_runners/episode_return_mean`)."""
    flat = metric_values.flatten(
        {name: value for name, value in result.items() if name not in _CONSTANT}
    )
    first = {name: flat[name] for name in FIRST if name in flat}
    return {**first, **flat}


def recorder_of(config: AlgorithmConfig, algorithm: str) -> AlgorithmRecorder | None:
    """Return the recorder of an algorithm; None if disabled by its configuration or by
    `SYNCLINE_RL_RECORD=0`.

    Args:
        config: The algorithm's options.
        algorithm: Name of the algorithm's class.
    """
    if not config.record or not settings.rl_record():
        return None
    options, default = config.serialize(), type(config)().serialize()
    changed = {name: each for name, each in options.items() if each != default.get(name)}
    env = _env_name(config)
    description = {
        "algorithm": algorithm,
        "env": env,
        "train_config": changed,
        "all_options": options,
    }
    if not isinstance(config.record, str):
        return AlgorithmRecorder(name=run_name(algorithm, env), config=description)
    storage, _, name = config.record.rstrip("/").rpartition("/")
    return AlgorithmRecorder(name=name, config=description, storage_path=storage or None)


def _env_name(config: AlgorithmConfig) -> str:
    if config.env is None:
        return "offline"
    if isinstance(config.env, str):
        return config.env.rpartition(":")[2].rpartition("/")[2] or config.env
    return str(getattr(config.env, "__name__", type(config.env).__name__))


class AlgorithmRecorder:
    """Record of one algorithm. Not thread-safe.

    Args:
        name: Name of the run and of its directory.
        config: Configuration for `run.json`.
        storage_path: Directory or URI of all runs; by default the configured one.
        clock: Seconds since the epoch.
    """

    def __init__(
        self,
        *,
        name: str,
        config: Mapping[str, object],
        storage_path: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self._config = config
        self._clock = clock
        self._storage = StorageContext(storage_path or settings.storage_path(), name)
        self._directory = RunDirectory(self._storage.files, clock=clock)
        self._scalars = ScalarWriter(self._storage.files, clock=clock)
        self._episodes = RotatingLines(os.path.join(self.path, EPISODES_FILE), EPISODES_BYTES)
        self._recent: list[EpisodeResult] = []
        self._last: Metrics = {}
        self._checkpoints: list[JsonObject] = []
        self._runners: dict[int, _Runner] = {}
        self._sampled_at = self._flushed_at = 0.0
        self._error: str | None = None
        self._has_begun = self._has_ended = self._has_failed = self._aborted = False
        self._pid = os.getpid()

    @property
    def path(self) -> str:
        """Run directory, a path on its filesystem."""
        return self._storage.experiment_fs_path

    @property
    def is_local(self) -> bool:
        """True if the run directory is on a local filesystem."""
        return self._storage.local

    # -- events

    def begin(self) -> None:
        """Create the record; later calls have no effect."""
        if self._has_begun:
            return
        self._has_begun = True
        self._write(self._begin)
        atexit.register(self.close)  # scripts may end without `stop()`

    def _begin(self) -> None:
        self._storage.prepare()
        record = RunRecord(self._storage.files)
        continued = record.exists()
        self._checkpoints = list((record.checkpoints() or {}).get("checkpoints", ()))
        self._directory.write_run(self.name, self._config, kind=KIND)
        self._directory.event("started", continued=continued)

    def event(self, event: str, **fields: object) -> None:
        """Append an event."""
        self.begin()
        self._write(lambda: self._directory.event(event, **fields))

    def failed(self, error: BaseException) -> None:
        """Record the exception of an iteration; it is the outcome unless a later one succeeds."""
        self._error = masked_text("".join(traceback.format_exception(error)))
        self._aborted = isinstance(error, KeyboardInterrupt)
        self.event("failure", error=masked_text(f"{type(error).__name__}: {error}"))

    def saved(self, path: str, iteration: int) -> None:
        """Record a checkpoint; the record lists those in the run directory."""
        self.event("checkpoint", path=path, iteration=iteration)
        parent, _, name = path.rstrip("/").rpartition("/")
        if parent == self.path:
            metrics = {name: self._last[name] for name in FIRST if name in self._last}
            entry = {"index": iteration - 1, "name": name, "metrics": metrics}
            kept = [each for each in self._checkpoints if each["name"] != name]
            self._checkpoints = [*kept, entry]
            self._write(
                lambda: self._directory.write_checkpoints({"checkpoints": self._checkpoints})
            )

    # -- iterations

    def add_samples(self, samples: Sequence[Sample]) -> None:
        """Record the episodes and the runners of samples."""
        for sample in samples:
            if sample.episodes:
                self._recent = [*self._recent, *sample.episodes][-SHOWN_EPISODES:]
            known = self._runners.get(sample.runner)
            if known is None or known.pid != sample.pid:
                known = self._runners[sample.runner] = _Runner.of(sample, known)
            known.seconds = known.seconds.plus(sample)
            known.env_steps += sample.env_steps

    def report(self, result: Metrics) -> None:
        """Record the result of an iteration."""
        self.begin()
        self._error = None
        self._write(lambda: self._report(result))

    def _report(self, result: Metrics) -> None:
        iteration, now = int(result["training_iteration"]) - 1, self._clock()
        if not self._last and iteration:  # continues the run of another process
            self._scalars.restart(iteration + 1)
        metrics = self._last = flat_metrics(metric_values.clean(result))
        self._directory.report(iteration, 0, metrics, now, wanted=EVALUATION_RESULTS in result)
        self._scalars.add(iteration + 1, metrics, now)
        self._write_episodes(iteration, now)
        evaluated = result.get(EVALUATION_RESULTS, {}).get(ENV_RUNNER_RESULTS)
        if evaluated:
            self._directory.event(
                "evaluation",
                iteration=iteration,
                episode_return_mean=evaluated.get(EPISODE_RETURN_MEAN),
                num_episodes=evaluated.get("num_episodes"),
                duration_s=result.get(TIME_SPLIT, {}).get("evaluation_s"),
            )
        if now - self._sampled_at >= RUNNERS_EVERY_S:
            self._sampled_at = now
            for index, runner in self._runners.items():
                runner.write(self._directory, index, now)
        if not self.is_local and now - self._flushed_at >= FLUSH_EVERY_S:
            self._flushed_at = now
            self._directory.flush()
            self._scalars.flush()

    def _write_episodes(self, iteration: int, now: float) -> None:
        if not self._recent or not self.is_local:
            return
        line = {
            "time": now,
            "iteration": iteration,
            "episodes": [
                {
                    "return": each.episode_return,
                    "length": each.length,
                    "duration_s": round(each.duration_s, 4),
                    "env": each.env,
                    **({"agents": _by_text(each.agent_returns)} if each.agent_returns else {}),
                }
                for each in self._recent
            ],
        }
        self._recent = []
        self._episodes.append([line])

    def close(self) -> None:
        """Write the outcome: finished, or the error of the last iteration; later calls have no
        effect.
        """
        if not self._has_begun or self._has_ended or os.getpid() != self._pid:
            return
        self._has_ended = True
        atexit.unregister(self.close)
        self._write(self._close)

    def _close(self) -> None:
        status = "finished"
        if self._error is not None:
            status = "aborted" if self._aborted else "errored"
        self._directory.event(status)
        self._directory.write_outcome(status, None if status != "errored" else self._error)
        self._scalars.close()
        self._episodes.close()
        self._directory.close()

    def _write(self, action: Callable[[], object]) -> None:
        if self._has_failed:
            return
        try:
            action()
        except (OSError, ValueError) as error:
            self._has_failed = True
            logger.warning(
                "The record %s cannot be written and ends here (%s). The training continues; "
                "`reporting(record=False)` trains without a record.",
                self.path,
                error,
            )


class _Runner:
    """State of an env runner."""

    def __init__(self, pid: int, is_here: bool, attempt: int, seconds: RunnerSeconds) -> None:
        self.pid = pid
        self.env_steps = 0
        self.seconds = seconds
        self._attempt = attempt
        self._sampler: Sampler | None = None
        self._is_here = is_here

    @classmethod
    def of(cls, sample: Sample, before: _Runner | None) -> _Runner:
        """Return the state of a new runner, or of the successor of a dead one."""
        is_here = sample.host in ("", socket.gethostname())
        attempt = 1 if before is None else before._attempt + 1
        return cls(sample.pid or os.getpid(), is_here, attempt, RunnerSeconds())

    def write(self, directory: RunDirectory, index: int, now: float) -> None:
        """Write a sample of its resources and times."""
        seconds = self.seconds
        spent = {
            "environment_s": seconds.environment_s,
            "inference_s": seconds.inference_s,
            "other_s": seconds.other_s,
            "env_steps": self.env_steps,
        }
        directory.sample(index, self._attempt, self.pid, self._usage(), spent)

    def _usage(self) -> JsonObject:
        if not self._is_here:
            return {}
        try:
            if self._sampler is None:
                self._sampler = Sampler(self.pid)
            return self._sampler.sample()
        except (psutil.Error, OSError):  # it has just died
            self._sampler, self._is_here = None, False
            return {}


def _by_text(values: AgentMapping[float]) -> dict[str, float]:
    return {str(key): value for key, value in values.items()}


psutil: Any = deferred("psutil")
