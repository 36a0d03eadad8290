"""Batches as tensors: what is shared, what is refused, collate functions, and the way to a GPU
(with fakes).
"""

import datetime
import warnings
from collections import namedtuple
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from syncline.data.collate_fn import (
    ArrowBatchCollateFn,
    DefaultCollateFn,
    NumpyBatchCollateFn,
    PandasBatchCollateFn,
)
from syncline.data.columnar import block
from syncline.data.iterate.torch import is_tensor_batch, torch_conversion
from syncline.data.iterate.torch_tensors import to_tensors

Pair = namedtuple("Pair", ["left", "right"])


def tensors_of(table: pa.Table, **options: Any) -> Any:
    conversion = torch_conversion(**options)
    return conversion.receive(conversion.convert(table))


def test_columns_become_tensors_that_share_the_blocks_memory_without_a_warning() -> None:
    images = np.arange(4 * 2 * 3, dtype=np.uint8).reshape(4, 2, 3)
    table = block.from_batch({"id": np.arange(4), "image": images})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        batch = tensors_of(table.slice(1, 2))
    assert (batch["id"].tolist(), batch["id"].dtype) == ([1, 2], torch.int64)
    assert torch.equal(batch["image"], torch.as_tensor(images[1:3].copy()))
    shared = block.to_batch(table.slice(1, 2))
    assert all(
        batch[name].data_ptr() == shared[name].__array_interface__["data"][0] for name in batch
    )


def test_tensors_keep_the_memory_of_their_block_alive() -> None:
    tensor = tensors_of(pa.table({"x": np.arange(100_000)}))["x"]
    noise = [np.full(100_000, -1) for _ in range(20)]
    assert torch.equal(tensor, torch.arange(100_000))
    assert len(noise) == 20


def test_columns_of_nulls_become_nan() -> None:
    batch = tensors_of(pa.table({"a": [None, None], "b": pa.nulls(2, pa.int64())}))
    assert {name: str(each.dtype) for name, each in batch.items()} == {
        "a": "torch.float32",
        "b": "torch.float64",
    }
    assert all(bool(each.isnan().all()) for each in batch.values())


def test_the_default_function_can_be_extended() -> None:
    class Halved(DefaultCollateFn):
        def __call__(self, batch: pa.Table) -> Any:
            return {name: each / 2 for name, each in super().__call__(batch).items()}

    table = pa.table({"a": [1, 2], "b": [4.0, 6.0]})
    halved = tensors_of(table, collate_fn=Halved(dtypes={"a": torch.float64}))
    assert {name: each.tolist() for name, each in halved.items()} == {"a": [0.5, 1], "b": [2, 3]}
    assert tensors_of(table, collate_fn=DefaultCollateFn())["a"].dtype == torch.int64


def test_dtypes_are_for_all_columns_or_by_name() -> None:
    table = pa.table({"a": [1, 2], "b": [0.5, None], "c": [True, False]})
    assert {name: each.dtype for name, each in tensors_of(table).items()} == {
        "a": torch.int64,
        "b": torch.float64,
        "c": torch.bool,
    }
    assert {each.dtype for each in tensors_of(table, dtypes=torch.float32).values()} == {
        torch.float32
    }
    assert tensors_of(table, dtypes={"a": torch.int32})["a"].dtype == torch.int32
    with pytest.raises(ValueError, match="dtypes names 'd', but the columns are 'a', 'b', 'c'"):
        tensors_of(table, dtypes={"d": torch.int32})


