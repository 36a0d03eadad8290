"""A split whose ranks are processes: rows, killed consumers, errors, what many epochs leave
behind.
"""

import os
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import psutil
import pytest

import syncline
from syncline.data.context import DataContext
from syncline.data.dataset import Dataset
from syncline.data.iterate.split_coordinator import SplitTimeouts
from syncline.data.iterate.split_rendezvous import ConsumerDiedError
from syncline.data.iterate.streaming_split import split_sources
from syncline.data.iterator import DataIterator
from syncline.data.read import range as range_of
from syncline.testing.waiting import eventually

pytestmark = pytest.mark.processes

TIMEOUTS = SplitTimeouts(answer_s=1.0, check_s=0.1)


@pytest.fixture(autouse=True, scope="module")
def engine() -> Iterator[None]:
    syncline.init(num_cpus=2)
    with DataContext.current(DataContext(enable_progress_bars=False)):
        yield
    syncline.shutdown()


def split_of(dataset: Dataset, n: int) -> list[DataIterator]:
    sources = split_sources(dataset, n, make_dataset=Dataset._of_blocks, timeouts=TIMEOUTS)
    return [DataIterator(source) for source in sources]


@syncline.remote(num_cpus=1)
class Consumer:
    """One rank in a process of its own."""

    def __init__(self, iterator: DataIterator) -> None:
        self.iterator = iterator
        self.batches: Any = None

    def pid(self) -> int:
        return os.getpid()

    def read(self, epochs: int = 1) -> list[int]:
        return [
            int(row)
            for _ in range(epochs)
            for batch in self.iterator.iter_batches(batch_size=4)
            for row in batch["id"]
        ]

    def read_one(self) -> list[int]:
        self.batches = iter(self.iterator.iter_batches(batch_size=4))
        rows: list[int] = next(self.batches)["id"].tolist()
        return rows

    def read_rest(self) -> int:
        return sum(len(batch["id"]) for batch in self.batches)


def consumers_of(dataset: Dataset, n: int) -> list[Any]:
    return [Consumer.options(num_cpus=2 / n).remote(iterator) for iterator in split_of(dataset, n)]  # type: ignore[attr-defined]


@pytest.mark.promise
def test_ranks_that_hold_every_cpu_get_all_rows_once_from_a_function_that_needs_a_worker() -> None:
    dataset = range_of(1000, override_num_blocks=20).map_batches(
        lambda batch: {"id": batch["id"] * 2}
    )
    consumers = consumers_of(dataset, 2)
    results = syncline.get([consumer.read.remote() for consumer in consumers], timeout=60)
    assert sorted(row for own in results for row in own) == list(range(0, 2000, 2))
    assert results[1][:4] == [8, 10, 12, 14]


@pytest.mark.promise
@pytest.mark.parametrize("rows", [20_000, 2_000_000])
def test_a_killed_consumer_ends_the_others_with_an_error_that_names_it(rows: int) -> None:
    consumers = consumers_of(range_of(rows, override_num_blocks=rows // 4000), 3)
    syncline.get([consumer.read_one.remote() for consumer in consumers], timeout=60)
    pid = syncline.get(consumers[1].pid.remote())
    os.kill(pid, signal.SIGKILL)
    for consumer in (consumers[0], consumers[2]):
        with pytest.raises(ConsumerDiedError, match=rf"rank 1 \(pid {pid}\) has died in epoch 0"):
            syncline.get(consumer.read_rest.remote(), timeout=60)


def test_a_consumer_killed_between_epochs_is_named_to_those_who_wait_for_it() -> None:
    consumers = consumers_of(range_of(8), 2)
    syncline.get([consumer.read.remote() for consumer in consumers], timeout=60)
    pid = syncline.get(consumers[0].pid.remote())
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(ConsumerDiedError, match=rf"rank 0 \(pid {pid}\)"):
        syncline.get(consumers[1].read.remote(), timeout=60)


def test_an_error_in_a_function_reaches_every_rank_with_its_traceback() -> None:
    def fails_on_90(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if 90 in batch["id"]:
            raise LookupError("row 90 is bad")
        return batch

    consumers = consumers_of(range_of(100, override_num_blocks=10).map_batches(fails_on_90), 2)
    for ref in [consumer.read.remote() for consumer in consumers]:
        with pytest.raises(LookupError, match="row 90 is bad") as caught:
            syncline.get(ref, timeout=60)
        assert "fails_on_90" in str(caught.value) + str(caught.value.__cause__)
        del caught  # its traceback would keep this frame and the consumers alive


def test_a_hundred_epochs_leave_threads_descriptors_and_memory_as_they_were() -> None:
    iterators = split_of(range_of(24, override_num_blocks=3), 2)
    consumers = [Consumer.remote(iterator) for iterator in iterators]  # type: ignore[attr-defined]
    coordinator = iterators[0]._source.client._actor  # type: ignore[attr-defined]

    def resources() -> list[tuple[int, int]]:
        def of_process(_: Any) -> tuple[int, int]:
            return psutil.Process().num_threads(), psutil.Process().num_fds()

        found: list[tuple[int, int]] = syncline.get(
            [actor.__ray_call__.remote(of_process) for actor in (*consumers, coordinator)]
        )
        return found

    def memory() -> int:
        size: int = syncline.get(
            coordinator.__ray_call__.remote(lambda _: psutil.Process().memory_info().rss)
        )
        return size

    syncline.get([consumer.read.remote(20) for consumer in consumers], timeout=60)
    before, bytes_before = resources(), memory()
    syncline.get([consumer.read.remote(100) for consumer in consumers], timeout=120)
    # Pools of threads may still grow to their size; what leaks would do so with every epoch.
    eventually(
        lambda: all(
            now <= then + 15
            for pair in zip(resources(), before, strict=True)
            for now, then in zip(*pair, strict=True)
        )
    )
    assert memory() < bytes_before + 30 * 1024**2


def test_the_coordinator_ends_with_the_last_iterator() -> None:
    iterators = split_of(range_of(8), 1)
    source: Any = iterators[0]._source
    pid = syncline.get(source.client._actor.__ray_call__.remote(lambda _: os.getpid()))
    assert [row["id"] for row in iterators[0].iter_rows()] == list(range(8))
    del iterators, source
    eventually(
        lambda: (
            not psutil.pid_exists(pid)
            or all(pid != each.pid for each in psutil.Process().children(recursive=True))
        )
    )
