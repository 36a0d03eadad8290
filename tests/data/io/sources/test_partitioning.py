"""Partition columns in file paths."""

import pyarrow as pa
import pytest

from syncline.data.io.sources.partitioning import (
    Partitioning,
    PartitionStyle,
    PathPartitionFilter,
    PathPartitionParser,
    append_columns,
)


def test_hive_values_are_decoded_strings():
    parse = PathPartitionParser.of()
    assert parse("/data/year=2024/city=New%20York/a=b=c/part.csv") == {
        "year": "2024",
        "city": "New York",
    }
    assert parse("/data/part.csv") == {}
    assert parse("/data/year=__HIVE_DEFAULT_PARTITION__/x") == {"year": None}


def test_types_and_names_are_checked():
    parse = PathPartitionParser(
        Partitioning("hive", field_names=["year", "ok"], field_types={"year": int, "ok": bool})
    )
    assert parse("year=2024/ok=True/x") == {"year": 2024, "ok": True}
    with pytest.raises(ValueError, match="field_names"):
        parse("ok=True/year=2024/x")
    with pytest.raises(ValueError, match="'x' of 'year' is no int"):
        parse("year=x/ok=True/f")
    with pytest.raises(ValueError, match="choose str, int, float or bool"):
        Partitioning("hive", field_types={"a": list})


def test_directory_partitions_need_matching_names_and_levels(tmp_path):
    parse = PathPartitionParser.of(
        PartitionStyle.DIRECTORY, base_dir=str(tmp_path), field_names=["label", "split"]
    )
    assert parse(f"{tmp_path}/cat/train/0.png") == {"label": "cat", "split": "train"}
    assert parse(f"{tmp_path}/0.png") == {}
    assert parse("/elsewhere/cat/train/0.png") == {}
    with pytest.raises(ValueError, match="name every level"):
        parse(f"{tmp_path}/cat/0.png")
    with pytest.raises(ValueError, match="field_names"):
        Partitioning("dir")


def test_partition_filter_keeps_accepted_files():
    keep = PathPartitionFilter.of(lambda values: values.get("year") == "2024")
    assert keep(["year=2024/a", "year=2023/b", "c"]) == ["year=2024/a"]
    assert keep.parser("year=1/a") == {"year": "1"}


def test_columns_come_last_and_must_agree_with_the_file():
    table = pa.table({"a": [1, 2], "year": [2024, 2024]})
    types = {"year": pa.string(), "month": pa.string()}
    added = append_columns(table, {"year": "2024", "month": "5"}, types, "f")
    assert added.to_pydict() == {"a": [1, 2], "year": [2024, 2024], "month": ["5", "5"]}
    with pytest.raises(ValueError, match="f: column 'year' in the file differs.*partitioning=None"):
        append_columns(table, {"year": "2023"}, types, "f")
