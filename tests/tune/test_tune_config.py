"""Configuration of a search is validated on creation and also serves trainers."""

from __future__ import annotations

import datetime
import math
from pathlib import Path
from typing import Any

import pytest

from syncline import train, tune
from syncline.train.run_config import RunConfig as TrainRunConfig
from syncline.tune.launch import as_run_config


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"num_samples": 0}, "`num_samples=0`"),
        ({"num_samples": -2}, "-1 for no limit"),
        ({"num_samples": 1.5}, "an integer"),
        ({"num_samples": True}, "an integer"),
        ({"mode": "maximum"}, '"min" or "max"'),
        ({"metric": ["a", "b"], "mode": ["min"]}, "2 metrics"),
        ({"max_concurrent_trials": -1}, "`max_concurrent_trials=-1`"),
        ({"max_concurrent_trials": 2.0}, "an integer"),
        ({"time_budget_s": 0}, "seconds above 0"),
        ({"time_budget_s": math.nan}, "seconds above 0"),
        ({"trial_name_creator": "name"}, "function of a trial"),
        ({"trial_dirname_creator": 3}, "function of a trial"),
    ],
)
def test_invalid_tune_configs_are_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match="`") as caught:
        tune.TuneConfig(**arguments)
    assert said in str(caught.value)


def test_a_time_budget_may_be_a_duration() -> None:
    assert tune.TuneConfig(time_budget_s=datetime.timedelta(minutes=2)).budget_s == 120
    assert tune.TuneConfig(time_budget_s=3).budget_s == 3
    assert tune.TuneConfig().budget_s is None


def test_resume_config_accepts_known_treatments_only() -> None:
    default = tune.ResumeConfig()
    assert (default.finished, default.unfinished, default.errored) == ("SKIP", "RESUME", "SKIP")
    assert tune.ResumeConfig(errored=tune.ResumeConfig.ResumeType.RESTART).errored == "RESTART"
    with pytest.raises(ValueError, match="`unfinished='AGAIN'`"):
        tune.ResumeConfig(unfinished="AGAIN")


def test_either_the_first_failure_ends_the_search_or_trials_start_again() -> None:
    with pytest.raises(ValueError, match=r"`max_failures=2` would restart the trial"):
        tune.FailureConfig(max_failures=2, fail_fast=True)
    with pytest.raises(ValueError, match="`fail_fast='never'`"):
        tune.FailureConfig(fail_fast="never")
    assert tune.FailureConfig(fail_fast="raise").fail_fast == "raise"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"checkpoint_frequency": -1}, "`checkpoint_frequency=-1`"),
        ({"checkpoint_frequency": 1.5}, "an integer"),
        ({"checkpoint_at_end": "yes"}, "`checkpoint_at_end='yes'`"),
        ({"num_to_keep": 0}, "num_to_keep"),
    ],
)
def test_invalid_checkpoint_configs_are_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match="`") as caught:
        tune.CheckpointConfig(**arguments)
    assert said in str(caught.value)


def test_run_config_for_a_search() -> None:
    first, second = tune.RunConfig(), tune.RunConfig()
    assert first.name != second.name, "two searches never share a directory by accident"
    assert first.storage_path
    for log, expected in (
        (None, None),
        (False, None),
        (True, ("stdout", "stderr")),
        ("all.log", ("all.log", "all.log")),
        (("out", "err"), ("out", "err")),
    ):
        assert tune.RunConfig(log_to_file=log).log_files == expected
    for arguments, said in (
        ({"log_to_file": ("one", "two", "three")}, "`log_to_file="),
        ({"verbose": 4}, "`verbose=4`"),
        ({"callbacks": [tune.Callback]}, "pass an instance"),
        ({"callbacks": ["console"]}, "no Callback"),
    ):
        with pytest.raises(ValueError, match="`") as caught:
            tune.RunConfig(**arguments)
        assert said in str(caught.value)


def test_a_configuration_serves_a_search_and_a_trainer(tmp_path: Path) -> None:
    for_both = tune.RunConfig(name="both", storage_path=str(tmp_path), verbose=2, stop={"loss": 1})
    assert isinstance(for_both, TrainRunConfig)
    assert train.DataParallelTrainer(lambda: None, run_config=for_both).run_config.name == "both"
    of_a_trainer = as_run_config(TrainRunConfig(name="of a trainer", storage_path=str(tmp_path)))
    assert isinstance(of_a_trainer, tune.RunConfig)
    assert (of_a_trainer.name, of_a_trainer.storage_path) == ("of a trainer", str(tmp_path))
    assert isinstance(as_run_config(None), tune.RunConfig)
    assert as_run_config(for_both) is for_both
