"""MLflow: `setup_mlflow` for training functions, and `MLflowLoggerCallback`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from syncline import settings
from syncline.air.integrations.run_identity import RunIdentity
from syncline.optional import load
from syncline.tune.logger.mlflow import MLflowLoggerCallback, find_experiment, log_params

__all__ = ["MLflowLoggerCallback", "setup_mlflow"]


class NothingLogged:
    """Replaces the module `mlflow`, and all results of its functions, on ranks that log nothing."""

    def __getattr__(self, name: str) -> NothingLogged:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *arguments: object, **named: object) -> NothingLogged:
        return self

    def __enter__(self) -> NothingLogged:
        return self

    def __exit__(self, *error: object) -> None:
        return None


def setup_mlflow(
    config: Mapping[str, object] | None = None,
    tracking_uri: str | None = None,
    registry_uri: str | None = None,
    experiment_id: str | None = None,
    experiment_name: str | None = None,
    tracking_token: str | None = None,
    artifact_location: str | None = None,
    run_name: str | None = None,
    create_experiment_if_not_exists: bool = False,
    tags: dict[str, Any] | None = None,
    rank_zero_only: bool = True,
) -> Any:
    """Start an MLflow run in a training function, log its configuration, and return `mlflow`.

    Args:
        config: Parameters of the run; nested ones get keys like `a/b`.
        tracking_uri: Server, database or directory of MLflow; by default `MLFLOW_TRACKING_URI`.
        registry_uri: Model registry of MLflow.
        experiment_id: Experiment; by default `MLFLOW_EXPERIMENT_ID`, then the trial's id.
        experiment_name: Experiment if none has that id; by default `MLFLOW_EXPERIMENT_NAME`, then
            the name of the trial or of the trainer's run.
        tracking_token: Token for the server; sets `MLFLOW_TRACKING_TOKEN`.
        artifact_location: Directory for the artifacts of a new experiment.
        run_name: Name of the run; by default that of the experiment.
        create_experiment_if_not_exists: Create a missing experiment.
        tags: Tags of the run.
        rank_zero_only: Return an object that logs nothing on all ranks but 0.

    Raises:
        ImportError: mlflow is not installed.
        ValueError: The experiment does not exist, and must not be created.
    """
    mlflow = load("mlflow", purpose="setup_mlflow", install="mlflow")
    here = RunIdentity.current()
    if rank_zero_only and here.rank:
        return NothingLogged()
    if tracking_token:
        os.environ["MLFLOW_TRACKING_TOKEN"] = tracking_token
    if tracking_uri:
        mlflow.set_tracking_uri(tracking_uri)
    if registry_uri:
        mlflow.set_registry_uri(registry_uri)
    experiment_name = (
        experiment_name or settings.environment("MLFLOW_EXPERIMENT_NAME") or here.trial_name
    )
    client = mlflow.MlflowClient()
    experiment_id = find_experiment(
        client,
        experiment_id=experiment_id
        or settings.environment("MLFLOW_EXPERIMENT_ID")
        or here.trial_id,
        experiment_name=experiment_name,
        artifact_location=artifact_location,
        create=create_experiment_if_not_exists,
    )
    run = mlflow.active_run() or mlflow.start_run(
        run_name=run_name or experiment_name, experiment_id=experiment_id, tags=tags
    )
    log_params(client, run.info.run_id, config or {})
    return mlflow
