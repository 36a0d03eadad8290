"""A trainer as a trial: `Tuner(trainer, param_space={"train_loop_config": {"lr": …}})`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from syncline.suggestions import did_you_mean
from syncline.train.config import ScalingConfig
from syncline.train.session import current_session
from syncline.train.trainer import DataParallelTrainer
from syncline.tune.callback import Callback
from syncline.tune.execution.placement_groups import Gang
from syncline.tune.integration.ray_train import TuneReportCallback
from syncline.tune.result import Config
from syncline.tune.trainable.function_trainable import FunctionTrainable, wrap_function
from syncline.tune.trainable.util import with_resources

RUN_NAME = "run"
"""Name of the run directory in the trial's directory. A restarted trial continues this run."""
_KEYS = ("train_loop_config", "scaling_config")


def trainer_trainable(trainer: DataParallelTrainer) -> type[FunctionTrainable]:
    """Return the trainable class whose trials run `trainer`, each with its own `train_loop_config`
    (merged into the trainer's) and `scaling_config`.

    A trial reserves its whole worker group and nothing for itself. Callbacks of the trainer that
    are also callbacks of searches are called by the search (`launch.py`).
    """

    def train(config: Config) -> None:
        check_keys(config)
        session = current_session()
        assert session is not None, "the function of a trial has a session"
        storage = session.storage
        callback = TuneReportCallback()
        given = trainer.run_config.callbacks or ()
        own_callbacks = (one for one in given if not isinstance(one, Callback))
        run_config = replace(
            trainer.run_config,
            name=RUN_NAME,
            storage_path=storage.experiment_fs_path,
            storage_filesystem=storage.storage_filesystem,
            callbacks=[*own_callbacks, callback],
        )
        callback.report_missed(run_config)
        trainer.changed(
            train_loop_config=config.get("train_loop_config"),
            scaling_config=scaling_of(trainer, config),
            run_config=run_config,
        ).fit()

    def gang(config: Config) -> Gang:
        scaling = scaling_of(trainer, config)
        return Gang([scaling.bundle()] * scaling.min_workers, strategy=scaling.placement_strategy)

    return wrap_function(with_resources(train, gang), name=type(trainer).__name__)


def scaling_of(trainer: DataParallelTrainer, config: Config) -> ScalingConfig:
    """Return the scaling of the trainer with the changes of the trial's configuration."""
    given = config.get("scaling_config")
    if given is None:
        return trainer.scaling_config
    return given if isinstance(given, ScalingConfig) else replace(trainer.scaling_config, **given)


def check_keys(param_space: Mapping[str, object]) -> None:
    """Check the search space of a trainer.

    Raises:
        ValueError: It has parameters that no trainer takes.
    """
    unknown = sorted(set(param_space) - set(_KEYS))
    if unknown:
        raise ValueError(
            f"`param_space` has {unknown}, which a trainer does not take: move parameters of the "
            f"training function to `param_space={{'train_loop_config': {{{unknown[0]!r}: …}}}}`."
            f"{did_you_mean(unknown[0], _KEYS)}"
        )
