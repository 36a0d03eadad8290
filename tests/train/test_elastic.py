"""Groups that grow and shrink while they train: resources come and go, and every sample of every
epoch is seen exactly once.

The machine's CPUs are changed under the running program (`syncline.testing.resources`). What each
rank has learned, the ids of its samples, is in the checkpoints; the ranks of the next group share
out what those of the last one knew.
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

import syncline
from syncline import data, train
from syncline.runs import LocalFiles, RunRecord
from syncline.testing import eventually
from syncline.testing.resources import set_total
from syncline.train.torch import prepare_data_loader

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]

BATCH, STEPS_PER_REPORT = 6, 2
ROWS = 144  # what is left at a checkpoint can be dealt to 2, 3 or 4 ranks without a rest
LOOK_S = 0.02
SYNC, ASYNC = train.CheckpointUploadMode.SYNC, train.CheckpointUploadMode.ASYNC


@pytest.fixture(scope="module", autouse=True)
def engine() -> Iterator[None]:
    syncline.shutdown()
    syncline.init(num_cpus=4)
    yield
    syncline.shutdown()


@pytest.fixture(autouse=True)
def whole_machine() -> None:
    set_total(CPU=4)


def dataset() -> Any:
    """In another order in each epoch."""
    context = data.DataContext.get_current()
    before, context.seed = context.seed, 11
    try:
        return data.range(ROWS, override_num_blocks=4).random_shuffle(num_blocks=3)
    finally:
        context.seed = before


def ids_of(mode: str) -> Any:
    """Something that yields batches of ids in every pass over it."""
    if mode == "data":
        return map_each(
            lambda: train.get_dataset_shard("train").iter_batches(batch_size=BATCH),
            lambda batch: batch["id"].tolist(),
        )
    loader = prepare_data_loader(DataLoader(range(ROWS), batch_size=BATCH, shuffle=True))
    return map_each(lambda: loader, lambda batch: batch.tolist())


@dataclass
class map_each:
    batches: Callable[[], Any]
    change: Callable[[Any], list[int]]

    def __iter__(self) -> Iterator[list[int]]:
        return map(self.change, iter(self.batches()))


def learn(config: dict[str, Any]) -> None:
    """Remembers which ids it has seen, by epoch, until the test says that it is enough; in the
    middle of epochs, too, it saves that.
    """
    context, folder = train.get_context(), Path(config["folder"])
    rank, ranks = context.get_world_rank(), context.get_world_size()
    epoch, step, seen = 0, 0, {}
    checkpoint = train.get_checkpoint()
    if checkpoint is not None:
        for file in sorted(Path(checkpoint.path).glob("rank-*.json")):
            saved = json.loads(file.read_text())
            epoch, step = saved["epoch"], saved["step"]
            if saved["rank"] % ranks == rank:
                for of_epoch, ids in saved["seen"].items():
                    seen.setdefault(of_epoch, []).extend(ids)

    def save() -> None:
        directory = tempfile.mkdtemp(dir=folder)
        state = {"rank": rank, "epoch": epoch, "step": step, "seen": seen}
        Path(directory, f"rank-{rank}.json").write_text(json.dumps(state))
        facts = {"epoch": epoch, "step": step, "ranks": ranks}
        train.report(
            facts, train.Checkpoint.from_directory(directory), checkpoint_upload_mode=config["mode"]
        )
        train.collective.barrier()
        (folder / f".at-{rank}").write_text(json.dumps({**facts, "pid": os.getpid()}))
        (folder / f".at-{rank}").rename(folder / f"at-{rank}")

    batches = ids_of(config["reader"])
    while not train.collective.broadcast_from_rank_zero((folder / "enough").exists()):
        for ids in batches:
            seen.setdefault(str(epoch), []).extend(ids)
            step += 1
            time.sleep(0.002)
            if step % STEPS_PER_REPORT == 0:
                save()
        epoch, step = epoch + 1, 0
        save()


class ElasticRun:
    """A training under way on another thread."""

    def __init__(
        self,
        folder: Path,
        reader: str = "data",
        *,
        workers: tuple[int, int] = (1, 4),
        mode: Any = SYNC,
        **run: Any,
    ) -> None:
        self.folder = folder
        self._thread = ThreadPoolExecutor(1)
        self._failures = run.pop("failures", 0)
        trainer = train.DataParallelTrainer(
            learn,
            train_loop_config={"folder": str(folder), "reader": reader, "mode": mode},
            scaling_config=train.ScalingConfig(
                num_workers=workers, elastic_resize_monitor_interval_s=LOOK_S
            ),
            run_config=train.RunConfig(
                name="run",
                storage_path=str(folder),
                failure_config=train.FailureConfig(max_failures=self._failures),
                **run,
            ),
            datasets={"train": dataset()} if reader == "data" else {},
        )
        self._result: Future[train.Result] = self._thread.submit(trainer.fit)

    def __enter__(self) -> ElasticRun:
        return self

    def __exit__(self, *_: object) -> None:
        (self.folder / "enough").touch()
        self._thread.shutdown()

    def at(self, rank: int = 0) -> dict[str, int]:
        """Where a rank was last."""
        assert not self._result.done(), f"the training is over: {self._result.exception()!r}"
        try:
            found: dict[str, int] = json.loads((self.folder / f"at-{rank}").read_text())
        except FileNotFoundError:
            found = {"ranks": 0, "epoch": 0, "step": 0}
        return found

    def trains_with(self, ranks: int) -> None:
        """Wait until the group has so many ranks, and has saved in the middle of an epoch."""
        eventually(
            lambda: all(self._is_in_middle(rank, ranks) for rank in range(ranks)),
            what=f"training with {ranks} workers",
        )

    def _is_in_middle(self, rank: int, ranks: int) -> bool:
        at = self.at(rank)
        return at["ranks"] == ranks and at["step"] > 0

    def finish(self) -> train.Result:
        """Let it come to the end of its epoch."""
        (self.folder / "enough").touch()
        return self._result.result(timeout=60)


def check_seen_once(result: train.Result) -> int:
    """Every id once in every epoch; how many epochs there were."""
    assert result.checkpoint is not None
    seen: dict[str, Counter[int]] = {}
    for file in Path(result.checkpoint.path).glob("rank-*.json"):
        for epoch, ids in json.loads(file.read_text())["seen"].items():
            seen.setdefault(epoch, Counter()).update(ids)
    assert seen == {str(epoch): Counter(range(ROWS)) for epoch in range(len(seen))}
    return len(seen)


def resizes(folder: Path) -> list[tuple[int, int]]:
    """(size before, size after) of each change, as the record tells."""
    told = [
        event
        for event in RunRecord(LocalFiles(folder / "run")).events()
        if event["event"] == "resize"
    ]
    return [(event["world_size"], event["workers"]) for event in told]


@pytest.mark.parametrize("reader", ["data", pytest.param("loader", marks=pytest.mark.promise)])
def test_a_group_shrinks_and_grows_and_every_sample_is_seen_once(
    tmp_path: Path, reader: str
) -> None:
    with ElasticRun(tmp_path, reader) as run:
        for workers in (4, 2, 3):
            set_total(CPU=workers)
            run.trains_with(workers)
        result = run.finish()
    assert check_seen_once(result) > 1
    assert resizes(tmp_path) == [(4, 2), (2, 3)]


def test_a_group_starts_with_what_there_is_and_shrinks_while_checkpoints_are_uploaded(
    tmp_path: Path,
) -> None:
    set_total(CPU=3)
    with ElasticRun(tmp_path, mode=ASYNC) as run:
        for workers in (3, 2, 1, 4):
            set_total(CPU=workers)
            run.trains_with(workers)
        result = run.finish()
    check_seen_once(result)
    assert resizes(tmp_path) == [(3, 2), (2, 1), (1, 4)]


def test_fewer_resources_than_the_smallest_group_needs_change_nothing(tmp_path: Path) -> None:
    with ElasticRun(tmp_path, workers=(2, 4)) as run:
        run.trains_with(4)
        set_total(CPU=1)
        epoch = run.at()["epoch"]
        eventually(lambda: run.at()["epoch"] > epoch + 1, what="another epoch")
        assert run.at()["ranks"] == 4
        set_total(CPU=3)
        run.trains_with(3)
        result = run.finish()
    check_seen_once(result)
    assert resizes(tmp_path) == [(4, 3)]


def test_a_rank_is_killed_while_resources_go_and_the_group_waits_until_there_are_enough(
    tmp_path: Path,
) -> None:
    with ElasticRun(tmp_path, workers=(2, 4), failures=2) as run:
        run.trains_with(4)
        os.kill(run.at(rank=3)["pid"], signal.SIGKILL)
        set_total(CPU=2)
        run.trains_with(2)
        set_total(CPU=1)
        os.kill(run.at(rank=1)["pid"], signal.SIGKILL)
        eventually(
            lambda: syncline.available_resources().get("CPU") == 1, what="the group has let go"
        )
        set_total(CPU=3)
        run.trains_with(3)
        result = run.finish()
    check_seen_once(result)
