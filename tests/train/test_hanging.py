"""Ranks that hang in a collective operation end the attempt, with the stacks of all of them."""

from __future__ import annotations

import time
from typing import Any

import pytest

import syncline
from syncline.train import NCCLHangError, RunConfig, ScalingConfig
from syncline.train.torch import TorchTrainer

pytestmark = pytest.mark.processes


@pytest.mark.promise
def test_a_rank_that_stays_away_from_a_collective_is_named_with_its_line(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYNCLINE_TRAIN_COLLECTIVE_TIMEOUT_S", "2")

    def train() -> None:
        import torch
        import torch.distributed as dist

        if dist.get_rank() == 1:
            time.sleep(600)  # stays away
        dist.all_reduce(torch.ones(1))

    syncline.init(num_cpus=2, ignore_reinit_error=True)
    trainer = TorchTrainer(
        train,
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(name="hang", storage_path=tmp_path),
    )
    with pytest.raises(NCCLHangError) as raised:
        trainer.fit()
    text = str(raised.value)
    assert list(raised.value.worker_failures) == [1]
    assert "[rank 1]  <-- outlier" in text
    assert "time.sleep(600)  # stays away" in text
    assert "dist.all_reduce(torch.ones(1))" in text
