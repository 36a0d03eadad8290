"""Encoders, against values that Ray's give for the same frames."""

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from syncline.data.preprocessor import PreprocessorNotFittedException
from syncline.data.preprocessors import (
    Categorizer,
    LabelEncoder,
    MultiHotEncoder,
    OneHotEncoder,
    OrdinalEncoder,
)

SEEN = {"s": ["b", "a", "c", "b"], "n": [3, 1, 2, 3], "l": [["x", "y"], ["y"], ["z", "x"], []]}
NEW = {"s": ["a", "q"], "n": [1, 9], "l": [["x", "q"], ["z", "z"]]}


def test_ordinal_encoder_numbers_categories_in_ascending_order(dataset: Any) -> None:
    data = dataset(SEEN)
    encoder = OrdinalEncoder(columns=["s", "n"]).fit(data)
    assert encoder.stats_ == {
        "unique_values(s)": {"a": 0, "b": 1, "c": 2},
        "unique_values(n)": {1: 0, 2: 1, 3: 2},
    }
    assert len(data.passes) == 1
    encoded = encoder.transform(data)
    assert encoded.column("s") == [1, 0, 2, 1]
    assert encoded.column("n") == [2, 0, 1, 2]
    unseen = encoder.transform(dataset(NEW))
    assert unseen.column("s") == [0, None]
    assert unseen.column("n") == [0, None]


def test_ordinal_encoder_encodes_elements_of_lists_or_whole_lists(dataset: Any) -> None:
    elements = OrdinalEncoder(columns=["l"]).fit(dataset(SEEN))
    assert elements.stats_ == {"unique_values(l)": {"x": 0, "y": 1, "z": 2}}
    assert elements.transform(dataset(NEW)).column("l") == [[0, None], [2, 2]]
    assert elements.transform(dataset(SEEN)).column("l") == [[0, 1], [1], [2, 0], []]
    whole = OrdinalEncoder(columns=["l"], encode_lists=False).fit(dataset(SEEN))
    assert whole.stats_ == {"unique_values(l)": {(): 0, ("x", "y"): 1, ("y",): 2, ("z", "x"): 3}}
    assert whole.transform(dataset(SEEN)).column("l") == [1, 2, 3, 0]


def test_elements_of_tensors_are_encoded_like_those_of_lists(dataset: Any) -> None:
    data = dataset({"t": np.array([[5, 7], [7, 9], [5, 5]])})
    assert OrdinalEncoder(["t"]).fit_transform(data).column("t") == [[0, 1], [1, 2], [0, 0]]
    assert MultiHotEncoder(["t"]).fit_transform(data).column("t") == [
        [1, 1, 0],
        [0, 1, 1],
        [2, 0, 0],
    ]


def test_types_may_change_between_fit_and_transform_where_values_can_be_compared(
    dataset: Any,
) -> None:
    encoder = OrdinalEncoder(["n"]).fit(dataset({"n": [1, 2]}))
    assert encoder.transform_batch(pa.table({"n": [2.0, 1.5]})).column("n").to_pylist() == [1, None]
    halves = OrdinalEncoder(["n"]).fit(dataset({"n": [0.5, 1.5, 2.0]}))
    assert halves.transform_batch(pa.table({"n": [0, 1, 2]})).column("n").to_pylist() == [
        None,
        None,
        2,
    ]
    with pytest.raises(
        TypeError, match="'n' is of type string, but was int64 when the preprocessor was fitted"
    ):
        encoder.transform_batch(pa.table({"n": ["1"]}))
    bytes_ = OrdinalEncoder(["n"]).fit(dataset({"n": np.array([1, 200], np.uint8)}))
    assert bytes_.transform_batch(pa.table({"n": [200, 456]})).column("n").to_pylist() == [1, None]


def test_booleans_categoricals_and_dates_are_categories(dataset: Any) -> None:
    frame = pd.DataFrame(
        {
            "b": [True, False],
            "c": pd.Categorical(["y", "x"]),
            "d": pd.to_datetime(["2024-02-01", "2024-01-01"]),
        }
    )
    encoded = OrdinalEncoder(["b", "c", "d"]).fit_transform(dataset(frame))
    assert encoded.rows() == [{"b": 1, "c": 1, "d": 1}, {"b": 0, "c": 0, "d": 0}]


def test_one_hot_encoder_gives_zeros_for_unknown_categories(dataset: Any) -> None:
    encoder = OneHotEncoder(columns=["s", "n"]).fit(dataset(SEEN))
    encoded = encoder.transform(dataset(NEW))
    assert encoded.column("s") == [[1, 0, 0], [0, 0, 0]]
    assert encoded.column("n") == [[1, 0, 0], [0, 0, 0]]
    assert encoded.tables[0].schema.field("s").type == pa.fixed_shape_tensor(pa.uint8(), [3])