def test_lists_of_equal_lengths_are_stacked() -> None:
    batch = tensors_of(pa.table({"x": [[1, 2], [3, 4], [5, 6]]}))
    assert batch["x"].tolist() == [[1, 2], [3, 4], [5, 6]]


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        (["a", "b"], TypeError, "column 'x' holds values of type str"),
        ([datetime.datetime(2020, 1, 1)], TypeError, "column 'x' has dtype datetime64"),
        ([True, None], TypeError, "column 'x' has 1 missing values in a batch of 2"),
        ([["a"], ["b"]], TypeError, "column 'x' has dtype object"),
        ([[1], [2, 3]], RuntimeError, r"column 'x' is ragged.*\(1,\), \(2,\)"),
        ([np.zeros((2, 2)), np.zeros((2, 3))], RuntimeError, "column 'x' is ragged"),
    ],
)
def test_what_torch_has_no_tensors_of_is_an_error_that_names_the_column(
    values: list[Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        tensors_of(block.from_rows([{"x": value} for value in values]))


def test_collate_functions_get_the_input_that_their_class_names() -> None:
    class Arrow(ArrowBatchCollateFn):
        def __call__(self, batch: pa.Table) -> Any:
            return type(batch)

    class Numpy(NumpyBatchCollateFn):
        def __call__(self, batch: dict[str, np.ndarray]) -> Any:
            return type(batch["x"])

    class Pandas(PandasBatchCollateFn):
        def __call__(self, batch: pd.DataFrame) -> Any:
            return type(batch)

    table = pa.table({"x": [1, 2]})
    assert [tensors_of(table, collate_fn=each) for each in (Arrow(), Numpy(), Pandas())] == [
        pa.Table,
        np.ndarray,
        pd.DataFrame,
    ]
    assert tensors_of(table, collate_fn=lambda batch: batch["x"].sum()) == 3
    with pytest.raises(ValueError, match="exclude each other"):
        torch_conversion(collate_fn=Numpy(), dtypes=torch.int32)
    with pytest.raises(ValueError, match="cannot be called"):
        torch_conversion(collate_fn=3)


def test_only_batches_of_tensors_alone_are_moved() -> None:
    one = torch.zeros(1)
    moved = [
        one,
        [one, one],
        (one,),
        Pair(one, one),
        {"a": one},
        {"a": [one, one]},
        [[one], (one, one)],
        [],
    ]
    kept = [1, "text", None, {"a": 1}, [one, 1], {"a": {"b": one}}, [[[one]]]]
    assert [is_tensor_batch(batch) for batch in moved + kept] == [True] * len(moved) + [
        False
    ] * len(kept)


def test_batches_of_tensors_reach_the_device_in_their_own_shape() -> None:
    def on_meta(batch: Any) -> Any:
        return tensors_of(pa.table({"x": [1]}), collate_fn=lambda _: batch, device="meta")

    one = torch.zeros(2, 3)
    assert on_meta(one).device.type == "meta"
    pair = on_meta(Pair(one, one))
    assert isinstance(pair, Pair)
    assert pair.right.device.type == "meta"
    joined = on_meta({"a": one, "chunks": [one, one]})
    assert joined["chunks"].shape == (4, 3)
    assert [each.shape for each in on_meta([[one, one], [one]])] == [(4, 3), (2, 3)]
    assert on_meta({"a": one, "b": "text"})["a"].device.type == "cpu"


def test_the_device_is_the_workers_unless_the_program_names_one() -> None:
    worker = torch.device("meta")
    assert torch_conversion().device == torch.device("cpu")
    assert torch_conversion(worker_device=worker).device == worker
    assert torch_conversion(worker_device=worker, device="cpu").device == torch.device("cpu")
    assert torch_conversion(device="cuda:3").device == torch.device("cuda", 3)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_named() -> None:
    with pytest.raises(RuntimeError, match="device='cuda', but torch finds no GPU in this process"):
        torch_conversion(device="cuda").convert(pa.table({"x": [1]}))


def test_pinned_memory_is_for_tensors_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: pinned.append(tensor) or tensor)
    tensors_of(pa.table({"a": [1], "b": [2]}), pin_memory=True)
    tensors_of(pa.table({"a": [1]}), pin_memory=True, collate_fn=lambda batch: "text")
    assert len(pinned) == 2


class FakeStream:
    """Stands for a CUDA stream; remembers which streams it waited for."""

    def __init__(self) -> None:
        self.waited: list[FakeStream] = []

    def wait_stream(self, other: "FakeStream") -> None:
        self.waited.append(other)


def test_a_gpu_gets_its_batches_on_a_stream_that_the_computation_waits_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    computation, copies, current, moves, recorded = FakeStream(), [], [], [], []

    @contextmanager
    def stream(chosen: FakeStream) -> Iterator[None]:
        current.append(chosen)
        yield
        current.pop()

    def to(tensor: torch.Tensor, device: torch.device, *, non_blocking: bool) -> torch.Tensor:
        moves.append((str(device), non_blocking, current[-1]))
        return tensor

    monkeypatch.setattr(
        torch.cuda, "Stream", lambda device: copies.append(FakeStream()) or copies[-1]
    )
    monkeypatch.setattr(torch.cuda, "stream", stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: computation)
    monkeypatch.setattr(torch.Tensor, "to", to)
    monkeypatch.setattr(
        torch.Tensor, "record_stream", lambda tensor, stream: recorded.append(stream)
    )

    conversion = torch_conversion(device="cuda:0")
    first, second = [conversion.convert(pa.table({"a": [1], "b": [2]})) for _ in range(2)]
    assert moves == [("cuda:0", True, copies[0])] * 4
    assert len(copies) == 1
    assert computation.waited == []
    assert conversion.receive(first)["a"].tolist() == [1]
    conversion.receive(second)
    assert computation.waited == [copies[0]] * 2
    assert recorded == [computation] * 4


def test_what_is_no_batch_of_tensors_does_not_touch_the_gpu() -> None:
    assert (
        tensors_of(pa.table({"a": [1]}), device="cuda:0", collate_fn=lambda batch: "text") == "text"
    )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("pin_memory", [False, True])
def test_batches_on_a_real_gpu_have_their_values(pin_memory: bool) -> None:
    conversion = torch_conversion(device="cuda", pin_memory=pin_memory)
    for number in range(20):
        batch = conversion.receive(conversion.convert(pa.table({"x": np.full(100_000, number)})))
        assert batch["x"].is_cuda
        assert int(batch["x"].sum()) == number * 100_000


def test_a_numpy_batch_of_the_programs_own_is_taken_as_it_is() -> None:
    array = np.arange(3.0)
    tensor = to_tensors({"x": array})["x"]
    assert tensor.data_ptr() == array.__array_interface__["data"][0]
