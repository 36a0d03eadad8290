"""A split whose ranks are processes: rows, killed consumers, what many epochs leave behind."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import cloudpickle
import execution_fake
import psutil
import pytest
import split_threads
from execution_fake import FakeDataset, keep

import syncline
from syncline.data.iterator import DataIterator
from syncline.data.plan import facts
from syncline.data.split.consumer import SplitFeed
from syncline.data.split.coordinator import Coordinator, Limits
from syncline.data.split.link import ActorLink
from syncline.data.split.messages import ConsumerDiedError
from syncline.testing.waiting import eventually

pytestmark = pytest.mark.processes

LIMITS = Limits(answer_s=1.0, check_s=0.1)


@pytest.fixture(autouse=True, scope="module")
def engine() -> Iterator[None]:
    for module in (execution_fake, split_threads):
        cloudpickle.register_pickle_by_value(module)
    syncline.init(num_cpus=2)
    yield
    syncline.shutdown()
    for module in (execution_fake, split_threads):
        cloudpickle.unregister_pickle_by_value(module)


def split_of(dataset: FakeDataset, n: int) -> list[DataIterator]:
    actor = syncline.remote(num_cpus=0, max_concurrency=4 * n)(Coordinator).remote(dataset, n, False, LIMITS, run=dataset.run)
    signature = facts.signature(dataset._node)
    return [
        DataIterator(
            SplitFeed(link=ActorLink(actor), rank=rank, world_size=n, signature=signature, data_context=dataset.context, keep=keep)
        )
        for rank in range(n)
    ]


@syncline.remote(num_cpus=0)
class Consumer:
    """One rank in a process of its own."""

    def __init__(self, iterator: DataIterator) -> None:
        self.iterator = iterator
        self.batches: Any = None

    def pid(self) -> int:
        return os.getpid()

    def read(self, epochs: int = 1) -> list[int]:
        return [int(row) for _ in range(epochs) for batch in self.iterator.iter_batches(batch_size=4) for row in batch["v"]]

    def read_one(self) -> list[int]:
        self.batches = iter(self.iterator.iter_batches(batch_size=4))
        return next(self.batches)["v"].tolist()

    def read_rest(self) -> int:
        return sum(len(batch["v"]) for batch in self.batches)

    def resources(self) -> tuple[int, int]:
        process = psutil.Process()
        return process.num_threads(), process.num_fds()


def consumers_of(dataset: FakeDataset, n: int) -> list[Any]:
    return [Consumer.remote(iterator) for iterator in split_of(dataset, n)]


def test_ranks_in_processes_get_all_rows_once() -> None:
    consumers = consumers_of(FakeDataset(block_rows=[50] * 20), 3)
    results = syncline.get([consumer.read.remote() for consumer in consumers], timeout=60)
    assert sorted(row for own in results for row in own) == list(range(1000))
    assert results[2][:4] == [8, 9, 10, 11]


def test_a_killed_consumer_ends_the_others_with_an_error_that_names_it() -> None:
    consumers = consumers_of(FakeDataset(block_rows=[1000] * 500), 3)
    syncline.get([consumer.read_one.remote() for consumer in consumers], timeout=60)
    pid = syncline.get(consumers[1].pid.remote())
    os.kill(pid, signal.SIGKILL)
    for consumer in (consumers[0], consumers[2]):
        with pytest.raises(ConsumerDiedError, match=rf"rank 1 \(pid {pid}\) has died in epoch 0"):
            syncline.get(consumer.read_rest.remote(), timeout=60)


def test_a_consumer_killed_between_epochs_is_named_to_those_who_wait_for_it() -> None:
    consumers = consumers_of(FakeDataset(block_rows=[8]), 2)
    syncline.get([consumer.read.remote() for consumer in consumers], timeout=60)
    pid = syncline.get(consumers[0].pid.remote())
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(ConsumerDiedError, match=rf"rank 0 \(pid {pid}\)"):
        syncline.get(consumers[1].read.remote(), timeout=60)


def test_a_hundred_epochs_leave_threads_and_descriptors_as_they_were() -> None:
    consumers = consumers_of(FakeDataset(block_rows=[8] * 3), 2)
    syncline.get([consumer.read.remote(5) for consumer in consumers], timeout=60)

    def resources() -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = syncline.get([consumer.resources.remote() for consumer in consumers])
        return found

    before = resources()
    syncline.get([consumer.read.remote(100) for consumer in consumers], timeout=120)
    eventually(lambda: all(now <= then for pair in zip(resources(), before, strict=True) for now, then in zip(*pair, strict=True)))


def test_the_coordinator_ends_with_the_last_iterator() -> None:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    iterators = split_of(FakeDataset(block_rows=[8]), 1)
    assert [row["v"] for row in iterators[0].iter_rows()] == list(range(8))
    pids = {child.pid for child in psutil.Process().children(recursive=True)} - before
    del iterators
    eventually(lambda: all(not psutil.pid_exists(pid) or pid in before for pid in pids))
