"""Preprocessors on datasets of the library, in local mode and in worker processes."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import syncline
import syncline.data
from syncline.data import UnknownColumnError
from syncline.data.preprocessors import (
    Chain,
    Concatenator,
    CountVectorizer,
    LabelEncoder,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    SimpleImputer,
    StandardScaler,
)

FRAME = pd.DataFrame(
    {"x": [0.0, 3.0, None], "y": [0.5, 0.2, 0.9], "c": ["u", "v", "u"], "k": ["b", "a", "b"]}
)


@pytest.fixture
def local_mode() -> Iterator[None]:
    syncline.init(local_mode=True)
    yield
    syncline.shutdown()


@pytest.mark.usefixtures("local_mode")
def test_a_chain_is_fitted_and_applied_lazily() -> None:
    dataset = syncline.data.from_pandas(FRAME).repartition(2)
    chain = Chain(
        SimpleImputer(["x"]),
        StandardScaler(["x", "y"]),
        OneHotEncoder(["c"]),
        Concatenator(["x", "y", "c"], "f", flatten=True),
    )
    features = Chain(chain, LabelEncoder("k")).fit_transform(dataset)
    batch = features.take_batch(3)
    assert sorted(batch) == ["f", "k"]
    assert batch["f"].shape == (3, 4)
    assert batch["f"][:, 2:].tolist() == [[1, 0], [0, 1], [1, 0]]
    assert batch["f"][:, 0].tolist() == pytest.approx([-1.2247449, 1.2247449, 0.0])
    assert batch["k"].tolist() == [1, 0, 1]


@pytest.mark.usefixtures("local_mode")
def test_inverse_transform_of_predictions() -> None:
    dataset = syncline.data.from_pandas(FRAME)
    encoder = LabelEncoder("k", output_column="code")
    assert encoder.inverse_transform(encoder.fit_transform(dataset).drop_columns(["k"])).take_batch(
        3
    )["k"].tolist() == ["b", "a", "b"]


@pytest.mark.usefixtures("local_mode")
def test_a_dataset_without_rows_is_fitted_and_transformed() -> None:
    dataset = syncline.data.from_arrow(
        pa.table({"x": pa.array([], pa.float64()), "c": pa.array([], pa.string())})
    )
    fitted = Chain(MinMaxScaler(["x"]), OrdinalEncoder(["c"])).fit(dataset)
    assert fitted.preprocessors[0].stats_ == {"min(x)": None, "max(x)": None}
    assert fitted.preprocessors[1].stats_ == {"unique_values(c)": {}}
    assert fitted.transform(dataset).count() == 0


@pytest.mark.usefixtures("local_mode")
def test_missing_column_is_reported_by_fit() -> None:
    with pytest.raises(UnknownColumnError, match="Did you mean 'x'"):
        MinMaxScaler(["xx"]).fit(syncline.data.from_pandas(FRAME))


@pytest.mark.usefixtures("local_mode")
def test_a_limit_after_a_preprocessor_reads_only_what_it_needs() -> None:
    transformed = Concatenator(["id"], "f").transform(syncline.data.range(10_000)).limit(2)
    assert transformed.take_all() == [{"f": np.array([0])}, {"f": np.array([1])}]


@pytest.mark.processes
def test_fitting_and_transforming_in_workers() -> None:
    syncline.init(num_cpus=2)
    try:
        texts = syncline.data.from_items(
            [{"t": f"w{number % 3} all", "n": number} for number in range(100)],
            override_num_blocks=4,
        )
        chain = Chain(
            CountVectorizer(["t"], tokenization_fn=lambda text: text.split()), MinMaxScaler(["n"])
        )
        batch = chain.fit_transform(texts).take_batch(100)
        assert chain.preprocessors[0].stats_["token_counts(t)"] == {
            "all": 100,
            "w0": 34,
            "w1": 33,
            "w2": 33,
        }
        assert batch["t"][:3].tolist() == [[1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 1]]
        assert batch["n"][-1] == 1.0
    finally:
        syncline.shutdown()
