"""What goes wrong while datasets run on worker processes: deaths, loops that are left, functions
that misbehave, files that change.

Whole programs that are killed, interrupted or out of room are in `test_data_faults_programs.py`.
"""

import ctypes
import gc
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec.implementations.local
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import syncline
from syncline import data
from syncline.core import api
from syncline.core.engine import current_engine
from syncline.data.dataset import Dataset
from syncline.data.iterate.split_rendezvous import CoordinatorDiedError
from syncline.exceptions import WorkerCrashedError
from syncline.testing.waiting import eventually
from syncline.train import (
    DataParallelTrainer,
    FailureConfig,
    RunConfig,
    ScalingConfig,
    get_dataset_shard,
    report,
)

pytestmark = pytest.mark.processes

FILES, ROWS = 4, 500
MIB = 2**20


@pytest.fixture(autouse=True, scope="module")
def engine() -> Iterator[None]:
    syncline.init(num_cpus=4, object_store_memory=256 * MIB)
    yield
    syncline.shutdown()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    directory = tmp_path / "in"
    directory.mkdir()
    for number in range(FILES):
        table = pa.table({"id": list(range(number * ROWS, (number + 1) * ROWS))})
        pq.write_table(table, directory / f"{number}.parquet", row_group_size=100)
    return directory


def once(mark: Path) -> bool:
    """Whether nobody, in any process, has asked before."""
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def same(batch: Any) -> Any:
    return batch


