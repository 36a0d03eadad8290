"""`MLflowLoggerCallback`, and the finding of an MLflow experiment, which
`syncline.air.integrations.mlflow` shares.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Real
from typing import Any, TypeVar

from syncline import settings
from syncline.optional import load, require
from syncline.train.metric_values import flatten
from syncline.tune.logger.tracker import Outcome, Tracked, TrackerCallback
from syncline.tune.result import TIMESTEPS_TOTAL, TRAINING_ITERATION

_Item = TypeVar("_Item")

_BATCH = 100
"""MLflow takes so many parameters in one request."""
_NOT_IN_KEYS = re.compile(r"[^\w\-. /]")
_STATUS: dict[Outcome, str] = {"finished": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}


class MLflowLoggerCallback(TrackerCallback):
    """Logs each trial, or a training run, as a run of an MLflow experiment: its configuration as
    parameters, the numbers of its results as metrics.

    The runs are begun where the search or the training is controlled; for MLflow within a trial or
    a training function there is `syncline.air.integrations.mlflow.setup_mlflow`. A trial of a
    restored search goes on in its run, and so does a training run that is started again.

    Args:
        tracking_uri: MLflow's server, database or directory; by default as MLflow finds it
            (`MLFLOW_TRACKING_URI`).
        registry_uri: MLflow's registry of models.
        experiment_name: The experiment, made if there is none of that name;
            `MLFLOW_EXPERIMENT_NAME` by default.
        tags: Tags of every run, besides `trial_name`, or `run_name` of a training run.
        tracking_token: For a server that asks for one; becomes `MLFLOW_TRACKING_TOKEN`.
        save_artifact: Whether the directory of the trial, or of the training run, is logged as an
            artifact at its end, with its checkpoints, if it is on this machine.
        log_params_on_trial_end: Whether the configuration is logged at the end, and not at the
            start.

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
        tags: dict[str, Any] | None = None,
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
        """Of the trials that have not ended."""

    def setup(self, *args: Any, **info: Any) -> None:
        if self.tracking_token:
            os.environ["MLFLOW_TRACKING_TOKEN"] = self.tracking_token
        self._experiment_id = find_experiment(self._client(), experiment_name=self.experiment_name)

    def get_state(self) -> dict[str, Any] | None:
        return {"run_ids": dict(self._run_ids)} if self._run_ids else None

    def set_state(self, state: dict[str, Any]) -> None:
        self._run_ids = dict(state["run_ids"])

    @property
    def place(self) -> str:
        return self.experiment_name or ""

    def _begin_run(self, tracked: Tracked, run: str | None) -> str:
        known = (
            run or tracked.key or (self._run_ids.get(tracked.id) if tracked.is_continued else None)
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

    def _key_of(self, run: str, tracked: Tracked) -> str:
        return run

    def _log_result(self, run: str, tracked: Tracked, result: dict[str, Any], step: int) -> None:
        log_metrics(self._client(), run, result, step)

    def _end_run(self, run: str, tracked: Tracked, outcome: Outcome) -> None:
        client = self._client()
        if outcome != "interrupted":
            self._run_ids.pop(tracked.id, None)
            if self.should_save_artifact and tracked.local_path is not None:
                client.log_artifacts(run, tracked.local_path)
            if self.log_params_on_trial_end:
                log_params(client, run, tracked.config)
        client.set_terminated(run, status=_STATUS[outcome])

    def _client(self) -> Any:
        """A client for the server; to make one costs nothing."""
        mlflow = load("mlflow", purpose="MLflowLoggerCallback", install="mlflow")
        return mlflow.MlflowClient(tracking_uri=self.tracking_uri, registry_uri=self.registry_uri)


def find_experiment(
    client: Any,
    *,
    experiment_id: str | None = None,
    experiment_name: str | None = None,
    artifact_location: str | None = None,
    create: bool = True,
) -> str:
    """The id of an experiment: the one of that id if it exists, else the one of that name, else a
    new one of that name.

    Args:
        client: An `MlflowClient`.
        experiment_id: `MLFLOW_EXPERIMENT_ID` by default.
        experiment_name: `MLFLOW_EXPERIMENT_NAME` by default.
        artifact_location: Where a new one keeps artifacts.
        create: Whether a new one may be made.

    Raises:
        ValueError: There is none, and none may be made or there is no name for it.
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
    raise ValueError(
        f"MLflow has no experiment with experiment_id={experiment_id!r} or experiment_name={experiment_name!r}, so runs would belong "
        f"nowhere: {'give an `experiment_name`' if create else 'create it first, or pass `create_experiment_if_not_exists=True`'}."
    )


def log_params(client: Any, run_id: str, config: Mapping[str, Any]) -> None:
    """Log a configuration as parameters; nested ones get keys like `a/b`."""
    entities = load("mlflow.entities", purpose="logging to MLflow", install="mlflow")
    params = [entities.Param(_key(key), str(value)) for key, value in flatten(config).items()]
    for batch in _batches(params):
        client.log_batch(run_id, params=batch)


def log_metrics(
    client: Any,
    run_id: str,
    result: Mapping[str, Any],
    step: int,
    clock: Callable[[], float] = time.time,
) -> None:
    """Log the numbers of a result as metrics of that step."""
    entities = load("mlflow.entities", purpose="logging to MLflow", install="mlflow")
    now = int(clock() * 1000)
    numbers = ((key, value) for key, value in flatten(result).items() if isinstance(value, Real))
    metrics = [entities.Metric(_key(key), float(value), now, step) for key, value in numbers]
    for batch in _batches(metrics):
        client.log_batch(run_id, metrics=batch)


def _exists(get: Callable[[str], Any], identifier: str) -> bool:
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
