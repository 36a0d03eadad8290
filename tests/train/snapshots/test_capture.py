"""States to regions of memory and back."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from syncline.train.snapshots import torch_tensors
from syncline.train.snapshots.capture import SavedState, capture
from syncline.train.snapshots.slot import SnapshotHeader, SnapshotSlot
from syncline.train.snapshots.torch_tensors import HostCopies

HEADER = SnapshotHeader(rank=0, world_size=1, step=1, next_report=0, taken_at=0.0, versions={})


def saved(tmp_path: Path, state: object) -> Any:
    slot = SnapshotSlot(tmp_path / "slot")
    captured = capture(state, b"readers")
    if captured.wait is not None:
        captured.wait()
    slot.write(HEADER, captured.regions, captured.description)
    found = SavedState(SnapshotSlot(slot.path))
    assert found.readers == b"readers"
    return found.load()


def test_values_come_back_as_they_were(tmp_path: Path) -> None:
    state = {
        "step": 3,
        "name": "run",
        "items": [1, (2.5, None), {"x": {4, 5}}],
        "array": np.arange(12).reshape(3, 4)[:, ::2],
        "empty": np.zeros((0, 3)),
        "scalar": np.float32(2),
    }
    found = saved(tmp_path, state)
    np.testing.assert_array_equal(found.pop("array"), state.pop("array"))
    assert found.pop("empty").shape == (0, 3)
    state.pop("empty")
    assert found == state


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6).reshape(2, 3),
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.randn(4, 6).t(),
        torch.randn(8, 8)[::2, 1:4],
        torch.randn(3, 1).expand(3, 4),
        torch.tensor(2.5),
        torch.zeros(0, 4),
        torch.randn(5, dtype=torch.bfloat16),
        torch.randn(5, dtype=torch.complex64).conj(),
        torch.tensor([True, False]),
        torch.nn.Parameter(torch.randn(3)),
    ],
)
def test_tensors_of_any_layout_come_back(tmp_path: Path, tensor: torch.Tensor) -> None:
    found = saved(tmp_path, [tensor])[0]
    assert found.dtype == tensor.dtype
    assert torch.equal(found, tensor)
    if tensor.is_contiguous(memory_format=torch.channels_last) if tensor.ndim == 4 else False:
        assert found.stride() == tensor.stride()


def test_loaded_tensors_are_independent_of_the_file(tmp_path: Path) -> None:
    found = saved(tmp_path, {"a": torch.ones(1000)})
    (tmp_path / "slot").unlink()
    found["a"] += 1
    assert found["a"].sum() == 2000


def test_tied_weights_are_saved_once_and_are_tied_again(tmp_path: Path) -> None:
    weight = torch.nn.Parameter(torch.randn(100, 100))
    captured = capture({"a": weight, "b": weight.detach()}, b"")
    assert captured.sizes == [40_000]
    found = saved(tmp_path, {"a": weight, "b": weight.detach()})
    assert found["a"].data_ptr() == found["b"].data_ptr()


def test_modules_and_optimizers_become_their_state_dicts(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()
    found = saved(tmp_path, {"both": [model, (optimizer, 3)]})["both"]
    other = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    other.load_state_dict(found[0])
    for name, value in model.state_dict().items():
        assert torch.equal(value, other.state_dict()[name])
    torch.optim.AdamW(other.parameters()).load_state_dict(found[1][0])
    assert found[1][1] == 3


def test_values_that_cannot_be_captured_are_named() -> None:
    with socket.socket() as connection:
        for state, text in (
            (
                {"reader": [1, (each for each in range(3))]},
                r'`state\["reader"\]\[1\]`, a generator',
            ),
            ({"a": {"s": connection}}, r'`state\["a"\]\["s"\]`, a socket.socket'),
            ((threading.Lock(),), r"`state\[0\]`, a _thread.lock"),
            ({"w": torch.eye(3).to_sparse()}, r'`state\["w"\]`, a torch.Tensor: .*sparse_coo'),
            ({"w": torch.empty(3, device="meta")}, r'`state\["w"\]`, a torch.Tensor: .*meta'),
        ):
            with pytest.raises(TypeError, match=text):
                capture(state, b"")


def test_shards_are_refused_where_they_cannot_be_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    state = {"model": {"bias": torch.zeros(2), "weight": torch.zeros(3)}}
    monkeypatch.setattr(torch_tensors, "is_sharded", lambda value: value.shape == (3,))
    monkeypatch.setattr(torch_tensors, "local_part", torch.Tensor.detach)
    with pytest.raises(TypeError, match=r'`state\["model"\]\["weight"\]`, .*SnapshotConfig\(\)'):
        capture(state, b"", has_shards=False)
    assert capture(state, b"").sizes == [8, 12]


class Device:
    """Streams of a device that copies late: nothing is copied before `synchronize`."""

    def __init__(self) -> None:
        self.waits: list[str] = []
        self.pending: list[Any] = []

    class Stream:
        def __init__(self, device: object) -> None:
            self.name = "copies"
            self.device: Device

        def wait_stream(self, other: Any) -> None:
            self.log.append(f"{self.name} waits for {other.name}")

        def synchronize(self) -> None:
            self.log.append("synchronized")

        log: list[str] = []

    def current_stream(self, device: object) -> Any:
        stream = self.Stream(device)
        stream.name = "program"
        return stream

    @contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        yield


def test_tensors_of_devices_are_copied_beside_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Device()
    device.Stream.log = []
    copies = HostCopies(device, pinned=False)
    monkeypatch.setattr(torch_tensors, "host_copies", copies)
    monkeypatch.setattr(torch_tensors, "on_device", lambda tensor: tensor.ndim == 2)
    weight, step = torch.randn(20, 10).t(), torch.tensor(4.0)
    captured = capture({"weight": weight, "step": step}, b"")
    assert captured.wait is not None
    expected = weight.clone()
    step += 1  # the next step of the program, before the snapshot is written
    captured.wait()
    slot = SnapshotSlot(tmp_path / "slot")
    slot.write(HEADER, captured.regions, captured.description)
    found = SavedState(slot).load()
    assert torch.equal(found["weight"], expected)
    assert found["step"] == 4.0
    assert device.Stream.log == [
        "copies waits for program",
        "program waits for copies",
        "synchronized",
    ]
    before = [region.address for region in captured.regions]
    again = capture({"weight": weight, "step": step}, b"")
    assert again.regions[0].address == before[0], "pinned memory is reused"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_tensors_of_gpus_come_back_on_the_cpu(tmp_path: Path) -> None:
    weight = torch.randn(1000, 1000, device="cuda")
    assert torch.equal(saved(tmp_path, [weight])[0], weight.cpu())
