"""The imputer, the discretizers and the concatenator, against values that Ray's give for the same
frames.
"""

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from syncline.data import UnknownColumnError
from syncline.data.preprocessors import (
    Concatenator,
    CustomKBinsDiscretizer,
    SimpleImputer,
    UniformKBinsDiscretizer,
)

MISSING = {"s": ["b", None, "c", "b"], "x": [0.0, None, 3.0, 3.0], "i": [1, 2, 2, 1]}
BINNED = {"v": [0.2, 1.4, 2.5, 6.2, 9.7, 2.1], "w": [10, 15, 13, 12, 23, 25]}
FEATURES = {
    "x": [0, 3, 1],
    "y": [0.5, 0.2, 0.9],
    "v": [[1, 2], [3, 4], [5, 6]],
    "k": ["a", "b", "c"],
}


def test_mean_fills_null_and_nan(dataset: Any) -> None:
    imputer = SimpleImputer(columns=["x"]).fit(dataset(MISSING))
    assert imputer.stats_ == {"mean(x)": 2.0}
    assert imputer.transform(dataset(MISSING)).column("x") == [0.0, 2.0, 3.0, 3.0]
    with_nan = dataset({"x": np.array([1.0, np.nan, 3.0])})
    assert SimpleImputer(columns=["x"]).fit_transform(with_nan).column("x") == [1.0, 2.0, 3.0]


def test_mean_of_integers_makes_floats(dataset: Any) -> None:
    assert SimpleImputer(["n"]).fit_transform(dataset({"n": [1, None, 4]})).column("n") == [
        1.0,
        2.5,
        4.0,
    ]


def test_most_frequent_fills_with_the_first_of_equally_frequent_values(dataset: Any) -> None:
    imputer = SimpleImputer(columns=["x", "s", "i"], strategy="most_frequent").fit(dataset(MISSING))
    assert imputer.stats_ == {
        "most_frequent(x)": 3.0,
        "most_frequent(s)": "b",
        "most_frequent(i)": 1,
    }
    assert imputer.transform(dataset(MISSING)).column("s") == ["b", "b", "c", "b"]


def test_constant_needs_no_fit_and_adds_missing_columns(dataset: Any) -> None:
    imputer = SimpleImputer(columns=["s", "new"], strategy="constant", fill_value="?")
    filled = imputer.transform(dataset(MISSING))
    assert filled.column("s") == ["b", "?", "c", "b"]
    assert filled.column("new") == ["?"] * 4
    frame = imputer.transform_batch(pd.DataFrame(MISSING))
    assert frame["new"].tolist() == ["?"] * 4
    assert frame["x"].isna().tolist() == [False, True, False, False]


def test_imputer_adds_output_columns_and_keeps_categoricals(dataset: Any) -> None:
    filled = SimpleImputer(["x"], output_columns=["x2"]).fit_transform(dataset(MISSING))
    assert filled.column("x") == MISSING["x"]
    assert filled.column("x2") == [0.0, 2.0, 3.0, 3.0]
    frame = pd.DataFrame({"c": pd.Categorical(["u", None], categories=["u", "v"])})
    result = SimpleImputer(["c"], strategy="constant", fill_value="w").transform_batch(frame)
    assert result["c"].tolist() == ["u", "w"]
    assert isinstance(result["c"].dtype, pd.CategoricalDtype)


def test_imputer_rejects_columns_without_values_and_other_types(dataset: Any) -> None:
    fitted = SimpleImputer(["x"]).fit(
        dataset(pa.table({"x": pa.array([None, None], pa.float64())}))
    )
    with pytest.raises(ValueError, match="column 'x' had no values when the imputer was fitted"):
        fitted.transform(dataset(MISSING))
    with pytest.raises(TypeError, match=r"column 's' is of type string, which does not hold 0\.5"):
        SimpleImputer(["s"], strategy="constant", fill_value=0.5).transform(dataset(MISSING))
    with pytest.raises(ValueError, match="needs a value: pass fill_value"):
        SimpleImputer(["s"], strategy="constant")
    with pytest.raises(
        ValueError, match="strategy='median' is unknown: choose 'mean', 'most_frequent', 'constant'"
    ):
        SimpleImputer(["s"], strategy="median")


def test_custom_bins_for_all_columns_or_column_by_column(dataset: Any) -> None:
    for_all = CustomKBinsDiscretizer(["v", "w"], bins=[0, 1, 4, 10, 25]).transform(dataset(BINNED))
    assert for_all.column("v") == [0, 1, 1, 2, 2, 1]
    assert for_all.column("w") == [2, 3, 3, 3, 3, 3]
    by_column = CustomKBinsDiscretizer(
        ["v", "w"], bins={"v": [0, 1, 4], "w": [0, 18, 35, 70]}
    ).transform(dataset(BINNED))
    assert by_column.column("v") == [0, 1, 1, None, None, 1]
    assert by_column.column("w") == [0, 0, 0, 0, 1, 1]
    with pytest.raises(ValueError, match="bins has no entry for 'w'"):
        CustomKBinsDiscretizer(["v", "w"], bins={"v": [0, 1]})


def test_right_and_include_lowest_assign_edges() -> None:
    batch = pa.table({"v": [0.0, 1.0, 2.0, None]})

    def binned(**options: Any) -> list[int | None]:
        result: list[int | None] = (
            CustomKBinsDiscretizer(["v"], [0, 1, 2], **options)
            .transform_batch(batch)
            .column("v")
            .to_pylist()
        )
        return result

    assert binned() == [None, 0, 1, None]
    assert binned(include_lowest=True) == [0, 0, 1, None]
    assert binned(right=False) == [0, 1, None, None]


