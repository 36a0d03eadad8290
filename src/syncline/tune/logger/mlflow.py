"""`MLflowLoggerCallback`, and functions that `syncline.air.integrations.mlflow` shares with it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Real
from typing import Any, TypeAlias, TypeVar

from syncline import settings
from syncline.optional import load, require
from syncline.train.metric_values import flatten
from syncline.tune.logger.tracker import Outcome, TrackedRun, TrackerCallback
from syncline.tune.result import TIMESTEPS_TOTAL, TRAINING_ITERATION, Config, Metrics

Client: TypeAlias = Any
"""An `mlflow.MlflowClient`; the library is optional."""

_Item = TypeVar("_Item")

_BATCH = 100
"""MLflow's limit of parameters per request."""
_NOT_IN_KEYS = re.compile(r"[^\w\-. /]")
_STATUS: dict[Outcome, str] = {"finished": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}


class MLflowLoggerCallback(TrackerCallback):
    """Logs each trial, or a training run, as a run of an MLflow experiment: its configuration as
    parameters, the numbers of its results as metrics.

    The controller of the search or training run makes the calls. To use MLflow inside a trial or
    training function, call `syncline.air.integrations.mlflow.setup_mlflow`. A resumed trial or
    training run continues its MLflow run.

    Args:
        tracking_uri: MLflow's server, database or directory; by default MLflow's own setting
            (`MLFLOW_TRACKING_URI`).
        registry_uri: MLflow's model registry.
        experiment_name: The experiment, created if it does not exist; by default
            `MLFLOW_EXPERIMENT_NAME`.
        tags: Tags of every run, in addition to `trial_name` or, for training runs, `run_name`.
        tracking_token: Access token of the server; exported as `MLFLOW_TRACKING_TOKEN`.
        save_artifact: Log the directory of the trial or training run, including checkpoints, as an
            artifact at its end, if the directory is local.
        log_params_on_trial_end: Log the configuration at the end instead of the start.

    Raises:
        ImportError: mlflow is not installed.
    """

    step_keys = (TIMESTEPS_TOTAL, TRAINING_ITERATION)

    def __init__(
        self,
        tracking_uri: str | None = None,
        *,
        registry_uri: str | None = None,
        experiment_name: str | None = None,
        tags: Config | None = None,
        tracking_token: str | None = None,
        save_artifact: bool = False,
        log_params_on_trial_end: bool = False,
    ) -> None:
        require("mlflow", purpose="MLflowLoggerCallback", install="mlflow")
        super().__init__("MLflow")
        self.tracking_uri = tracking_uri
        self.registry_uri = registry_uri
        self.experiment_name = experiment_name
        self.tags = tags
        self.tracking_token = tracking_token
        self.should_save_artifact = save_artifact
        self.log_params_on_trial_end = log_params_on_trial_end
        self._experiment_id = ""
        self._run_ids: dict[str, str] = {}
        """MLflow run ids of the trials that have not ended."""

    def setup(self, *args: object, **info: object) -> None:
        if self.tracking_token:
            os.environ["MLFLOW_TRACKING_TOKEN"] = self.tracking_token
        self._experiment_id = find_experiment(self._client(), experiment_name=self.experiment_name)

    def get_state(self) -> Config | None:
        return {"run_ids": dict(self._run_ids)} if self._run_ids else None

    def set_state(self, state: Config) -> None:
        self._run_ids = dict(state["run_ids"])

    @property
    def destination(self) -> str:
        return self.experiment_name or ""

    def _begin_run(self, tracked: TrackedRun, run: str | None) -> str:
        known = (
            run or tracked.key or (self._run_ids.get(tracked.id) if tracked.is_resumed else None)
        )
        if known is not None:
            self._client().update_run(known, status="RUNNING")
            return known
        tags = {**(self.tags or {}), f"{tracked.kind}_name": tracked.name}
        run_id = str(
            self._client()
            .create_run(self._experiment_id, run_name=tracked.name, tags=tags)
            .info.run_id
        )
        self._run_ids[tracked.id] = run_id
        if not self.log_params_on_trial_end:
            log_params(self._client(), run_id, tracked.config)
        return run_id

    def _run_key(self, run: str, tracked: TrackedRun) -> str:
        return run

    def _log_result(self, run: str, tracked: TrackedRun, result: Metrics, step: int) -> None:
        log_metrics(self._client(), run, result, step)

    def _end_run(self, run: str, tracked: TrackedRun, outcome: Outcome) -> None:
        client = self._client()
        if outcome != "interrupted":
            self._run_ids.pop(tracked.id, None)
            if self.should_save_artifact and tracked.local_path is not None:
                client.log_artifacts(run, tracked.local_path)
            if self.log_params_on_trial_end:
                log_params(client, run, tracked.config)
        client.set_terminated(run, status=_STATUS[outcome])

    def _client(self) -> Client:
        mlflow = load("mlflow", purpose="MLflowLoggerCallback", install="mlflow")
        return mlflow.MlflowClient(tracking_uri=self.tracking_uri, registry_uri=self.registry_uri)


