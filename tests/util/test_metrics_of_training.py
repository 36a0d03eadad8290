"""Metrics of training workers reach the program and the text of the dashboard's `/metrics`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import syncline
from syncline import train
from syncline.dashboard.program_metrics import program_texts
from syncline.util import metrics
from syncline.util.metrics import Counter

pytestmark = pytest.mark.processes


def train_fn() -> None:
    rank = str(train.get_context().get_world_rank())
    Counter("steps_of_training", tag_keys=("rank",)).inc(3, tags={"rank": rank})
    train.report({"loss": 1.0})


def test_metrics_of_training_workers_reach_program_and_dashboard(tmp_path: Path) -> None:
    syncline.init(num_cpus=2)
    train.DataParallelTrainer(
        train_fn,
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(storage_path=str(tmp_path)),
    ).fit()
    expected = {'steps_of_training{rank="0"} 3', 'steps_of_training{rank="1"} 3'}
    assert expected <= set(metrics.text().splitlines())
    assert expected <= set(program_texts()[str(os.getpid())].splitlines())