def test_bins_may_be_intervals_and_results_categories() -> None:
    intervals = pd.IntervalIndex.from_tuples([(0, 1), (1, 4)])
    assert CustomKBinsDiscretizer(["v"], intervals).transform_batch(pd.DataFrame(BINNED))[
        "v"
    ].tolist()[:3] == [0, 1, 1]
    grades = pd.CategoricalDtype(["low", "mid", "high"], ordered=True)
    frame = CustomKBinsDiscretizer(["v"], [0, 1, 4, 10], dtypes={"v": grades}).transform_batch(
        pd.DataFrame(BINNED)
    )
    assert frame["v"].tolist() == ["low", "mid", "mid", "high", "high", "mid"]
    assert frame["v"].dtype == grades
    with pytest.raises(ValueError, match="has 3 categories, but there are 2 bins"):
        CustomKBinsDiscretizer(["v"], [0, 1, 4], dtypes={"v": grades}).transform_batch(
            pd.DataFrame(BINNED)
        )


def test_uniform_bins_cover_the_range_of_each_column(dataset: Any) -> None:
    discretizer = UniformKBinsDiscretizer(["v", "w"], bins=4).fit(dataset(BINNED))
    assert discretizer.stats_["v"].tolist() == pytest.approx([0.1905, 2.575, 4.95, 7.325, 9.7])
    assert discretizer.stats_["w"].tolist() == pytest.approx([9.985, 13.75, 17.5, 21.25, 25.0])
    binned = discretizer.transform(dataset(BINNED))
    assert binned.column("v") == [0, 0, 0, 2, 3, 0]
    assert binned.column("w") == [0, 1, 0, 0, 3, 3]
    by_column = UniformKBinsDiscretizer(
        ["v", "w"], bins={"v": 2, "w": 3}, right=False
    ).fit_transform(dataset(BINNED))
    assert by_column.column("v") == [0, 0, 0, 1, 1, 0]
    assert by_column.column("w") == [0, 1, 0, 0, 2, 2]


def test_a_constant_column_falls_into_one_bin(dataset: Any) -> None:
    assert UniformKBinsDiscretizer(["v"], bins=2).fit_transform(dataset({"v": [5.0, 5.0]})).column(
        "v"
    ) == [0, 0]


def test_columns_without_a_finite_range_are_rejected(dataset: Any) -> None:
    with pytest.raises(ValueError, match="column 'v' has no values"):
        UniformKBinsDiscretizer(["v"], bins=2).fit(
            dataset(pa.table({"v": pa.array([None], pa.float64())}))
        )
    with pytest.raises(ValueError, match=r"column 'v' ranges from 1\.0 to inf"):
        UniformKBinsDiscretizer(["v"], bins=2).fit(dataset({"v": [1.0, float("inf")]}))
    with pytest.raises(TypeError, match=r"not 2\.5 for column 'v'"):
        UniformKBinsDiscretizer(["v"], bins=2.5).fit(dataset(BINNED))


def test_concatenator_makes_one_tensor_of_columns(dataset: Any) -> None:
    joined = Concatenator(["x", "y"]).transform(dataset(FEATURES))
    assert list(joined.rows()[0]) == ["v", "k", "concat_out"]
    assert joined.column("concat_out") == [[0.0, 0.5], [3.0, 0.2], [1.0, 0.9]]
    floats = Concatenator(["y", "x"], "out", dtype=np.float32).transform(dataset(FEATURES))
    assert floats.tables[0].schema.field("out").type == pa.fixed_shape_tensor(pa.float32(), [2])
    assert floats.column("out")[1] == [pytest.approx(0.2), 3.0]


def test_concatenator_flattens_lists_and_tensors() -> None:
    lists = Concatenator(["v", "y"], flatten=True).transform_batch(pd.DataFrame(FEATURES))
    assert np.stack(lists["concat_out"].tolist()).tolist() == [
        [1.0, 2.0, 0.5],
        [3.0, 4.0, 0.2],
        [5.0, 6.0, 0.9],
    ]
    tensors = Concatenator(["t", "y"], flatten=True).transform_batch(
        {"t": np.arange(8).reshape(2, 2, 2), "y": np.array([9, 9])}
    )
    assert tensors["concat_out"].tolist()[1].tolist() == [4, 5, 6, 7, 9]
    ragged = Concatenator(["v", "y"], flatten=True, dtype=np.float32).transform_batch(
        {"v": [[1], [2, 3]], "y": np.array([9, 9])}
    )
    assert [row.tolist() for row in ragged["concat_out"]] == [[1.0, 9.0], [2.0, 3.0, 9.0]]
    with pytest.raises(ValueError, match="flatten=True"):
        Concatenator(["v", "y"]).transform_batch(pd.DataFrame(FEATURES))


def test_concatenator_output_may_take_the_name_of_an_input_and_nulls_become_nan() -> None:
    joined = Concatenator(["x", "y"], "x").transform_batch(pa.table({"x": [1, None], "y": [2, 3]}))
    assert joined.column_names == ["x"]
    np.testing.assert_array_equal(
        joined.column("x").combine_chunks().to_numpy_ndarray(), [[1, 2], [np.nan, 3]]
    )


def test_concatenator_rejects_missing_and_non_numeric_columns() -> None:
    batch = pa.table({"price": [1.0], "city": ["x"]})
    with pytest.raises(ValueError, match="Did you mean 'price'"):
        Concatenator(["prize"], raise_if_missing=True).transform_batch(batch)
    with pytest.raises(UnknownColumnError, match="Did you mean 'price'"):
        Concatenator(["prize"]).transform_batch(batch)
    with pytest.raises(TypeError, match="'city' is of type string"):
        Concatenator(["city"]).transform_batch(batch)
