"""Devices of a worker, and moving batches to them; "meta" stands for a GPU."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from syncline.train.backend import visible_indices
from syncline.train.torch import get_device, get_devices
from syncline.train.torch.device import move_to, prefetch, record_stream, transfer
from tests.train.torch.torch_fakes import session

META = torch.device("meta")
Pair = namedtuple("Pair", ["left", "right"])


@dataclass
class Holder:
    tensor: torch.Tensor


class Movable:
    def to(self, device: torch.device) -> str:
        return f"moved to {device}"


def test_worker_without_gpus_uses_cpu() -> None:
    with session():
        assert get_devices() == [torch.device("cpu")]
        assert get_device() == torch.device("cpu")


def test_gpu_of_an_apple_processor_is_mps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: True)
    with session(gpu_ids=("0",)):
        assert get_devices() == [torch.device("mps")]
    with session():
        assert get_devices() == [torch.device("cpu")]


def test_get_devices_outside_training_function_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="outside a training function"):
        get_device()


@pytest.mark.parametrize(
    ("gpu_ids", "visible", "indices"),
    [
        (("0",), None, [0]),
        (("3", "1"), None, [3, 1]),
        (("2",), "2", [0]),
        (("5", "4"), "4,5,6", [1, 0]),
        (("GPU-b",), "GPU-a, GPU-b", [1]),
    ],
)
def test_device_is_index_of_gpu_among_visible_ones(
    monkeypatch: pytest.MonkeyPatch,
    gpu_ids: tuple[str, ...],
    visible: str | None,
    indices: list[int],
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert visible_indices(gpu_ids) == indices


def test_hidden_gpu_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with pytest.raises(RuntimeError, match="GPU 7, but CUDA_VISIBLE_DEVICES='0,1'"):
        visible_indices(("0", "7"))


def test_containers_keep_their_types_when_moved() -> None:
    x = torch.ones(2)
    batch = {
        "pair": Pair(x, [x, "text"]),
        "ordered": OrderedDict(a=x),
        "tuple": (x, 1),
        "none": None,
    }
    moved = move_to(batch, META)
    assert isinstance(moved["pair"], Pair)
    assert isinstance(moved["ordered"], OrderedDict)
    tensors = [moved["pair"].left, moved["pair"].right[0], moved["ordered"]["a"], moved["tuple"][0]]
    assert all(tensor.device == META for tensor in tensors)
    assert moved["pair"].right[1] == "text"
    assert moved["tuple"][1] == 1
    assert moved["none"] is None
    assert batch["pair"].left is x


def test_defaultdict_keeps_its_factory_and_original_is_unchanged() -> None:
    batch = defaultdict(list, a=torch.ones(1))
    moved = move_to(batch, META)
    assert moved["missing"] == []
    assert (moved["a"].device, batch["a"].device) == (META, torch.device("cpu"))


def test_objects_with_method_to_are_moved_and_others_kept() -> None:
    holder = Holder(torch.ones(1))
    assert move_to(Movable(), META) == "moved to meta"
    assert move_to(holder, META) is holder
    packed = move_to(pack_sequence([torch.ones(2)]), META)
    assert isinstance(packed, PackedSequence)
    assert packed.data.device == META


def test_read_only_mapping_is_moved() -> None:
    assert move_to(MappingProxyType({"a": torch.ones(1)}), META)["a"].device == META


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_worker_with_gpu_uses_it() -> None:
    with session(gpu_ids=("0",), use_gpu=True):
        assert get_devices() == [torch.device("cuda", 0)]


META = torch.device("meta")


def test_transfer_copies_batches_on_demand() -> None:
    asked: list[int] = []

    def batches() -> Iterator[torch.Tensor]:
        for index in range(3):
            asked.append(index)
            yield torch.tensor([index])

    assert [(batch.device, len(asked)) for batch in transfer(batches(), META)] == [
        (META, 1),
        (META, 2),
        (META, 3),
    ]


class FakeStream:
    """Stands for a CUDA stream; remembers which streams it waited for."""

    def __init__(self, device: torch.device | None = None) -> None:
        self.waited: list[FakeStream] = []

    def wait_stream(self, other: FakeStream) -> None:
        self.waited.append(other)


def test_prefetch_copies_one_batch_ahead_on_separate_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    computation, loaded, copied_on, copies = FakeStream(), [], [], []

    def batches() -> Iterator[torch.Tensor]:
        for index in range(3):
            loaded.append(index)
            yield torch.tensor([index])

    def stream(chosen: FakeStream) -> Any:
        copied_on.append(chosen)
        return nullcontext()

    monkeypatch.setattr(
        torch.cuda, "Stream", lambda device: copies.append(FakeStream()) or copies[-1]
    )
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: computation)
    monkeypatch.setattr(torch.cuda, "stream", stream)
    loaded_at_each_step = [
        len(loaded) for batch in prefetch(batches(), META) if batch.device == META
    ]
    assert loaded_at_each_step == [2, 3, 3]
    assert computation.waited == copied_on == copies * 3


def test_stream_is_recorded_for_every_tensor() -> None:
    class Recorded:
        def __init__(self) -> None:
            self.streams: list[object] = []

        def record_stream(self, stream: object) -> None:
            self.streams.append(stream)

    class Opaque:
        def __init__(self) -> None:
            self.inside = Recorded()

        def to(self, device: torch.device) -> Opaque:
            return self

    items, opaque, stream = [Recorded() for _ in range(3)], Opaque(), FakeStream()
    record_stream(
        {"a": items[0], "b": (items[1], [items[2], "text"]), "c": opaque, "d": torch.ones(1)},
        stream,
    )
    assert [item.streams for item in [*items, opaque.inside]] == [[stream]] * 4