def test_max_categories_keeps_the_most_frequent_ones(dataset: Any) -> None:
    encoder = OneHotEncoder(columns=["s"], max_categories={"s": 2}).fit(dataset(SEEN))
    assert encoder.stats_ == {"unique_values(s)": {"a": 0, "b": 1}}
    assert encoder.transform(dataset(SEEN)).column("s") == [[0, 1], [1, 0], [0, 0], [0, 1]]
    multi = MultiHotEncoder(columns=["l"], max_categories={"l": 2})
    assert multi.fit_transform(dataset(SEEN)).column("l") == [[1, 1], [0, 1], [1, 0], [0, 0]]
    with pytest.raises(
        ValueError, match="max_categories names 'q', which is not one of the columns"
    ):
        OneHotEncoder(columns=["s"], max_categories={"q": 2}).fit(dataset(SEEN))


def test_one_hot_encoder_takes_lists_as_categories(dataset: Any) -> None:
    encoded = OneHotEncoder(columns=["l"]).fit_transform(dataset({"l": [["x"], ["y", "x"], ["x"]]}))
    assert encoded.column("l") == [[1, 0], [0, 1], [1, 0]]


def test_multi_hot_encoder_counts_elements(dataset: Any) -> None:
    encoder = MultiHotEncoder(columns=["l"]).fit(dataset(SEEN))
    assert encoder.transform(dataset(NEW)).column("l") == [[1, 0, 0], [0, 0, 2]]
    scalars = MultiHotEncoder(columns=["s"]).fit_transform(dataset(SEEN))
    assert scalars.column("s") == [[0, 1, 0], [1, 0, 0], [0, 0, 1], [0, 1, 0]]


def test_label_encoder_round_trip(dataset: Any) -> None:
    encoder = LabelEncoder(label_column="s")
    with pytest.raises(PreprocessorNotFittedException, match="cannot inverse_transform"):
        encoder.inverse_transform(dataset(SEEN))
    encoded = encoder.fit_transform(dataset(SEEN))
    assert encoded.column("s") == [1, 0, 2, 1]
    assert encoder.inverse_transform(encoded).column("s") == SEEN["s"]
    assert encoder.transform(dataset(NEW)).column("s") == [0, None]
    apart = LabelEncoder(label_column="s", output_column="t").fit_transform(dataset(SEEN))
    assert apart.column("s") == SEEN["s"]
    assert apart.column("t") == [1, 0, 2, 1]


def test_predicted_labels_that_do_not_exist_become_null(dataset: Any) -> None:
    encoder = LabelEncoder(label_column="s", output_column="t").fit(dataset(SEEN))
    assert encoder.inverse_transform(dataset({"t": [2.0, 7.0, None]})).column("s") == [
        "c",
        None,
        None,
    ]


def test_categorizer_makes_pandas_categoricals(dataset: Any) -> None:
    categorizer = Categorizer(columns=["s", "n"]).fit(dataset(SEEN))
    assert categorizer.stats_ == {
        "s": pd.CategoricalDtype(["a", "b", "c"]),
        "n": pd.CategoricalDtype([1, 2, 3]),
    }
    frame = categorizer.transform_batch(pd.DataFrame(NEW))
    assert frame["s"].dtype == pd.CategoricalDtype(["a", "b", "c"])
    assert frame["n"].tolist()[0] == 1
    assert frame["s"].isna().tolist() == [False, True]


def test_categorizer_takes_given_types_and_keeps_null(dataset: Any) -> None:
    dtypes = {
        "level": pd.CategoricalDtype(["L3", "L4", "L9"], ordered=True),
        "sex": pd.CategoricalDtype(ordered=True),
    }
    data = dataset({"level": ["L4", None, "L3"], "sex": ["m", "f", None]})
    categorizer = Categorizer(["level", "sex"], dtypes=dtypes).fit(data)
    assert categorizer.stats_ == {
        "level": dtypes["level"],
        "sex": pd.CategoricalDtype(["f", "m"], ordered=True),
    }
    frame = categorizer.transform_batch(
        pd.DataFrame({"level": ["L4", None, "L3"], "sex": ["m", "f", None]})
    )
    assert frame["level"].cat.codes.tolist() == [1, -1, 0]
    assert frame["level"].cat.ordered


@pytest.mark.parametrize(
    "missing",
    [pa.array(["b", None, "c"]), pa.array([1.0, float("nan"), 2.0]), pa.array([1, None, 2])],
)
def test_null_is_no_category(dataset: Any, missing: pa.Array) -> None:
    with pytest.raises(
        ValueError, match="OrdinalEncoder cannot be fitted to column 's': .* null values"
    ):
        OrdinalEncoder(["s"]).fit(dataset(pa.table({"s": missing})))
    fitted = OrdinalEncoder(["s"]).fit(dataset(pa.table({"s": missing}).slice(0, 1)))
    with pytest.raises(ValueError, match="columns 's' contain null values"):
        fitted.transform_batch(pa.table({"s": missing}))


def test_empty_data_has_no_categories(dataset: Any) -> None:
    encoder = OneHotEncoder(["s"]).fit(dataset(pa.table({"s": pa.array([], pa.string())})))
    assert encoder.stats_ == {"unique_values(s)": {}}
    assert encoder.transform(dataset({"s": ["a", "b"]})).column("s") == [[], []]
