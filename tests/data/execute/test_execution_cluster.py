"""Executions on a Ray cluster: kernels run in workers too, partitions are objects of their own, and
workers that die are replaced.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import syncline
from syncline.data.columnar.kernels import partition
from syncline.data.context import DataContext
from syncline.data.execute.physical_plan import Chain, ExchangeRows, Stage, Threads
from syncline.data.execute.steps.heads import concatenate
from syncline.exceptions import UserCodeException
from syncline.testing.clusters import RayCluster
from tests.data.execute.handmade import actors, execute, ids, mapped, numbers

pytestmark = pytest.mark.cluster


@pytest.fixture(autouse=True, scope="module")
def engine() -> Iterator[None]:
    with RayCluster(num_cpus=2) as cluster:
        syncline.init(cluster.address)
        yield
        syncline.shutdown()


# Made in functions, so that they travel by value: the cluster cannot import this module.


def test_kernels_and_functions_run_in_workers():
    def with_pid(batch):
        return {"id": batch["id"], "pid": batch["id"] * 0 + os.getpid()}

    blocks = [block.table() for block in execute(numbers(100, 4), mapped(with_pid))]
    assert [row for table in blocks for row in table["id"].to_pylist()] == list(range(100))
    assert os.getpid() not in {pid for table in blocks for pid in table["pid"].to_pylist()}


def test_an_exchange_delivers_every_row_once():
    def in_two(table, parts, prepared, number):
        return partition.by_number(
            table, (table["id"].to_numpy() % 2 == 0).astype("int64") * 2, parts
        )

    grouping = ExchangeRows(
        partition=(in_two,), parts=3, default_parts=3, direct_bytes=0, executor=Threads()
    )
    stage = Stage(
        name="Exchange",
        inputs=(0,),
        grouping=grouping,
        chain=Chain(head=concatenate, context=DataContext()),
    )
    assert ids(execute(numbers(40, 4), stage)) == [*range(1, 40, 2), *range(0, 40, 2)]


def test_errors_of_functions_and_deaths_of_workers(tmp_path: Path):
    def fails(batch):
        raise LookupError("nothing there")

    with pytest.raises(LookupError, match="nothing there") as caught:
        ids(execute(numbers(10, 2), mapped(fails)))
    assert isinstance(caught.value, UserCodeException)

    def dies_once(batch):
        mark = tmp_path / "died"
        if batch["id"][0] == 5 and not mark.exists():
            mark.touch()
            os._exit(1)
        return batch

    assert ids(execute(numbers(10, 2), mapped(dies_once))) == list(range(10))


def test_actors_keep_their_objects():
    class Adds:
        def __init__(self, amount):
            self.amount = amount

        def __call__(self, batch):
            return {"id": batch["id"] + self.amount}

    assert ids(
        execute(numbers(20, 4), mapped(Adds, executor=actors(1, 2), constructor_args=(5,)))
    ) == list(range(5, 25))