def kills_itself(batch: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def kills_itself_once(mark: Path) -> Callable[[Any], Any]:
    def kills_once(batch: Any) -> Any:
        if len(batch["id"]) and batch["id"][0] % 1000 >= 100 and once(mark):
            os.kill(os.getpid(), signal.SIGKILL)
        return batch

    return kills_once


def data_threads() -> list[str]:
    names = (thread.name for thread in threading.enumerate())
    return [
        name
        for name in names
        if name.startswith(("syncline-data", "syncline-prefetch", "syncline-beat"))
        and "warm" not in name
    ]


def held() -> tuple[int, int]:
    """Values in the object store beside those that stand for actors, and bytes of shared memory and
    disk in use.
    """
    found: Any = api.ensure_engine().statistics()
    objects, store = found["objects"], found["store"]
    return objects.objects - objects.pending, store.in_use_bytes + store.disk_bytes


def until_all_is_let_go() -> None:
    gc.collect()
    eventually(lambda: held() == (0, 0), what="the object store is empty")
    eventually(lambda: not data_threads(), what="the threads have ended")


# -- deaths


class KillsOnce:
    def __init__(self, mark: Path) -> None:
        self.function = kills_itself_once(mark)

    def __call__(self, batch: Any) -> Any:
        return self.function(batch)


def ids(dataset: Dataset) -> list[int]:
    return [row["id"] for row in dataset.take_all()]


def after_a_shuffle(dataset: Dataset, mark: Path) -> list[int]:
    return sorted(
        ids(
            dataset.map_batches(same)
            .random_shuffle(seed=1)
            .map_batches(kills_itself_once(mark), batch_size=10)
        )
    )


def of_groups(dataset: Dataset, mark: Path) -> list[int]:
    grouped = dataset.add_column("key", lambda batch: np.asarray(batch["id"]) // 300).groupby("key")
    return sorted(ids(grouped.map_groups(kills_itself_once(mark))))


def written(dataset: Dataset, mark: Path) -> list[int]:
    target = mark.parent / "out"
    dataset.map_batches(kills_itself_once(mark), batch_size=100).write_parquet(str(target))
    return sorted(
        number for path in target.iterdir() for number in pq.read_table(path)["id"].to_pylist()
    )


@pytest.mark.parametrize(
    "run",
    [
        lambda dataset, mark: ids(dataset.map_batches(kills_itself_once(mark), batch_size=100)),
        lambda dataset, mark: ids(
            dataset.map_batches(
                KillsOnce, fn_constructor_args=(mark,), concurrency=2, num_cpus=0, batch_size=100
            )
        ),
        after_a_shuffle,
        of_groups,
        written,
    ],
    ids=["reading", "actors", "after a shuffle", "groups", "writing"],
)
def test_a_worker_that_is_killed_costs_no_row_and_repeats_none(
    source: Path, run: Callable[[Dataset, Path], list[int]]
) -> None:
    mark = source.parent / "killed"
    assert run(data.read_parquet(str(source)), mark) == list(range(FILES * ROWS))
    assert mark.exists()


ONE_ACTOR = {"concurrency": 1, "num_cpus": 0}


class KillsItself:
    def __call__(self, batch: Any) -> Any:
        kills_itself(batch)


class NeverConstructed:
    def __init__(self) -> None:
        kills_itself(None)

    def __call__(self, batch: Any) -> Any:
        return batch


@pytest.mark.parametrize(
    ("function", "options", "kind", "text"),
    [
        (
            kills_itself,
            {},
            WorkerCrashedError,
            r"MapBatches\(kills_itself\), task \d+, failed 4 times .*SIGKILL",
        ),
        (
            KillsItself,
            ONE_ACTOR,
            WorkerCrashedError,
            r"MapBatches\(KillsItself\), task \d+, failed 4 times .*SIGKILL",
        ),
        (
            NeverConstructed,
            ONE_ACTOR,
            RuntimeError,
            r"MapBatches\(NeverConstructed\) died 3 times .*SIGKILL",
        ),
    ],
    ids=["function", "actor", "constructor"],
)
def test_what_always_kills_its_worker_is_named_with_the_cause(
    function: Any, options: dict[str, Any], kind: type, text: str
) -> None:
    with pytest.raises(kind, match=text):
        data.range(10, override_num_blocks=1).map_batches(function, **options).materialize()
    until_all_is_let_go()


# -- the coordinator of a split


def coordinators() -> list[int]:
    hub = current_engine()._connection._hub  # type: ignore[attr-defined]
    return [
        process.pid for process in list(hub.processes.values()) if "Coordinator" in process.label
    ]


def kill_coordinators() -> None:
    for pid in coordinators():
        os.kill(pid, signal.SIGKILL)


def test_consumers_of_a_split_hear_that_its_coordinator_died() -> None:
    dataset = data.range(10_000, override_num_blocks=20)
    iterators = dataset.streaming_split(2)
    begun, errors = threading.Barrier(3), []

    def consume(rank: int) -> None:
        try:
            for number, _ in enumerate(iterators[rank].iter_batches(batch_size=10)):
                if number == 5:
                    begun.wait(60)
                    eventually(lambda: not coordinators())
        except CoordinatorDiedError as error:
            errors.append(str(error))

    consumers = [threading.Thread(target=consume, args=(rank,)) for rank in range(2)]
    for consumer in consumers:
        consumer.start()
    begun.wait(60)
    kill_coordinators()
    for consumer in consumers:
        consumer.join(60)
    assert len(errors) == 2
    assert all(
        "was killed by SIGKILL" in error and "Split the dataset again" in error for error in errors
    )
    (recompute,) = dataset.streaming_split(1)
    assert sum(len(batch["id"]) for batch in recompute.iter_batches()) == 10_000


def test_a_training_goes_on_with_another_coordinator(tmp_path: Path) -> None:
    def train(config: dict[str, str]) -> None:
        seen = 0
        first = once(Path(config["mark"]))  # of one rank, in the first attempt
        for batch in get_dataset_shard("train").iter_batches(batch_size=10):
            seen += len(batch["id"])
            if first and seen == 50:
                Path(config["killed"]).touch()
                eventually(lambda: Path(config["killed"] + ".done").exists())
        report({"seen": seen})

    def kill_once() -> None:
        eventually(lambda: (tmp_path / "killed").exists())
        kill_coordinators()
        (tmp_path / "killed.done").touch()

    killer = threading.Thread(target=kill_once)
    killer.start()
    result = DataParallelTrainer(
        train,
        train_loop_config={"mark": str(tmp_path / "first"), "killed": str(tmp_path / "killed")},
        datasets={"train": data.range(4000, override_num_blocks=8)},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            storage_path=str(tmp_path / "runs"), failure_config=FailureConfig(max_failures=1)
        ),
    ).fit()
    killer.join(60)
    assert result.metrics is not None
    assert result.metrics["seen"] == 2000


# -- loops that are left


def large(blocks: int = 60) -> Dataset:
    """A megabyte in each block."""
    return data.range(blocks * 128, override_num_blocks=blocks).map_batches(
        lambda batch: {"x": np.ones((len(batch["id"]), 1024))}
    )


def leave_by_break() -> None:
    for _ in large().iter_batches(batch_size=10):
        break


def leave_by_error() -> None:
    def fails() -> None:
        for _ in large().iter_rows():
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        fails()


def leave_to_the_collector() -> None:
    loop = iter(large().iterator().iter_torch_batches(batch_size=10, prefetch_batches=2))
    next(loop)
    cycle: list[Any] = [loop]
    cycle.append(cycle)


def leave_a_generator() -> None:
    def batches() -> Iterator[Any]:
        yield from large().iter_batches(batch_size=10)

    suspended = batches()
    next(suspended)
    gc.collect()


def leave_a_shuffle() -> None:
    next(iter(large().random_shuffle().iter_batches(batch_size=10)))


def leave_a_split() -> None:
    (iterator,) = large().streaming_split(1)
    next(iter(iterator.iter_batches(batch_size=10)))


@pytest.mark.parametrize(
    "leave",
    [
        leave_by_break,
        leave_by_error,
        leave_to_the_collector,
        leave_a_generator,
        leave_a_shuffle,
        leave_a_split,
    ],
)
def test_a_loop_that_is_left_holds_nothing(leave: Callable[[], None]) -> None:
    leave()
    until_all_is_let_go()


def test_a_split_between_two_passes_holds_nothing() -> None:
    (iterator,) = large().streaming_split(1)
    next(iter(iterator.iter_batches(batch_size=10)))
    gc.collect()
    eventually(
        lambda: held()[1] == 0,
        what="what the coordinator held is freed, although nobody talks to it",
    )


def test_a_consumer_that_rests_costs_no_time_and_little_memory() -> None:
    budget = 8 * MIB
    dataset = large(blocks=100)
    dataset.context.execution_options.resource_limits.object_store_memory = budget
    loop = iter(dataset.iter_batches(batch_size=128))
    most = 0
    for _ in range(20):
        next(loop)
        time.sleep(0.01)
        most = max(most, held()[1])
    assert 0 < most <= 2 * budget
    process = psutil.Process()

    def cpu_s() -> float:
        return sum(process.cpu_times()[:2])

    def rests() -> bool:
        before = cpu_s()
        time.sleep(0.5)
        return cpu_s() - before < 0.1

    eventually(rests, what="nothing is computed while the consumer rests")
    del loop
    until_all_is_let_go()


@pytest.mark.long
def test_a_hundred_passes_leave_nothing_behind() -> None:
    dataset = data.range(1000, override_num_blocks=4).map_batches(same)
    alone, (shared,) = dataset.iterator(), dataset.streaming_split(1)
    process = psutil.Process()

    def passes(number: int) -> None:
        for _ in range(number):
            for iterator in (alone, shared):
                assert (
                    sum(len(batch["id"]) for batch in iterator.iter_batches(batch_size=100)) == 1000
                )

    def counts() -> tuple[int, ...]:
        gc.collect()
        (coordinator,) = [psutil.Process(pid) for pid in coordinators()]
        both = (process, coordinator)
        return (*held(), *(each.num_threads() for each in both), *(each.num_fds() for each in both))

    passes(5)
    eventually(lambda: not data_threads())
    before = counts()
    passes(100)
    # A thread that is about to end, or one more call of the coordinator that waits, is no leak.
    eventually(
        lambda: all(now <= then + 3 for now, then in zip(counts(), before, strict=True)),
        what=f"no more than {before}",
    )


# -- executions beside and inside one another


@pytest.mark.parametrize("executions", [2, 4])
def test_executions_run_beside_one_another(executions: int) -> None:
    sums: dict[int, int] = {}

    def run(number: int) -> None:
        shifted = data.range(2000, override_num_blocks=4).map_batches(
            lambda batch: {"id": batch["id"] + number}
        )
        sums[number] = shifted.sort("id", descending=True).sum("id")

    threads = [threading.Thread(target=run, args=(number,)) for number in range(executions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sums == {number: 1_999_000 + 2000 * number for number in range(executions)}


def test_datasets_work_inside_functions_tasks_and_actors() -> None:
    inner = data.range(100, override_num_blocks=4).map_batches(same)

    def nested(batch: Any) -> Any:
        return {"sum": [inner.random_shuffle().sum("id")] * len(batch["id"])}

    @syncline.remote
    def task(dataset: Dataset) -> int:
        return sum(len(batch["id"]) for batch in dataset.iter_batches(batch_size=7))

    @syncline.remote
    class Actor:
        def last(self, dataset: Dataset) -> int:
            return int(dataset.sort("id", descending=True).take(1)[0]["id"])

    assert data.range(8, override_num_blocks=8).map_batches(nested).sum("sum") == 8 * 4950
    assert syncline.get(
        [task.remote(inner), task.remote(inner), Actor.remote().last.remote(inner)],  # type: ignore[attr-defined]
        timeout=60,
    ) == [100, 100, 99]


def test_the_workers_of_a_data_loader_read_their_parts_of_a_split() -> None:
    torch = pytest.importorskip("torch")
    iterators = data.range(1000, override_num_blocks=4).map_batches(same).streaming_split(2)

    class Parts(torch.utils.data.IterableDataset):  # type: ignore[name-defined]
        def __iter__(self) -> Iterator[Any]:
            for batch in iterators[torch.utils.data.get_worker_info().id].iter_torch_batches(
                batch_size=10
            ):
                yield batch["id"]

    loader = torch.utils.data.DataLoader(
        Parts(), batch_size=None, num_workers=2, multiprocessing_context="fork"
    )
    assert sorted(number for batch in loader for number in batch.tolist()) == list(range(1000))


# -- functions that misbehave


def blocks_in_c(batch: Any) -> Any:
    if batch["id"][0] == 20:
        ctypes.CDLL(None).sleep(1000)
    return batch


def test_a_function_that_blocks_in_native_code_is_ended() -> None:
    dataset = data.range(40, override_num_blocks=1)
    with pytest.raises(
        TimeoutError, match=r"MapBatches\(blocks_in_c\) failed on rows 20 to 29 .*ctypes.CDLL"
    ):
        dataset.map_batches(blocks_in_c, batch_size=10, timeout_s=0.5).materialize()
    assert ids(dataset.map_batches(blocks_in_c, batch_size=10, timeout_s=0.5, on_error="skip")) == [
        *range(20),
        *range(30, 40),
    ]


def test_children_that_a_function_leaves_end_with_its_worker(tmp_path: Path) -> None:
    def leaves_children(batch: Any) -> Any:
        child = subprocess.Popen(["sleep", "1000"])
        (tmp_path / str(child.pid)).touch()
        if os.fork() == 0:
            (tmp_path / str(os.getpid())).touch()
            time.sleep(1000)
            os._exit(0)
        return batch

    assert (
        data.range(10, override_num_blocks=2)
        .map_batches(leaves_children, num_cpus=1, memory=1)
        .count()
        == 10
    )
    eventually(lambda: len(list(tmp_path.iterdir())) == 4)
    eventually(
        lambda: not any(psutil.pid_exists(int(path.name)) for path in tmp_path.iterdir()),
        what="all children have ended",
    )


def test_batches_larger_than_the_object_store_pass_over_the_disk() -> None:
    def grows(batch: Any) -> Any:
        return {"x": np.zeros((1, 40 * MIB))}  # 320 MB

    sizes = [
        batch["x"].nbytes
        for batch in data.range(2, override_num_blocks=2)
        .map_batches(grows)
        .iter_batches(batch_size=None)
    ]
    assert sizes == [320 * MIB] * 2
    until_all_is_let_go()


# -- files that change


def gone(path: Path) -> None:
    path.unlink()


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:500])


def replaced(path: Path) -> None:
    pq.write_table(pa.table({"id": [1]}), path)


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("function", [None, same])
@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (gone, FileNotFoundError),
        (truncated, ValueError),
        (replaced, OSError),
        (a_directory, OSError),
    ],
)
def test_a_file_that_changes_between_planning_and_reading_is_named(
    source: Path, change: Callable[[Path], None], kind: type[Exception], function: Any
) -> None:
    dataset = data.read_parquet(str(source))
    if function is not None:
        dataset = dataset.map_batches(function)
    change(source / "2.parquet")
    with pytest.raises(kind, match=r"2\.parquet"):
        dataset.materialize()


class Flaky(fsspec.implementations.local.LocalFileSystem):
    """Reading the content of a file fails the first time."""

    marks = ""

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        if "r" in mode and once(Path(self.marks) / Path(path).name):
            raise OSError("the storage coughs")
        return super()._open(path, mode, **options)


@pytest.mark.parametrize("is_transient", [True, False])
def test_transient_errors_of_storage_are_tried_again(
    source: Path, is_transient: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = source.parent / "marks"
    marks.mkdir()
    monkeypatch.setattr(Flaky, "marks", str(marks))
    (source.parent / "text").mkdir()
    for number in range(3):
        (source.parent / "text" / f"{number}.txt").write_text("one\ntwo\n")
    context = data.DataContext.get_current().copy()
    if is_transient:
        context.retried_io_errors.append("storage coughs")
    with data.DataContext.current(context):
        dataset = data.read_text(str(source.parent / "text"), filesystem=Flaky())
        if is_transient:
            assert len(dataset.take_all()) == 6
        else:
            with pytest.raises(OSError, match="coughs"):
                dataset.take_all()
