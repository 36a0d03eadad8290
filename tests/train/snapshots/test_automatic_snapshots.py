"""Automatic snapshots of models and optimizers, in one process with a session of one rank."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import nn

from syncline.train.resume_state import Readers
from syncline.train.session import TrainSession
from syncline.train.snapshots import directory as directories
from syncline.train.snapshots.config import SnapshotConfig, SnapshotSpec
from syncline.train.snapshots.rank_snapshots import RankSnapshots
from syncline.train.torch import automatic_snapshots
from syncline.train.torch.automatic_snapshots import follow_model, follow_optimizer


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(directories, "start_reaper", lambda directory, keep_s: None)
    yield
    if automatic_snapshots._current is not None:
        automatic_snapshots._current.close()
        automatic_snapshots._current = None
    for path in list(directories._locks):
        os.close(directories._locks.pop(path))


class Session:
    next_report = 0

    def __init__(self, folder: Path, resume_step: int | None) -> None:
        spec = SnapshotSpec(
            directory=str(folder / "run"), config=SnapshotConfig(), resume_step=resume_step
        )
        snapshots = self.snapshots = RankSnapshots(
            spec, rank=0, world_size=1, local_world_size=1, agree=int
        )
        snapshots.begin()
        self.readers = Readers(rank=0, world_size=1, captured=lambda: snapshots.resumed_readers)


def session(folder: Path, resume_step: int | None = None) -> TrainSession:
    return cast(TrainSession, Session(folder, resume_step))


def network(width: int = 4) -> nn.Module:
    return nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width), nn.Linear(width, 1))


def train(model: nn.Module, optimizers: list[torch.optim.Optimizer], steps: int) -> None:
    """Train; the program requests a batch after each step."""
    for _ in range(steps):
        model(torch.randn(8, 4)).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        if automatic_snapshots._current is not None:
            automatic_snapshots._current.session.readers.requested()


def state(model: nn.Module) -> dict[str, Any]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def assert_equal(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


@pytest.mark.parametrize("steps", [1, 3])
def test_training_continues_with_the_same_weights(tmp_path: Path, steps: int) -> None:
    """The program draws random numbers, and loads an old checkpoint after the restart."""
    torch.manual_seed(3)
    model = network()
    old = state(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    train(model, [optimizer], 6)
    expected = state(model)

    torch.manual_seed(3)
    first = session(tmp_path)
    model = network()
    follow_model(model, first, None)
    train(model, [torch.optim.AdamW(model.parameters(), lr=0.1)], steps)

    torch.manual_seed(99)
    second = session(tmp_path, resume_step=steps)
    model = network()
    follow_model(model, second, None)
    model.load_state_dict(old)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.5)
    second.readers.restore_random_without_reader()
    train(model, [optimizer], 6 - steps)
    assert_equal(state(model), expected)
    assert optimizer.param_groups[0]["lr"] == 0.1


def test_optimizers_are_recognized_in_any_order_and_carried_over(tmp_path: Path) -> None:
    def setup(step: int | None) -> tuple[nn.Module, list[torch.optim.Optimizer]]:
        found = session(tmp_path, step)
        model = network()
        follow_model(model, found, None)
        parts = list(model.children())
        return model, [
            torch.optim.AdamW(parts[0].parameters(), lr=0.1),
            torch.optim.SGD(parts[2].parameters(), lr=0.1, momentum=0.9),
        ]

    model, optimizers = setup(None)
    train(model, optimizers, 2)
    momentum = optimizers[1].state_dict()["state"][0]["momentum_buffer"].clone()
    model, optimizers = setup(2)
    train(model, optimizers[:1], 1)  # the second optimizer does not step
    model, optimizers = setup(3)
    model(torch.randn(8, 4)).square().mean().backward()
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizers[1].step()
    found = optimizers[1].state_dict()["state"][0]["momentum_buffer"]
    torch.testing.assert_close(found, 0.9 * momentum)


def test_a_model_of_another_shape_is_refused_with_both_shapes(tmp_path: Path) -> None:
    model = network()
    follow_model(model, session(tmp_path), None)
    train(model, [torch.optim.SGD(model.parameters())], 1)
    other = network(6)
    follow_model(other, session(tmp_path, 1), None)
    with pytest.raises(
        ValueError, match=r"step 1 was taken of .*float32 \[4, 4\], but .*float32 \[6, 4\]"
    ):
        other(torch.randn(8, 4))
    assert not list((tmp_path / "run").glob("rank-00000.[01]")), "the next attempt does not use it"


def test_a_model_with_other_layers_is_refused(tmp_path: Path) -> None:
    model = network()
    follow_model(model, session(tmp_path), None)
    train(model, [torch.optim.SGD(model.parameters())], 1)
    other = nn.Linear(4, 1)
    follow_model(other, session(tmp_path, 1), None)
    with pytest.raises(
        ValueError, match="is missing, but this model's is|but this model's is missing"
    ):
        other(torch.randn(8, 4))


def test_another_optimizer_is_refused(tmp_path: Path) -> None:
    model = network()
    follow_model(model, session(tmp_path), None)
    train(model, [torch.optim.SGD(model.parameters())], 1)
    other = network()
    follow_model(other, session(tmp_path, 1), None)
    with pytest.raises(ValueError, match="SGD with 6 parameters .* AdamW with 6 parameters"):
        train(other, [torch.optim.AdamW(other.parameters())], 1)


def test_without_a_reader_the_snapshot_waits_for_the_next_forward_pass(tmp_path: Path) -> None:
    found = session(tmp_path)
    assert found.snapshots is not None
    model, progress = network(), {"step": 0}
    found.snapshots.register("progress", progress)
    follow_model(model, found, None)
    optimizer = torch.optim.SGD(model.parameters())
    for step in range(3):
        assert found.snapshots.step == max(0, step - 1)
        model(torch.randn(8, 4)).square().mean().backward()
        assert found.snapshots.step == step
        optimizer.step()
        progress["step"] += 1
    second = session(tmp_path, 2)
    assert second.snapshots is not None
    second.snapshots.register("progress", progress)
    assert progress == {"step": 2}


def test_optimizers_of_other_models_take_no_snapshots(tmp_path: Path) -> None:
    found = session(tmp_path)
    follow_model(network(), found, None)
    other = network()
    train(other, [torch.optim.SGD(other.parameters())], 2)
    assert found.snapshots is not None
    assert found.snapshots.step == 0


def test_with_a_reader_the_snapshot_waits_for_the_request_of_the_next_batch(tmp_path: Path) -> None:
    class Reader:
        waited_s = 0.0

        def state_dict(self) -> dict[str, Any]:
            return {}

        def load_state_dict(self, states: object) -> None:
            pass

    found = session(tmp_path)
    found.readers.add("loader", Reader())
    model = network()
    follow_model(model, found, None)
    optimizer = torch.optim.SGD(model.parameters())
    assert found.snapshots is not None
    for step in (1, 2):
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        assert found.snapshots.step == step - 1
        found.readers.requested()
        found.readers.requested()  # an evaluation reads on without a step
        assert found.snapshots.step == step


def test_models_and_prepared_optimizers_are_restored_when_a_pass_begins(tmp_path: Path) -> None:
    class Reader:
        waited_s = 0.0

        def state_dict(self) -> dict[str, Any]:
            return {"epoch": 0, "ended": False}

        def load_state_dict(self, states: object) -> None:
            pass

    first = session(tmp_path)
    first.readers.add("loader", Reader())
    model = network()
    follow_model(model, first, None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.3)
    train(model, [optimizer], 2)

    second, reader = session(tmp_path, 2), Reader()
    second.readers.add("loader", reader)
    other = network()
    follow_model(other, second, None)
    fresh = torch.optim.AdamW(other.parameters())
    follow_optimizer(fresh, second)
    second.readers.restore_random(reader)
    assert_equal(state(other), state(model))
    assert fresh.state_dict()["state"][0]["step"] == 2
    assert fresh.param_groups[0]["lr"] == 0.3
