"""Batches for torch, TensorFlow and JAX. Torch is the real one, the others are stand-ins that
record what they are asked for.
"""

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import syncline
from syncline.data.collate_fn import NumpyBatchCollateFn
from syncline.data.columnar import block as blocks
from syncline.data.columnar.schemas import UnknownColumnError
from syncline.data.iterate import batching as device
from syncline.data.iterate.batch_source import DatasetSource
from syncline.data.iterator import DataIterator
from tests.data.execution_fake import FakeDataset


@pytest.fixture(autouse=True, scope="module")
def local_mode() -> Iterator[None]:
    syncline.init(local_mode=True)
    yield
    syncline.shutdown()


def iterator_over(**columns: np.ndarray) -> DataIterator:
    dataset = FakeDataset(block_rows=[1])
    dataset.tables = [blocks.from_batch(columns)]
    return DataIterator(DatasetSource(dataset, run=dataset.run))


def plane(rows: int = 6) -> DataIterator:
    return iterator_over(
        x=np.arange(rows, dtype=np.float32),
        y=10 + np.arange(rows, dtype=np.float32),
        label=np.arange(rows) % 2,
    )


# -- torch


def test_torch_batches_have_the_columns_dtypes_unless_told_otherwise() -> None:
    first, *_ = plane().iter_torch_batches(batch_size=4, dtypes={"label": torch.float64})
    assert {name: tensor.dtype for name, tensor in first.items()} == {
        "x": torch.float32,
        "y": torch.float32,
        "label": torch.float64,
    }
    assert first["x"].tolist() == [0, 1, 2, 3]


def test_torch_batches_go_where_training_says_unless_a_device_is_named() -> None:
    device.set_device_finder(lambda: torch.device("meta"))
    try:
        (on_worker,) = plane().iter_torch_batches()
        (on_cpu,) = plane().iter_torch_batches(device="cpu")
    finally:
        device.set_device_finder(None)
    (outside,) = plane().iter_torch_batches()
    assert [batch["x"].device.type for batch in (on_worker, on_cpu, outside)] == [
        "meta",
        "cpu",
        "cpu",
    ]


def test_collate_with_dtypes_is_an_error_at_the_call() -> None:
    with pytest.raises(ValueError, match="dtypes"):
        plane().iter_torch_batches(collate_fn=lambda batch: batch, dtypes=torch.float32)


@pytest.mark.parametrize(
    ("columns", "shapes"),
    [
        (None, (6, 2)),
        (["x"], (6, 1)),
        ([["x", "y"], ["y"]], [(6, 2), (6, 1)]),
        ({"a": ["x"], "b": ["y", "x"]}, {"a": (6, 1), "b": (6, 2)}),
    ],
)
def test_to_torch_puts_columns_side_by_side(columns: Any, shapes: Any) -> None:
    ((features, label),) = plane().to_torch(
        label_column="label", feature_columns=columns, batch_size=6, label_column_dtype=torch.int32
    )
    found = (
        {name: tuple(each.shape) for name, each in features.items()}
        if isinstance(features, dict)
        else [tuple(each.shape) for each in features]
        if isinstance(features, list)
        else tuple(features.shape)
    )
    assert found == shapes
    assert (tuple(label.shape), label.dtype) == ((6, 1), torch.int32)


def test_to_torch_without_unsqueezing_and_without_label() -> None:
    dataset = plane().to_torch(feature_columns=["x"], unsqueeze_feature_tensors=False, batch_size=4)
    assert isinstance(dataset, torch.utils.data.IterableDataset)
    assert [(tuple(features.shape), label) for features, label in dataset] == [
        ((4,), None),
        ((2,), None),
    ]


@pytest.mark.parametrize(
    ("columns", "dtypes", "error"),
    [
        (["x"], [torch.float32], TypeError),
        ([["x"]], {"x": torch.float32}, TypeError),
        ([["x"]], [torch.float32, torch.float32], ValueError),
        ({"a": ["x"]}, {"b": torch.float32}, ValueError),
    ],
)
def test_to_torch_refuses_dtypes_of_another_form(
    columns: Any, dtypes: Any, error: type[Exception]
) -> None:
    with pytest.raises(error, match="feature_column"):
        plane().to_torch(feature_columns=columns, feature_column_dtypes=dtypes)


def test_to_torch_names_an_unknown_column() -> None:
    with pytest.raises(UnknownColumnError, match="'labell'.*'label'"):
        list(plane().to_torch(feature_columns=["labell"]))


# -- tensorflow


