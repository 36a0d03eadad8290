"""Which devices a worker has, and how batches get there ("meta" stands for a GPU)."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass
from types import MappingProxyType

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from syncline.train.torch import get_device, get_devices
from syncline.train.torch.device import move_to, visible_indices
from tests.train.torch.torch_fakes import session

META = torch.device("meta")
Pair = namedtuple("Pair", ["left", "right"])


@dataclass
class Holder:
    tensor: torch.Tensor


class Movable:
    def to(self, device: torch.device) -> str:
        return f"moved to {device}"


def test_a_worker_without_gpus_has_the_cpu() -> None:
    with session():
        assert get_devices() == [torch.device("cpu")]
        assert get_device() == torch.device("cpu")


def test_devices_outside_a_training_function_are_an_error() -> None:
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
def test_a_device_is_the_place_of_its_gpu_among_the_visible_ones(
    gpu_ids: tuple[str, ...], visible: str | None, indices: list[int]
) -> None:
    assert visible_indices(gpu_ids, visible) == indices


def test_a_gpu_that_was_hidden_is_named() -> None:
    with pytest.raises(RuntimeError, match="GPU 7, but CUDA_VISIBLE_DEVICES='0,1'"):
        visible_indices(("0", "7"), "0,1")


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
    assert batch["pair"].left is x  # type: ignore[attr-defined]


def test_a_default_dict_keeps_its_factory_and_the_original_its_tensors() -> None:
    batch = defaultdict(list, a=torch.ones(1))  # type: ignore[var-annotated]
    moved = move_to(batch, META)
    assert moved["missing"] == []
    assert (moved["a"].device, batch["a"].device) == (META, torch.device("cpu"))  # type: ignore[attr-defined]


def test_objects_that_can_move_do_and_others_stay() -> None:
    holder = Holder(torch.ones(1))
    assert move_to(Movable(), META) == "moved to meta"
    assert move_to(holder, META) is holder
    packed = move_to(pack_sequence([torch.ones(2)]), META)
    assert isinstance(packed, PackedSequence)
    assert packed.data.device == META


def test_a_read_only_mapping_is_moved() -> None:
    assert move_to(MappingProxyType({"a": torch.ones(1)}), META)["a"].device == META


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_worker_with_a_gpu_has_it() -> None:
    with session(gpu_ids=("0",), use_gpu=True):
        assert get_devices() == [torch.device("cuda", 0)]
