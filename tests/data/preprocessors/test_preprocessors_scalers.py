"""Scalers, the normalizer and the power transformer, against values that Ray's give for the same
frames.
"""

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from syncline.data import UnknownColumnError
from syncline.data.preprocessors import (
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    PowerTransformer,
    RobustScaler,
    StandardScaler,
)

NUMBERS = {"a": [-2, 0, 2, 6], "b": [1.5, None, 3.0, -9.0], "c": [1, 1, 1, 1], "z": [0, 0, 0, 0]}


def near(expected: list[float | None]) -> list[Any]:
    return [None if value is None else pytest.approx(value) for value in expected]


@pytest.mark.parametrize(
    ("scaler", "expected"),
    [
        (
            StandardScaler,
            {
                "a": [-1.1832159566199232, -0.50709255283711, 0.1690308509457033, 1.52127765851133],
                "b": [0.5619514869490164, None, 0.8429272304235246, -1.404878717372541],
                "c": [0.0, 0.0, 0.0, 0.0],
                "z": [0.0, 0.0, 0.0, 0.0],
            },
        ),
        (
            MinMaxScaler,
            {
                "a": [0.0, 0.25, 0.5, 1.0],
                "b": [0.875, None, 1.0, 0.0],
                "c": [0.0, 0.0, 0.0, 0.0],
                "z": [0.0, 0.0, 0.0, 0.0],
            },
        ),
        (
            MaxAbsScaler,
            {
                "a": [-1 / 3, 0.0, 1 / 3, 1.0],
                "b": [1 / 6, None, 1 / 3, -1.0],
                "c": [1.0, 1.0, 1.0, 1.0],
                "z": [0.0, 0.0, 0.0, 0.0],
            },
        ),
    ],
)
def test_scalers_agree_with_ray_on_nulls_constants_and_zeros(
    dataset: Any, scaler: Any, expected: dict[str, list[Any]]
) -> None:
    data = dataset(NUMBERS)
    scaled = scaler(columns=["a", "b", "c", "z"]).fit_transform(data)
    for name, values in expected.items():
        assert scaled.column(name) == near(values), name
    assert len(data.passes) == 1


def test_statistics_have_rays_names(dataset: Any) -> None:
    assert StandardScaler(["a"]).fit(dataset(NUMBERS)).stats_ == {
        "mean(a)": 1.5,
        "std(a)": pytest.approx(2.958039891549808),
    }
    assert MinMaxScaler(["a"]).fit(dataset(NUMBERS)).stats_ == {"min(a)": -2, "max(a)": 6}
    assert MaxAbsScaler(["a", "b"]).fit(dataset(NUMBERS)).stats_ == {
        "abs_max(a)": 6,
        "abs_max(b)": 9.0,
    }
    assert RobustScaler(["a"]).fit(dataset({"a": [1, 2, 3, 4, 5]})).stats_ == {
        "low_quantile(a)": 2,
        "median(a)": 3,
        "high_quantile(a)": 4,
    }


def test_robust_scaler_subtracts_the_median_and_divides_by_the_interquartile_range(
    dataset: Any,
) -> None:
    data = dataset(
        {
            "a": [1, 2, 3, 4, 5],
            "b": [13, 5, 14, 2, 8],
            "c": [1, 2, 2, 2, 3],
            "constant": [2.0, 2.0, None, 2.0, 2.0],
        }
    )
    scaled = RobustScaler(columns=["a", "b", "constant"]).fit_transform(data)
    assert scaled.column("a") == [-1.0, -0.5, 0.0, 0.5, 1.0]
    assert scaled.column("b") == [0.625, -0.375, 0.75, -0.75, 0.0]
    assert scaled.column("constant") == [0.0] * 5


@pytest.mark.parametrize("scaler", [StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler])
def test_a_column_without_values_when_fitted_becomes_null(dataset: Any, scaler: Any) -> None:
    nothing = dataset(pa.table({"a": pa.array([None, None], pa.float64())}))
    fitted = scaler(["a"]).fit(nothing)
    assert fitted.transform(dataset({"a": [1.0, 2.0]})).column("a") == [None, None]
    empty = scaler(["a"]).fit(dataset(pa.table({"a": pa.array([], pa.int64())})))
    assert empty.transform(dataset({"a": [1.0, 2.0]})).column("a") == [None, None]


def test_output_columns_are_added_and_inputs_stay(dataset: Any) -> None:
    scaled = StandardScaler(columns=["a"], output_columns=["a2"]).fit_transform(dataset(NUMBERS))
    assert list(scaled.rows()[0]) == ["a", "b", "c", "z", "a2"]
    assert scaled.column("a") == [-2, 0, 2, 6]


def test_an_output_that_has_the_name_of_a_later_input_does_not_change_it(dataset: Any) -> None:
    data = dataset({"a": [0.0, 2.0], "b": [0.0, 4.0]})
    assert MaxAbsScaler(["a", "b"], output_columns=["b", "c"]).fit_transform(data).column("c") == [
        0.0,
        1.0,
    ]


