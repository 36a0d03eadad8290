"""SQL sources and sinks, with SQLite."""

import functools
import sqlite3
import zlib
from pathlib import Path

import pyarrow as pa
import pytest

from syncline.core.tracebacks import is_self_explanatory
from syncline.data.io.sinks.datasink import TaskContext
from syncline.data.io.sinks.sql import SQLDatasink
from syncline.data.io.sources import sql as sql_source
from syncline.data.io.sources.sql import SQLDatasource


def connect(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path)
    connection.create_function("CRC", 1, lambda value: zlib.crc32(str(value).encode()))
    connection.create_function("MOD", 2, lambda value, divisor: value % divisor)
    connection.create_function("CONCAT", -1, lambda *values: "".join(map(str, values)))
    return connection


@pytest.fixture
def database(tmp_path: Path) -> functools.partial[sqlite3.Connection]:
    connection = connect(str(tmp_path / "a.db"))
    connection.execute("CREATE TABLE t (id INTEGER, name TEXT)")
    connection.executemany(
        "INSERT INTO t VALUES (?, ?)",
        [(index, None if index == 3 else f"n{index}") for index in range(1000)],
    )
    connection.commit()
    connection.close()
    return functools.partial(connect, str(tmp_path / "a.db"))


def test_query_is_one_task_fetched_in_chunks(database, read_all, monkeypatch):
    monkeypatch.setattr(sql_source, "_ROWS_PER_FETCH", 300)
    source = SQLDatasource("SELECT * FROM t WHERE id >= ? ORDER BY id;", database, sql_params=(2,))
    assert len(source.get_read_tasks(8)) == 1
    table = read_all(source)
    assert table["id"].to_pylist() == list(range(2, 1000))
    assert table["name"].to_pylist()[:3] == ["n2", None, "n4"]


def test_shards_hold_every_row_once(database, read_all):
    for keys in (["id"], ["id", "name"]):
        source = SQLDatasource("SELECT * FROM t", database, shard_hash_fn="CRC", shard_keys=keys)
        assert len(source.get_read_tasks(8)) == 8
        assert sorted(read_all(source, 8)["id"].to_pylist()) == list(range(1000))
    assert len(source.get_read_tasks(1000)) == 20  # 50 rows a task at least


def test_a_database_without_the_hash_reads_in_one_task(database, read_all):
    source = SQLDatasource("SELECT * FROM t", database, shard_hash_fn="NOSUCH", shard_keys=["name"])
    assert len(source.get_read_tasks(8)) == 1
    assert read_all(source).num_rows == 1000


def test_a_key_without_an_order_is_read_by_its_hash(database, read_all):
    class NoMin:
        """A cursor of a database such as PostgreSQL, which has no MIN of a UUID."""

        def __init__(self, cursor):
            self._cursor = cursor

        def execute(self, query, *params):
            if "MIN(" in query:
                raise sqlite3.OperationalError("function min(uuid) does not exist")
            return self._cursor.execute(query, *params)

        def __getattr__(self, name):
            return getattr(self._cursor, name)

    class Connection:
        def __init__(self):
            self._connection = database()

        def cursor(self):
            return NoMin(self._connection.cursor())

        def __getattr__(self, name):
            return getattr(self._connection, name)

    source = SQLDatasource("SELECT * FROM t", Connection, shard_hash_fn="CRC", shard_keys=["name"])
    assert len(source.get_read_tasks(8)) == 8
    assert read_all(source, 8).num_rows == 1000


def test_a_key_of_integers_is_read_in_ranges(database, read_all):
    connection = database()
    connection.executemany("INSERT INTO t VALUES (?, ?)", [(None, "none"), (-5, "below")])
    connection.commit()
    connection.close()
    source = SQLDatasource("SELECT * FROM t", database, shard_hash_fn="NOSUCH", shard_keys=["id"])
    tasks = source.get_read_tasks(4)
    parts = [pa.concat_tables(list(task()), promote_options="permissive") for task in tasks]
    keys = [[key for key in part["id"].to_pylist() if key is not None] for part in parts]
    assert len(parts) == 4
    assert sorted(sum(keys, [])) == [-5, *range(1000)]
    assert all(max(left) < min(right) for left, right in zip(keys, keys[1:], strict=False))
    assert "none" in parts[0]["name"].to_pylist()
    assert max(map(len, keys)) - min(map(len, keys)) <= 6


def test_an_empty_result_still_has_its_columns(database, read_all):
    assert read_all(SQLDatasource("SELECT * FROM t WHERE id < 0", database)).column_names == [
        "id",
        "name",
    ]


def test_a_wrong_query_and_a_wrong_factory_fail(database, read_all):
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        read_all(SQLDatasource("SELECT * FROM missing", database))
    with pytest.raises(
        TypeError, match=r"returned dict, which has no cursor, commit, close.*sqlite3\.connect"
    ):
        read_all(SQLDatasource("SELECT 1", dict))


def test_writing_is_one_transaction_for_each_task(database, read_all):
    sink = SQLDatasink("INSERT INTO t VALUES (?, ?)", database)
    sink.write(
        [
            pa.table({"id": [1000, 1001], "name": ["a", None]}),
            pa.table({"id": [1002], "name": ["c"]}),
        ],
        TaskContext(task_idx=0),
    )
    assert read_all(SQLDatasource("SELECT COUNT(*) AS n FROM t", database))["n"].to_pylist() == [
        1003
    ]

    def rows():
        yield pa.table({"id": list(range(5000)), "name": ["x"] * 5000})
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        sink.write(rows(), TaskContext(task_idx=1))
    assert read_all(SQLDatasource("SELECT COUNT(*) AS n FROM t", database))["n"].to_pylist() == [
        1003
    ]


def test_database_errors_are_raised_without_internal_frames(database):
    with pytest.raises(sqlite3.OperationalError) as read:
        list(sql_source.read_query("SELECT * FROM missing", database, None))
    with pytest.raises(sqlite3.ProgrammingError) as written:
        SQLDatasink("INSERT INTO t VALUES (?, ?)", database).write(
            [pa.table({"id": [1]})], TaskContext(task_idx=0)
        )
    for caught in (read, written):
        caught.value.__traceback__ = (
            caught.value.__traceback__.tb_next
        )  # without the frame of this test
        assert is_self_explanatory(caught.value)
