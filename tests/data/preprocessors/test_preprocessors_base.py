"""Preprocessor: fit status, formats of batches, chains, pickles, and preprocessors of
a program's own.
"""

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from syncline.data.columnar.aggregate import Min
from syncline.data.preprocessor import Preprocessor, PreprocessorNotFittedException
from syncline.data.preprocessors import (
    Chain,
    Concatenator,
    LabelEncoder,
    MinMaxScaler,
    OneHotEncoder,
    SimpleImputer,
    StandardScaler,
    Tokenizer,
    TorchVisionPreprocessor,
)

FEATURES = {"x": [0, 3, 1], "y": [0.5, 0.2, 0.9], "k": ["a", "b", "c"]}
Status = Preprocessor.FitStatus


class Centered(Preprocessor):
    """Custom, with pandas."""

    def _fit(self, ds: Any) -> Preprocessor:
        self.stats_ = {"least": ds.aggregate(Min("x"))["min(x)"]}
        return self

    def _transform_pandas(self, df: pd.DataFrame) -> pd.DataFrame:
        df["x"] = df["x"] - self.stats_["least"]
        return df


class Doubled(Preprocessor):
    """Custom, not fittable, with numpy."""

    _is_fittable = False

    def _transform_numpy(self, np_data: Any) -> Any:
        return {name: values * 2 for name, values in np_data.items()}


class Empty(Preprocessor):
    """Custom, without a transform."""

    _is_fittable = False


def test_fit_status_and_stats(dataset: Any) -> None:
    scaler = StandardScaler(["x"])
    assert (scaler.fit_status(), scaler.has_stats()) == (Status.NOT_FITTED, False)
    assert scaler.fit(dataset(FEATURES)) is scaler
    assert (scaler.fit_status(), scaler.has_stats()) == (Status.FITTED, True)
    assert Tokenizer(["k"]).fit_status() == Status.NOT_FITTABLE
    assert Status.FITTED == "FITTED"


def test_transform_before_fit_is_an_error_with_a_remedy(dataset: Any) -> None:
    with pytest.raises(
        PreprocessorNotFittedException,
        match=r"StandardScaler is not fitted, so it cannot transform: call fit",
    ):
        StandardScaler(["x"]).transform(dataset(FEATURES))
    with pytest.raises(PreprocessorNotFittedException, match="cannot transform_batch"):
        StandardScaler(["x"]).transform_batch(pd.DataFrame(FEATURES))


def test_fitting_again_warns_and_replaces(dataset: Any) -> None:
    scaler = MinMaxScaler(["x"]).fit(dataset(FEATURES))
    with pytest.warns(UserWarning, match="was fitted before"):
        scaler.fit(dataset({"x": [10, 20]}))
    assert scaler.stats_ == {"min(x)": 10, "max(x)": 20}


def test_transform_batch_keeps_the_type_and_does_not_change_its_input(dataset: Any) -> None:
    scaler = MinMaxScaler(["x"]).fit(dataset(FEATURES))
    frame = pd.DataFrame(FEATURES, index=[7, 8, 9])
    frame["payload"] = [object(), object(), object()]
    result = scaler.transform_batch(frame)
    assert result["x"].tolist() == pytest.approx([0, 1, 1 / 3])
    assert result.index.tolist() == [7, 8, 9]
    assert result["payload"].tolist() == frame["payload"].tolist()
    assert frame["x"].tolist() == [0, 3, 1]
    assert scaler.transform_batch(pa.table({"x": [3]})).column("x").to_pylist() == [1.0]
    assert scaler.transform_batch({"x": np.array([3])})["x"].tolist() == [1.0]
    with pytest.raises(ValueError, match="not list"):
        scaler.transform_batch([1, 2])


def test_options_reach_map_batches(dataset: Any) -> None:
    scaler = MinMaxScaler(["x"]).fit(dataset(FEATURES))
    options = scaler.transform(dataset(FEATURES), batch_size=2, num_cpus=0.5, concurrency=3).options
    assert options == {
        "batch_size": 2,
        "num_cpus": 0.5,
        "concurrency": 3,
        "udf_modifying_row_count": False,
    }


def test_input_and_output_columns_are_reported() -> None:
    encoder = LabelEncoder("k", output_column="code")
    assert (encoder.get_input_columns(), encoder.get_output_columns()) == (["k"], ["code"])
    assert Concatenator(["x", "y"]).get_output_columns() == ["concat_out"]
    assert repr(StandardScaler(["a"])) == "StandardScaler(columns=['a'], output_columns=['a'])"


def test_chain_fits_each_member_on_the_output_of_those_before(dataset: Any) -> None:
    data = dataset(FEATURES)
    chain = Chain(StandardScaler(["x", "y"]), Concatenator(["x", "y"], "X"), LabelEncoder("k"))
    assert chain.fit_status() == Status.NOT_FITTED
    chain.preprocessors[0].fit(data)
    assert chain.fit_status() == Status.PARTIALLY_FITTED
    with pytest.raises(PreprocessorNotFittedException, match="Chain is partially fitted"):
        chain.transform(data)
    expected = [[-1.06904497, -0.11624764], [1.33630621, -1.16247639], [-0.26726124, 1.27872403]]
    transformed = chain.fit_transform(data)
    assert transformed.column("X") == [pytest.approx(row) for row in expected]
    assert transformed.column("k") == [0, 1, 2]
    assert chain.fit_status() == Status.FITTED
    assert chain.transform_batch(pd.DataFrame(FEATURES))["X"].iloc[0].tolist() == pytest.approx(
        expected[0]
    )