def find_experiment(
    client: Client,
    *,
    experiment_id: str | None = None,
    experiment_name: str | None = None,
    artifact_location: str | None = None,
    create: bool = True,
) -> str:
    """Return the id of the experiment with the given id, else of the one with the given name, else
    of a new one with that name.

    Args:
        client: An `MlflowClient`.
        experiment_id: By default `MLFLOW_EXPERIMENT_ID`.
        experiment_name: By default `MLFLOW_EXPERIMENT_NAME`.
        artifact_location: Artifact directory of a new experiment.
        create: Create a missing experiment.

    Raises:
        ValueError: The experiment does not exist, and `create` is False or no name is given.
    """
    experiment_id = experiment_id or settings.environment("MLFLOW_EXPERIMENT_ID")
    experiment_name = experiment_name or settings.environment("MLFLOW_EXPERIMENT_NAME")
    if experiment_id and _exists(client.get_experiment, experiment_id):
        return experiment_id
    found = client.get_experiment_by_name(experiment_name) if experiment_name else None
    if found is not None:
        return str(found.experiment_id)
    if experiment_name and create:
        return str(client.create_experiment(experiment_name, artifact_location=artifact_location))
    remedy = (
        "give an `experiment_name`"
        if create
        else "create it first, or pass `create_experiment_if_not_exists=True`"
    )
    raise ValueError(
        f"MLflow has no experiment with experiment_id={experiment_id!r} or "
        f"experiment_name={experiment_name!r}, and runs must belong to one: {remedy}."
    )


def log_params(client: Client, run_id: str, config: Mapping[str, object]) -> None:
    """Log a configuration as parameters; nested values get keys like `a/b`."""
    entities = load("mlflow.entities", purpose="logging to MLflow", install="mlflow")
    params = [entities.Param(_key(key), str(value)) for key, value in flatten(config).items()]
    for batch in _batches(params):
        client.log_batch(run_id, params=batch)


def log_metrics(
    client: Client, run_id: str, result: Metrics, step: int, clock: Callable[[], float] = time.time
) -> None:
    """Log the numbers of a result as metrics of the step."""
    entities = load("mlflow.entities", purpose="logging to MLflow", install="mlflow")
    now = int(clock() * 1000)
    numbers = ((key, value) for key, value in flatten(result).items() if isinstance(value, Real))
    metrics = [entities.Metric(_key(key), float(value), now, step) for key, value in numbers]
    for batch in _batches(metrics):
        client.log_batch(run_id, metrics=batch)


def _exists(get: Callable[[str], object], identifier: str) -> bool:
    exceptions = load("mlflow.exceptions", purpose="logging to MLflow", install="mlflow")
    try:
        return get(identifier) is not None
    except exceptions.MlflowException:
        return False


def _key(key: str) -> str:
    return _NOT_IN_KEYS.sub("_", key)


def _batches(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    for start in range(0, len(items), _BATCH):
        yield items[start : start + _BATCH]