def test_float32_stays_float32_where_ray_keeps_it(dataset: Any) -> None:
    data = dataset({"a": np.array([1, 2, 3], np.float32)})
    assert MinMaxScaler(["a"]).fit_transform(data).tables[0].schema.field("a").type == pa.float32()
    assert (
        StandardScaler(["a"]).fit_transform(data).tables[0].schema.field("a").type == pa.float64()
    )


def test_unknown_column_is_reported_with_the_nearest_name(dataset: Any) -> None:
    with pytest.raises(UnknownColumnError, match="Did you mean 'price'"):
        StandardScaler(["prize"]).fit(dataset({"price": [1, 2]}))
    fitted = StandardScaler(["price"]).fit(dataset({"price": [1, 2]}))
    with pytest.raises(UnknownColumnError, match="Did you mean 'prices'"):
        fitted.transform_batch(pd.DataFrame({"prices": [1], "city": ["x"]}))


def test_strings_cannot_be_scaled(dataset: Any) -> None:
    with pytest.raises(TypeError, match="'s' is of type string"):
        StandardScaler(["s"]).fit(dataset({"s": ["x", "y"]}))
    with pytest.raises(TypeError, match="'s' is of type string"):
        Normalizer(["s"]).transform_batch(pa.table({"s": ["x"]}))


@pytest.mark.parametrize(
    ("norm", "a", "b"),
    [
        ("l1", [-0.5714285714285714, 0.4, 0.4], [0.42857142857142855, 0.6, -0.6]),
        (
            "l2",
            [-0.8, 0.5547001962252291, 0.554700196225229],
            [0.6, 0.8320502943378437, -0.8320502943378436],
        ),
        ("max", [-1.0, 2 / 3, 2 / 3], [0.75, 1.0, -1.0]),
    ],
)
def test_normalizer_gives_rows_of_unit_norm(norm: Any, a: list[float], b: list[float]) -> None:
    frame = pd.DataFrame({"a": [-2, 2, 6], "b": [1.5, 3.0, -9.0], "c": [1, 1, 1]})
    normal = Normalizer(["a", "b"], norm=norm).transform_batch(frame)
    assert normal["a"].tolist() == pytest.approx(a)
    assert normal["b"].tolist() == pytest.approx(b)
    assert normal["c"].tolist() == [1, 1, 1]


def test_normalizer_leaves_missing_values_out_of_the_norm() -> None:
    normal = Normalizer(["a", "b"]).transform_batch(
        pa.table({"a": [3.0, 0.0], "b": pa.array([None, 0.0], pa.float64())})
    )
    assert normal.column("a")[0].as_py() == 1.0
    assert normal.column("b")[0].as_py() is None
    assert np.isnan(normal.column("a")[1].as_py())


@pytest.mark.parametrize(
    ("power", "a", "b"),
    [
        (
            0,
            [-4.0, 0.0, 1.0986122886681098, 1.9459101490553132],
            [0.9162907318741551, None, 1.3862943611198906, -49.5],
        ),
        (2, [-1.0986122886681098, 0.0, 4.0, 24.0], [2.625, None, 7.5, -2.302585092994046]),
        (
            0.5,
            [-2.797434948471088, 0.0, 1.4641016151377544, 3.2915026221291814],
            [1.1622776601683795, None, 2.0, -20.415184401122527],
        ),
        (-1, [-26 / 3, 0.0, 2 / 3, 6 / 7], [0.6, None, 0.75, -333.0]),
    ],
)
def test_yeo_johnson(dataset: Any, power: float, a: list[float], b: list[float | None]) -> None:
    result = PowerTransformer(["a", "b"], power=power).transform(dataset(NUMBERS))
    assert result.column("a") == near(list(a))
    assert result.column("b") == near(b)


def test_box_cox() -> None:
    batch = pa.table({"a": [1.0, 4.0, 9.0]})
    assert PowerTransformer(["a"], 0.5, "box-cox").transform_batch(batch).column(
        "a"
    ).to_pylist() == [0.0, 2.0, 4.0]
    assert PowerTransformer(["a"], 0, "box-cox").transform_batch(batch).column(
        "a"
    ).to_pylist() == near([0.0, np.log(4), np.log(9)])


def test_invalid_parameters_are_rejected() -> None:
    with pytest.raises(ValueError, match="norm='l3' is unknown: choose 'l1', 'l2', 'max'"):
        Normalizer(["a"], norm="l3")
    with pytest.raises(ValueError, match="method='log' is unknown"):
        PowerTransformer(["a"], 1, method="log")
    with pytest.raises(
        ValueError, match="1 columns .a. need as many output_columns, but there are 2"
    ):
        StandardScaler(["a"], ["b", "c"])
    with pytest.raises(TypeError, match=r"pass a list of names, \['a'\]"):
        StandardScaler("a")