def test_chain_fits_adjacent_members_without_common_columns_in_one_pass(dataset: Any) -> None:
    data = dataset({"x": [1.0, None, 3.0], "y": [1, 2, 3], "k": ["a", "b", "a"]})
    Chain(SimpleImputer(["x"]), MinMaxScaler(["y"]), LabelEncoder("k"), StandardScaler(["x"])).fit(
        data
    )
    assert data.passes == [
        ["mean(x)", "min(y)", "max(y)", "unique_values(k)"],
        ["mean(x)", "std(x)"],
    ]


def test_chain_with_a_custom_preprocessor(dataset: Any) -> None:
    chain = Chain(Doubled(), Centered(), MinMaxScaler(["x"]))
    transformed = chain.fit_transform(dataset({"x": [1, 2, 3]}))
    assert chain.preprocessors[1].stats_ == {"least": 2}
    assert chain.preprocessors[2].stats_ == {"min(x)": 0, "max(x)": 4}
    assert transformed.column("x") == [0.0, 0.5, 1.0]


def test_custom_preprocessors_work_in_their_format() -> None:
    assert Doubled().transform_batch(pd.DataFrame({"x": [1]}))["x"].tolist() == [2]
    assert isinstance(Doubled().transform_batch(pa.table({"x": [1]})), dict)
    with pytest.raises(NotImplementedError, match="implement one"):
        Empty().transform_batch(pa.table({"x": [1]}))


def test_pickles_hold_no_dataset_and_load_in_another_process(dataset: Any, tmp_path: Path) -> None:
    chain = Chain(MinMaxScaler(["x"]), OneHotEncoder(["k"])).fit(dataset(FEATURES))
    path = tmp_path / "preprocessor.pkl"
    path.write_bytes(pickle.dumps(chain))
    assert b"FakeDataset" not in path.read_bytes()
    program = (
        "import pickle, sys, pyarrow as pa\n"
        "chain = pickle.load(open(sys.argv[1], 'rb'))\n"
        "print(chain.transform_batch(pa.table({'x': [3], 'k': ['b']})).to_pylist())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.strip() == "[{'x': 1.0, 'k': [0, 1, 0]}]"


def test_serialize_and_deserialize(dataset: Any) -> None:
    tokenizer = Preprocessor.deserialize(
        Tokenizer(["t"], tokenization_fn=lambda text: text.split("-")).serialize()
    )
    assert tokenizer.transform_batch(pa.table({"t": ["a-b"]})).column("t").to_pylist() == [
        ["a", "b"]
    ]
    scaler = Preprocessor.deserialize(MinMaxScaler(["x"]).fit(dataset(FEATURES)).serialize())
    assert scaler.fit_status() == Status.FITTED
    assert isinstance(Doubled().serialize(), str)
    assert isinstance(Preprocessor.deserialize(Doubled().serialize()), Doubled)
    with pytest.raises(ValueError, match="not a serialized preprocessor"):
        Preprocessor.deserialize("what")


def test_a_copy_can_be_fitted_again(dataset: Any) -> None:
    copy = pickle.loads(pickle.dumps(MinMaxScaler(["x"])))
    assert copy.fit(dataset(FEATURES)).stats_ == {"min(x)": 0, "max(x)": 3}


def test_torchvision_preprocessor_applies_transforms_to_images_and_batches() -> None:
    torch = pytest.importorskip("torch")
    images = np.arange(24, dtype=np.uint8).reshape(2, 2, 2, 3)
    images.setflags(write=False)

    def to_float(image: Any) -> Any:
        return torch.as_tensor(image).permute(2, 0, 1).float() / 255

    result = TorchVisionPreprocessor(
        ["image"], to_float, output_columns=["tensor"]
    ).transform_batch({"image": images})
    assert result["tensor"].shape == (2, 3, 2, 2)
    assert result["image"] is images
    np.testing.assert_allclose(result["tensor"][0, 1], images[0, :, :, 1] / np.float32(255))
    batched = TorchVisionPreprocessor(
        ["image"], lambda batch: batch.float().mean(dim=(1, 2, 3)), batched=True
    )
    assert batched.transform_batch({"image": images})["image"].tolist() == [5.5, 17.5]


def test_torchvision_preprocessor_falls_back_to_ndarrays() -> None:
    pytest.importorskip("torch")

    def wants_ndarray(image: Any) -> Any:
        if not isinstance(image, np.ndarray):
            raise TypeError("pic should be ndarray")
        return image[: image[0, 0]]

    ragged = TorchVisionPreprocessor(["i"], wants_ndarray).transform_batch(
        {"i": np.array([[[1], [0]], [[2], [0]]])}
    )
    assert [row.shape for row in ragged["i"]] == [(1, 1), (2, 1)]
    with pytest.raises(ValueError, match="the transform returned str"):
        TorchVisionPreprocessor(["i"], lambda image: "x").transform_batch({"i": np.zeros((1, 2))})  # type: ignore[return-value]
