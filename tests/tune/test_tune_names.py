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
    "syncline.tune.analysis.experiment_analysis": "ExperimentAnalysis",
    "syncline.tune.callback": "Callback CallbackList",
    "syncline.tune.context": "TuneContext get_context",
    "syncline.tune.error": "TuneError",
    "syncline.tune.examples.async_hyperband_example": "easy_objective evaluation_fn",
    "syncline.tune.examples.custom_func_checkpointing": "train_func evaluation_fn",
    "syncline.tune.examples.optuna_example": "easy_objective evaluation_fn",
    "syncline.tune.examples.pbt_example": "PBTBenchmarkExample",
    "syncline.tune.examples.pbt_function": "pbt_function",
    "syncline.tune.examples.tune_basic_example": "easy_objective evaluation_fn",
    "syncline.tune.execution.placement_groups": "PlacementGroupFactory resource_dict_to_pg_factory",
    "syncline.tune.experiment": "Trial Experiment",
    "syncline.tune.experiment.experiment": "Experiment",
    "syncline.tune.experiment.trial": "Trial",
    "syncline.tune.integration.lightgbm": "TuneReportCallback TuneReportCheckpointCallback",
    "syncline.tune.integration.pytorch_lightning": (
        "TuneCallback TuneReportCallback TuneReportCheckpointCallback"
    ),
    "syncline.tune.integration.ray_train": "TuneReportCallback",
    "syncline.tune.integration.xgboost": "TuneReportCallback TuneReportCheckpointCallback",
    "syncline.tune.logger": "CSVLoggerCallback JsonLoggerCallback LoggerCallback TBXLoggerCallback",
    "syncline.tune.logger.aim": "AimLoggerCallback",
    "syncline.tune.logger.comet": "CometLoggerCallback",
    "syncline.tune.logger.csv": "CSVLoggerCallback",
    "syncline.tune.logger.json": "JsonLoggerCallback",
    "syncline.tune.logger.logger": "LoggerCallback pretty_print",
    "syncline.tune.logger.mlflow": "MLflowLoggerCallback",
    "syncline.tune.logger.tensorboardx": "TBXLoggerCallback",
    "syncline.tune.logger.wandb": "WandbLoggerCallback",
    "syncline.air.integrations.comet": "CometLoggerCallback",
    "syncline.air.integrations.mlflow": "MLflowLoggerCallback setup_mlflow",
    "syncline.air.integrations.wandb": "WandbLoggerCallback setup_wandb",
    "syncline.tune.progress_reporter": "CLIReporter JupyterNotebookReporter ProgressReporter",
    "syncline.tune.registry": "register_env register_trainable get_trainable_cls",
    "syncline.tune.result": "TRAINING_ITERATION DONE TIME_TOTAL_S TRIAL_ID",
    "syncline.tune.result_grid": "ResultGrid",
    "syncline.tune.schedulers": (
        "TrialScheduler HyperBandScheduler AsyncHyperBandScheduler ASHAScheduler "
        "MedianStoppingRule FIFOScheduler PopulationBasedTraining "
        "PopulationBasedTrainingReplay HyperBandForBOHB ResourceChangingScheduler"
    ),
    "syncline.tune.schedulers.async_hyperband": "AsyncHyperBandScheduler ASHAScheduler",
    "syncline.tune.schedulers.hb_bohb": "HyperBandForBOHB",
    "syncline.tune.schedulers.hyperband": "HyperBandScheduler",
    "syncline.tune.schedulers.median_stopping_rule": "MedianStoppingRule",
    "syncline.tune.schedulers.pb2": "PB2",
    "syncline.tune.schedulers.pbt": "PopulationBasedTraining PopulationBasedTrainingReplay",
    "syncline.tune.schedulers.resource_changing_scheduler": (
        "DistributeResources DistributeResourcesToTopJob ResourceChangingScheduler"
    ),
    "syncline.tune.schedulers.trial_scheduler": "FIFOScheduler TrialScheduler",
    "syncline.tune.search": (
        "BasicVariantGenerator ConcurrencyLimiter Repeater SearchAlgorithm SearchGenerator "
        "Searcher create_searcher grid_search"
    ),
    "syncline.tune.search.ax": "AxSearch",
    "syncline.tune.search.ax.ax_search": "AxSearch",
    "syncline.tune.search.basic_variant": "BasicVariantGenerator",
    "syncline.tune.search.bayesopt": "BayesOptSearch",
    "syncline.tune.search.bayesopt.bayesopt_search": "BayesOptSearch",
    "syncline.tune.search.bohb": "TuneBOHB",
    "syncline.tune.search.bohb.bohb_search": "TuneBOHB",
    "syncline.tune.search.concurrency_limiter": "ConcurrencyLimiter",
    "syncline.tune.search.hebo": "HEBOSearch",
    "syncline.tune.search.hebo.hebo_search": "HEBOSearch",
    "syncline.tune.search.hyperopt": "HyperOptSearch",
    "syncline.tune.search.hyperopt.hyperopt_search": "HyperOptSearch",
    "syncline.tune.search.nevergrad": "NevergradSearch",
    "syncline.tune.search.nevergrad.nevergrad_search": "NevergradSearch",
    "syncline.tune.search.optuna": "OptunaSearch",
    "syncline.tune.search.optuna.optuna_search": "OptunaSearch",
    "syncline.tune.search.repeater": "Repeater TRIAL_INDEX",
    "syncline.tune.search.sample": "Categorical Domain Float Function Integer",
    "syncline.tune.search.search_algorithm": "SearchAlgorithm",
    "syncline.tune.search.search_generator": "SearchGenerator",
    "syncline.tune.search.searcher": "Searcher",
    "syncline.tune.search.util": "",
    "syncline.tune.search.variant_generator": "RecursiveDependencyError generate_variants",
    "syncline.tune.search.zoopt": "ZOOptSearch",
    "syncline.tune.search.zoopt.zoopt_search": "ZOOptSearch",
    "syncline.tune.stopper": (
        "CombinedStopper ExperimentPlateauStopper FunctionStopper MaximumIterationStopper "
        "NoopStopper Stopper TimeoutStopper TrialPlateauStopper"
    ),
    "syncline.tune.stopper.experiment_plateau": "ExperimentPlateauStopper",
    "syncline.tune.stopper.function_stopper": "FunctionStopper",
    "syncline.tune.stopper.maximum_iteration": "MaximumIterationStopper",
    "syncline.tune.stopper.noop": "NoopStopper",
    "syncline.tune.stopper.stopper": "CombinedStopper Stopper",
    "syncline.tune.stopper.timeout": "TimeoutStopper",
    "syncline.tune.stopper.trial_plateau": "TrialPlateauStopper",
    "syncline.tune.trainable": "FunctionTrainable Trainable with_parameters with_resources",
    "syncline.tune.trainable.function_trainable": "FunctionTrainable wrap_function",
    "syncline.tune.trainable.trainable": "Trainable",
    "syncline.tune.trainable.util": "with_parameters with_resources",
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
    ("use", "unwanted"),
    [
        ("tune", (*HEAVY, "numpy", "rich")),
        ("tune.search", (*HEAVY, "pyarrow", "psutil", "syncline.train")),
        ("tune.Tuner", HEAVY),
    ],
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
