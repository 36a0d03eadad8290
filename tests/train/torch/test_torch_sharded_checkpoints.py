"""Each rank saves its own part of a sharded model and optimizer; another number of ranks goes on
from the parts, exactly.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict

import syncline
from syncline import train
from syncline.train.torch import TorchTrainer, prepare_model

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module", autouse=True)
def engine() -> Iterator[None]:
    syncline.init(num_cpus=4)
    yield
    syncline.shutdown()


def one_more_step() -> tuple[list[float], list[float]]:
    """Go on from the checkpoint, take a step, save; returns every number of model and optimizer
    before and after.
    """
    model = prepare_model(nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2)), parallel_strategy="fsdp")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    checkpoint = train.get_checkpoint()
    if checkpoint is not None:
        saved = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
        with checkpoint.as_directory() as directory:
            dcp.load(saved, checkpoint_id=directory)
        set_state_dict(
            model, optimizer, model_state_dict=saved["model"], optim_state_dict=saved["optimizer"]
        )
    before = numbers(model, optimizer)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    state = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
    with tempfile.TemporaryDirectory() as directory:
        dcp.save(state, checkpoint_id=directory)
        train.report(
            {"files": len(os.listdir(directory))},
            checkpoint=train.Checkpoint.from_directory(directory),
        )
    return before, numbers(model, optimizer)


def numbers(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[float]:
    model_state, optimizer_state = get_state_dict(
        model, optimizer, options=StateDictOptions(full_state_dict=True)
    )
    states: dict[str, Any] = optimizer_state["state"]  # type: ignore[assignment]
    tensors = [
        *model_state.values(),
        *(value for name in sorted(states) for value in states[name].values()),
    ]
    return [number for tensor in tensors for number in tensor.flatten().tolist()]


@pytest.mark.long
def test_shards_of_two_ranks_are_read_by_one_and_then_by_three(tmp_path: Path) -> None:
    checkpoint, after = None, None
    for workers, files in ((2, 2), (1, 1), (3, 3)):
        result = TorchTrainer(
            one_more_step,
            scaling_config=train.ScalingConfig(num_workers=workers),
            run_config=train.RunConfig(name=f"with-{workers}", storage_path=str(tmp_path)),
            resume_from_checkpoint=checkpoint,
        ).fit()
        before, now = result.return_value
        assert after is None or before == after
        assert now != before
        checkpoint, after = result.checkpoint, now
        assert checkpoint is not None
        assert len(list(Path(checkpoint.path).glob("*.distcp"))) == files
