"""Freezes the public surface of `syncline.tune`: the names that programs written for Ray import."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from syncline import tune

NAMES = """
CLIReporter Callback Checkpoint CheckpointConfig Experiment ExperimentAnalysis FailureConfig
JupyterNotebookReporter PlacementGroupFactory ProgressReporter Result ResultGrid ResumeConfig
RunConfig Stopper SyncConfig Trainable TuneConfig TuneContext TuneError Tuner choice
create_scheduler create_searcher get_checkpoint get_context grid_search lograndint loguniform
qlograndint qloguniform qrandint qrandn quniform randint randn register_env register_trainable
report run run_experiments sample_from track uniform with_parameters with_resources
"""
ADDRESSES = {
    "syncline.tune.analysis": "ExperimentAnalysis",
    "syncline.tune.callback": "Callback",
    "syncline.tune.error": "TuneError",
    "syncline.tune.execution.placement_groups": "PlacementGroupFactory",
    "syncline.tune.experiment": "Trial Experiment",
    "syncline.tune.integration.ray_train": "TuneReportCallback",
    "syncline.tune.logger": "CSVLoggerCallback JsonLoggerCallback LoggerCallback TBXLoggerCallback",
    "syncline.tune.logger.aim": "AimLoggerCallback",
    "syncline.air.integrations.comet": "CometLoggerCallback",
    "syncline.air.integrations.mlflow": "MLflowLoggerCallback setup_mlflow",
    "syncline.air.integrations.wandb": "WandbLoggerCallback setup_wandb",
    "syncline.tune.registry": "register_env register_trainable get_trainable_cls",
    "syncline.tune.result": "TRAINING_ITERATION DONE TIME_TOTAL_S TRIAL_ID",
    "syncline.tune.result_grid": "ResultGrid",
    "syncline.tune.schedulers": (
        "TrialScheduler HyperBandScheduler AsyncHyperBandScheduler ASHAScheduler "
        "MedianStoppingRule FIFOScheduler PopulationBasedTraining "
        "PopulationBasedTrainingReplay HyperBandForBOHB ResourceChangingScheduler"
    ),
    "syncline.tune.schedulers.pb2": "PB2",
    "syncline.tune.search": (
        "BasicVariantGenerator ConcurrencyLimiter Repeater SearchAlgorithm SearchGenerator "
        "Searcher grid_search"
    ),
    "syncline.tune.search.ax": "AxSearch",
    "syncline.tune.search.basic_variant": "BasicVariantGenerator",
    "syncline.tune.search.bayesopt": "BayesOptSearch",
    "syncline.tune.search.bohb": "TuneBOHB",
    "syncline.tune.search.hebo": "HEBOSearch",
    "syncline.tune.search.hyperopt": "HyperOptSearch",
    "syncline.tune.search.nevergrad": "NevergradSearch",
    "syncline.tune.search.optuna": "OptunaSearch",
    "syncline.tune.search.sample": "Categorical Domain Float Function Integer",
    "syncline.tune.search.zoopt": "ZOOptSearch",
    "syncline.tune.stopper": (
        "CombinedStopper ExperimentPlateauStopper FunctionStopper MaximumIterationStopper "
        "NoopStopper Stopper TimeoutStopper TrialPlateauStopper"
    ),
    "syncline.tune.trainable": "Trainable with_parameters with_resources",
    "syncline.tune.tuner": "Tuner",
}


def test_names_of_tune() -> None:
    assert list(tune.__all__) == sorted(NAMES.split())
    for name in tune.__all__:
        assert getattr(tune, name) is not None


@pytest.mark.parametrize("module", ADDRESSES)
def test_names_at_their_addresses(module: str) -> None:
    found = importlib.import_module(module)
    assert [name for name in ADDRESSES[module].split() if not hasattr(found, name)] == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        tune.__getattr__("nothing")


HEAVY = ("torch", "pandas", "optuna", "plotly")


@pytest.mark.parametrize(
    ("use", "unwanted"), [("tune", (*HEAVY, "numpy", "rich")), ("tune.Tuner", HEAVY)]
)
def test_only_what_is_used_is_loaded(use: str, unwanted: tuple[str, ...]) -> None:
    program = (
        f"import sys; from syncline import tune; {use}; "
        f"print([name for name in {unwanted!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
