"""What the tests of Dask share: the preparation of the New York taxi rides, on rides that are made
up.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("dask")

import dask.dataframe as dd
import numpy as np
import pandas as pd


@pytest.fixture
def taxi_rides(tmp_path: Path) -> dd.DataFrame:
    """The prepared rides: read from several files, filtered, with columns that are computed from
    others.
    """
    return prepared(write_rides(tmp_path / "rides"))


def write_rides(path: Path, rows: int = 5000) -> Path:
    """A table with the columns of the taxi data, and everything that the preparation filters
    out.
    """
    rng = np.random.default_rng(0)
    begin = pd.Timestamp("2019-03-01") + pd.to_timedelta(
        rng.integers(0, 31 * 86400, rows), unit="s"
    )
    table = pd.DataFrame(
        {
            "tpep_pickup_datetime": begin,
            "tpep_dropoff_datetime": begin
            + pd.to_timedelta(rng.integers(60, 6 * 3600, rows), unit="s"),
            "tip_amount": rng.exponential(2, rows),
            "passenger_count": rng.integers(0, 7, rows).astype(float),
            "trip_distance": rng.exponential(30, rows),
            "fare_amount": rng.exponential(300, rows),
            "store_and_fwd_flag": "N",
        }
    )
    table.loc[rng.integers(0, rows, 100), "passenger_count"] = None
    path.mkdir()
    for part in range(4):
        table.iloc[part::4].to_parquet(path / f"part-{part}.parquet", row_group_size=300)
    return path


def prepared(path: Path) -> Any:
    columns = [
        "tpep_pickup_datetime",
        "tpep_dropoff_datetime",
        "tip_amount",
        "passenger_count",
        "trip_distance",
        "fare_amount",
    ]
    df = dd.read_parquet(path, columns=columns, split_row_groups=True)
    df = df.dropna()
    df = df[(df["passenger_count"] <= 4) & (df["trip_distance"] < 100) & (df["fare_amount"] < 1000)]
    df["tpep_pickup_datetime"] = dd.to_datetime(df["tpep_pickup_datetime"])
    df["tpep_dropoff_datetime"] = dd.to_datetime(df["tpep_dropoff_datetime"])
    df["trip_duration"] = (df["tpep_dropoff_datetime"] - df["tpep_pickup_datetime"]).dt.seconds
    df = df[df["trip_duration"] < 4 * 60 * 60]
    df["hour"] = df["tpep_pickup_datetime"].dt.hour
    df["day_of_week"] = df["tpep_pickup_datetime"].dt.weekday
    df["is_big_tip"] = df["tip_amount"] > 0.2 * df["fare_amount"]
    return df.drop(columns=["tpep_pickup_datetime", "tpep_dropoff_datetime", "tip_amount"])
