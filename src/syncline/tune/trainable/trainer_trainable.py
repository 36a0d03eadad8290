"""A trainer as a trial: `Tuner(trainer, param_space={"train_loop_config": {"lr": …}})`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from syncline.train.config import ScalingConfig
from syncline.train.session import current_session
from syncline.train.trainer import DataParallelTrainer
from syncline.tune.callback import Callback
from syncline.tune.execution.placement_groups import Gang
from syncline.tune.integration.ray_train import TuneReportCallback
from syncline.tune.trainable.function_trainable import FunctionTrainable, wrap_function
from syncline.tune.trainable.util import with_resources

RUN_NAME = "run"
"""Name of the trainer's run directory in that of the trial: a trial that starts again continues its
run.
"""
_KEYS = ("train_loop_config", "scaling_config")


def trainer_trainable(trainer: DataParallelTrainer) -> type[FunctionTrainable]:
    """The class whose trials run `trainer`, each with its `train_loop_config` (added to the
    trainer's own) and `scaling_config`.

    A trial reserves its whole worker group at once, and holds nothing itself. The trainer's
    callbacks that are callbacks of searches, too, are the search's (`launch.py`).
    """

    def train(config: dict[str, Any]) -> None:
        check_keys(config)
        session = current_session()
        assert session is not None, "the function of a trial has a session"
        storage = session.storage
        callback = TuneReportCallback()
        run_config = replace(
            trainer.run_config,
            name=RUN_NAME,
            storage_path=storage.experiment_fs_path,
            storage_filesystem=storage.storage_filesystem,
            callbacks=[
                *(
                    one
                    for one in trainer.run_config.callbacks or ()
                    if not isinstance(one, Callback)
                ),
                callback,
            ],
        )
        callback.tell_earlier(run_config)
        trainer.changed(
            train_loop_config=config.get("train_loop_config"),
            scaling_config=scaling_of(trainer, config),
            run_config=run_config,
        ).fit()

    def gang(config: dict[str, Any]) -> Gang:
        scaling = scaling_of(trainer, config)
        return Gang([scaling.bundle()] * scaling.min_workers, strategy=scaling.placement_strategy)

    return wrap_function(with_resources(train, gang), name=type(trainer).__name__)


def scaling_of(trainer: DataParallelTrainer, config: Mapping[str, Any]) -> ScalingConfig:
    """The trainer's scaling, with what the trial's configuration says about it."""
    given = config.get("scaling_config")
    if given is None:
        return trainer.scaling_config
    return given if isinstance(given, ScalingConfig) else replace(trainer.scaling_config, **given)


def check_keys(param_space: Mapping[str, Any]) -> None:
    """ValueError where a search space for a trainer has parameters that no trainer takes."""
    unknown = sorted(set(param_space) - set(_KEYS))
    if unknown:
        raise ValueError(
            f"`param_space` of a trainer has {unknown}, which a trainer does not take: put parameters of the training function into "
            f"`param_space={{'train_loop_config': {{{unknown[0]!r}: …}}}}`."
        )