@pytest.fixture
def tensorflow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    class Dataset:
        def __init__(self, generator: Any, output_signature: Any) -> None:
            self.generator, self.signature = generator, output_signature

        from_generator = classmethod(
            lambda cls, generator, output_signature: cls(generator, output_signature)
        )

        def with_options(self, options: Any) -> "Dataset":
            self.options = options
            return self

    fake = SimpleNamespace(
        convert_to_tensor=lambda array, dtype=None: ("tensor", array.tolist(), dtype),
        ragged=SimpleNamespace(constant=lambda rows, dtype=None: ("ragged", rows, dtype)),
        TensorSpec=lambda shape, dtype, name: SimpleNamespace(shape=shape, dtype=dtype, name=name),
        RaggedTensorSpec=type(
            "RaggedTensorSpec",
            (),
            {"__init__": lambda self, shape, dtype: setattr(self, "dtype", dtype)},
        ),
        dtypes=SimpleNamespace(as_dtype=lambda kind: np.dtype(kind).name),
        data=SimpleNamespace(
            Dataset=Dataset,
            Options=lambda: SimpleNamespace(experimental_distribute=SimpleNamespace()),
            experimental=SimpleNamespace(AutoShardPolicy=SimpleNamespace(OFF="off")),
        ),
    )
    monkeypatch.setitem(sys.modules, "tensorflow", fake)
    monkeypatch.delitem(sys.modules, "syncline.data.iterate.tensorflow", raising=False)
    yield fake
    sys.modules.pop("syncline.data.iterate.tensorflow", None)


def test_tf_batches_are_tensors_by_column(tensorflow: Any) -> None:
    (batch,) = plane(2).iter_tf_batches(dtypes={"label": "int8"})
    assert batch == {
        "x": ("tensor", [0.0, 1.0], None),
        "y": ("tensor", [10.0, 11.0], None),
        "label": ("tensor", [0, 1], "int8"),
    }


def test_to_tf_takes_type_specs_from_the_schema_and_turns_sharding_off(tensorflow: Any) -> None:
    iterator = plane(2)
    iterator._source.schema = lambda: (  # type: ignore[method-assign]
        blocks.from_batch({"x": np.zeros(1, np.float32), "label": np.zeros((1, 3))}).schema
    )
    dataset = iterator.to_tf("x", ["label"], batch_size=2)
    features, labels = dataset.signature
    assert (features.shape, features.dtype) == ((None,), "float32")
    assert (labels["label"].shape, labels["label"].dtype) == ((None, 3), "float64")
    assert dataset.options.experimental_distribute.auto_shard_policy == "off"
    ((x, label),) = dataset.generator()
    assert x == ("tensor", [0.0, 1.0], "float32")
    assert label == {"label": ("tensor", [0, 1], "float64")}
    with pytest.raises(UnknownColumnError, match="'z'"):
        iterator.to_tf("z", "label")


# -- jax


class FakeArray(np.ndarray):
    """An array that says that it was put on devices."""


@pytest.fixture
def jax(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    fake = SimpleNamespace(
        local_device_count=lambda: 2,
        process_count=lambda: 1,
        devices=lambda: ["device 0", "device 1"],
        sharding=SimpleNamespace(
            Mesh=lambda devices, axes: (tuple(devices), axes),
            PartitionSpec=lambda axis: axis,
            NamedSharding=lambda mesh, spec: (mesh, spec),
        ),
        make_array_from_process_local_data=lambda sharding, array, shape: array.reshape(shape).view(
            FakeArray
        ),
    )
    monkeypatch.setitem(sys.modules, "jax", fake)
    monkeypatch.delitem(sys.modules, "syncline.data.iterate.jax", raising=False)
    yield fake
    sys.modules.pop("syncline.data.iterate.jax", None)


def test_jax_batches_are_spread_over_devices_and_padded(jax: Any) -> None:
    batches = list(
        plane(6).iter_jax_batches(
            batch_size=4, paddings={"x": -1, "y": -2, "label": 0}, dtypes={"x": np.float16}
        )
    )
    assert all(isinstance(batch["x"], FakeArray) for batch in batches)
    assert batches[0]["x"].dtype == np.float16
    assert batches[1]["x"].tolist() == [4, 5, -1, -1]
    assert batches[1]["y"].tolist() == [14, 15, -2, -2]


def test_jax_batches_that_devices_cannot_share_are_errors(jax: Any) -> None:
    with pytest.raises(ValueError, match="2 devices"):
        plane().iter_jax_batches(batch_size=3)
    with pytest.raises(ValueError, match="1 rows.*drop_last"):
        list(plane(5).iter_jax_batches(batch_size=4))


def test_jax_collate_functions_make_arrays(jax: Any) -> None:
    class Doubled(NumpyBatchCollateFn):
        def __call__(self, batch: dict[str, np.ndarray]) -> np.ndarray:
            return batch["x"] * 2

    (batch,) = plane(4).iter_jax_batches(batch_size=4, collate_fn=Doubled())
    assert batch.tolist() == [0, 2, 4, 6]
    with pytest.raises(ValueError, match="NumpyBatchCollateFn"):
        plane().iter_jax_batches(batch_size=4, collate_fn=lambda batch: batch)
