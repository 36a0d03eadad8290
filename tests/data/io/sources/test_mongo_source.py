"""MongoDB: round trips between pymongo over TCP and a stand-in for its server, and a real server
where `mongod` is installed.
"""

import datetime
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from syncline import data
from syncline.data.io.sources.mongo import MongoDatasource
from syncline.testing.programs import free_port

pymongo = pytest.importorskip("pymongo")
mongo_server = pytest.importorskip("tests.data.io.mongo_server")


@pytest.fixture(scope="module", params=["stand-in", "mongod"])
def uri(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "stand-in":
        with mongo_server.mongo_server() as found:
            yield found
        return
    mongod = shutil.which("mongod")
    if mongod is None:
        pytest.skip("mongod is not installed; Debian and PyPI have no package of it")
    yield from real_server(mongod, tmp_path_factory.mktemp("mongod"))


def real_server(mongod: str, directory: Path) -> Iterator[str]:
    port = free_port()
    command = [mongod, "--dbpath", str(directory), "--port", str(port), "--bind_ip", "127.0.0.1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield f"mongodb://127.0.0.1:{port}/?serverSelectionTimeoutMS=30000"
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="module")
def numbers(uri: str) -> str:
    """The collection db.numbers with 500 documents."""
    moment = datetime.datetime(2024, 1, 1)
    with pymongo.MongoClient(uri) as client:
        client["db"]["numbers"].insert_many(
            [
                {"a": number, "s": f"s{number}", "n": {"x": [number]}, "at": moment}
                for number in range(500)
            ]
        )
    return uri


def read(uri: str, collection: str = "numbers", **options: Any) -> data.Dataset:
    return data.read_mongo(uri, "db", collection, override_num_blocks=4, **options)


def test_documents_are_read_in_the_order_of_their_ids(numbers: str) -> None:
    rows = read(numbers).take_all()
    assert [row["a"] for row in rows] == list(range(500))
    first = dict(rows[0])
    assert len(first.pop("_id")) == 24
    assert first == {"a": 0, "s": "s0", "n": {"x": [0]}, "at": datetime.datetime(2024, 1, 1)}


def test_tasks_read_ranges_of_ids(numbers: str) -> None:
    tasks = MongoDatasource(numbers, "db", "numbers").get_read_tasks(4)
    parts = [[row["a"] for table in task() for row in table.to_pylist()] for task in tasks]
    assert len(parts) == 4
    assert sum(parts, []) == list(range(500))


def test_a_pipeline_runs_for_each_range_or_once(numbers: str) -> None:
    few = [{"$match": {"a": {"$lt": 5}}}, {"$project": {"a": 1, "_id": 0}}]
    assert read(numbers, pipeline=few).take_all() == [{"a": number} for number in range(5)]
    together = [*few, {"$sort": {"a": -1}}, {"$limit": 2}]
    assert read(numbers, pipeline=together).take_all() == [{"a": 4}, {"a": 3}]


def test_a_schema_names_the_fields_and_types(numbers: str) -> None:
    ds = read(numbers, schema={"a": pa.int32(), "s": pa.string()})
    assert ds.schema().types == [pa.int32(), pa.string()]
    assert ds.select_columns(["s"]).take(2) == [{"s": "s0"}, {"s": "s1"}]


def test_rows_round_trip(uri: str) -> None:
    with pymongo.MongoClient(uri) as client:
        client["db"]["out"].insert_one({"v": [0]})
    rows = [{"v": [number, 1], "t": {"x": "y"}} for number in range(300)]
    data.from_items(rows, override_num_blocks=3).write_mongo(uri, "db", "out")
    found = read(uri, "out", pipeline=[{"$match": {"t.x": "y"}}]).take_all()
    assert sorted(row["v"] for row in found) == [row["v"] for row in rows]
    assert data.range_tensor(2, shape=(2,)).write_mongo(uri, "db", "out") is None


def test_ids_of_several_types_are_read_in_one_task(uri: str) -> None:
    with pymongo.MongoClient(uri) as client:
        client["db"]["mixed"].insert_many([{"_id": 1, "a": 1}, {"_id": "x", "a": 2}])
    pipeline = [{"$project": {"a": 1, "_id": 0}}]
    assert sorted(row["a"] for row in read(uri, "mixed", pipeline=pipeline).take_all()) == [1, 2]


def test_mistakes_say_what_to_do(numbers: str) -> None:
    with pytest.raises(ValueError, match="no collection 'numberz'.*Did you mean 'numbers'"):
        read(numbers, "numberz")
    with pytest.raises(TypeError, match=r"pass a list of stages, \[{'\$limit': 2}\]"):
        read(numbers, pipeline={"$limit": 2})
    with pytest.raises(ValueError, match="no MongoDB database 'bd', only"):
        data.read_mongo(numbers, "bd", "numbers")
    with pytest.raises(ValueError, match="no collection 'none'"):
        data.range(2).write_mongo(numbers, "db", "none")
    with pymongo.MongoClient(numbers) as client:
        client["db"]["taken"].insert_one({"_id": 7})
    with pytest.raises(ValueError, match="MongoDB rejected a row for db.taken: .*(?i:dup)"):
        data.from_items([{"_id": 7}]).write_mongo(numbers, "db", "taken")
    nowhere = "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=50"
    with pytest.raises(
        ConnectionError, match="no MongoDB server answers.*serverSelectionTimeoutMS"
    ):
        data.read_mongo(nowhere, "db", "numbers")
