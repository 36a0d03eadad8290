"""`download`: the content of files that a column names."""

import logging
from pathlib import Path

import pyarrow as pa
import pyarrow.fs
import pytest

from syncline.data.columnar.expressions import col, download, project, star


def test_files_are_fetched_and_missing_ones_are_null(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a").write_bytes(b"A\0")
    (tmp_path / "b c").write_bytes(b"")
    uris = [
        str(tmp_path / "a"),
        None,
        str(tmp_path / "none"),
        f"file://{tmp_path}/a",
        str(tmp_path / "b c"),
    ]
    with caplog.at_level(logging.WARNING):
        found = download("uri").evaluate(pa.table({"uri": uris}))
    assert found.to_pylist() == [b"A\0", None, None, b"A\0", b""]
    assert "none', its value is null" in caplog.text


def test_a_filesystem_may_be_given(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"A")
    inside = pyarrow.fs.SubTreeFileSystem(str(tmp_path), pyarrow.fs.LocalFileSystem())
    assert download("uri", filesystem=inside).evaluate(pa.table({"uri": ["a"]})).to_pylist() == [
        b"A"
    ]


def test_it_reads_one_column_and_gives_bytes() -> None:
    expr = download("uri")
    schema = pa.schema([("uri", pa.string())])
    assert expr.columns() == {"uri"}
    assert expr.uri_column_name == "uri"
    assert expr.get_type(schema) == pa.binary()
    assert repr(expr) == "download('uri')"
    assert expr.structurally_equals(download("uri"))
    assert not expr.structurally_equals(download("other"))
    assert repr(expr.renamed({"uri": "path"})) == "download('path')"
    assert project(schema.empty_table(), [star(), expr.alias("x")]).schema.names == ["uri", "x"]
    with pytest.raises(
        TypeError, match="needs a column of paths or URIs, but col\\('uri'\\) is int64"
    ):
        expr.evaluate(pa.table({"uri": [1]}))
    with pytest.raises(KeyError, match="no column 'uri'"):
        expr.evaluate(pa.table({"x": [1]}))
    assert (expr.is_null() & col("uri").is_null()).evaluate(
        pa.table({"uri": pa.array([None], pa.string())})
    ).to_pylist() == [True]
