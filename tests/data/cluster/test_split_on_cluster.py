"""A dataset shared out among consumers on the nodes of a Ray cluster: epochs, deaths, and training
runs that outlive their programs.
"""

from __future__ import annotations

import os
import signal
from functools import partial
from typing import Any

import pytest

import syncline
from syncline import data
from syncline.data.iterate.split_rendezvous import ConsumerDiedError
from syncline.testing.clusters import RayCluster
from syncline.testing.waiting import GENEROUS_S, eventually

pytestmark = [pytest.mark.cluster, pytest.mark.processes, pytest.mark.timeout(240)]

EPOCHS = 10


def _consumers(dataset: data.Dataset, n: int) -> list[Any]:
    """Ranks of a split, the second one on another node than the others."""

    class Consumer:
        def __init__(self, iterator):
            self.iterator = iterator

        def place(self):
            return os.getpid(), syncline.get_runtime_context().get_node_id()

        def read(self, epochs=1):
            return [
                [
                    int(row)
                    for batch in self.iterator.iter_batches(batch_size=8)
                    for row in batch["id"]
                ]
                for _ in range(epochs)
            ]

        def read_one(self):
            self.batches = iter(self.iterator.iter_batches(batch_size=8))
            return next(self.batches)["id"].tolist()

        def read_rest(self):
            return [int(row) for batch in self.batches for row in batch["id"]]

        def leave(self):
            self.batches.close()

        def processes_below(self):
            import psutil

            return psutil.Process().num_threads(), psutil.Process().num_fds()

    actor = syncline.remote(Consumer)
    where = [{"special": 1} if rank == 1 else {"node:__internal_head__": 0.01} for rank in range(n)]
    return [
        actor.options(num_cpus=0, resources=needs).remote(iterator)
        for iterator, needs in zip(dataset.streaming_split(n), where, strict=True)
    ]


def _numbers(rows: int, blocks: int) -> data.Dataset:
    return data.range(rows, override_num_blocks=blocks).map_batches(
        lambda batch: {"id": batch["id"], "x": batch["id"] * 0.5}
    )


def test_ten_epochs_on_two_nodes_deal_every_row_once_and_leave_nothing(engine: RayCluster) -> None:
    consumers = _consumers(_numbers(160, 10), 2)
    for own in zip(
        *syncline.get([each.read.remote(EPOCHS) for each in consumers], timeout=GENEROUS_S),
        strict=True,
    ):
        assert sorted(row for rows in own for row in rows) == list(range(160))
    before = syncline.get([each.processes_below.remote() for each in consumers])
    syncline.get([each.read.remote(EPOCHS) for each in consumers], timeout=GENEROUS_S)
    after = syncline.get([each.processes_below.remote() for each in consumers])
    assert all(
        now < then + EPOCHS
        for pair in zip(after, before, strict=True)
        for now, then in zip(*pair, strict=True)
    )


def test_a_killed_consumer_is_named_to_the_others(engine: RayCluster) -> None:
    consumers = _consumers(_numbers(40_000, 20), 3)
    syncline.get([each.read_one.remote() for each in consumers], timeout=GENEROUS_S)
    pid, _ = syncline.get(consumers[1].place.remote())
    os.kill(pid, signal.SIGKILL)
    for consumer in (consumers[0], consumers[2]):
        with pytest.raises(ConsumerDiedError, match=rf"rank 1 \(pid {pid}\) has died"):
            syncline.get(consumer.read_rest.remote(), timeout=GENEROUS_S)


def test_a_consumer_that_leaves_does_not_hold_up_the_rest(engine: RayCluster) -> None:
    consumers = _consumers(_numbers(4000, 20), 2)
    first = syncline.get([each.read_one.remote() for each in consumers], timeout=GENEROUS_S)
    syncline.get(consumers[0].leave.remote())
    assert (
        len(first[1]) + len(syncline.get(consumers[1].read_rest.remote(), timeout=GENEROUS_S))
        == 2000
    )


def test_consumers_get_the_rows_of_a_node_that_was_lost(engine: RayCluster) -> None:
    engine.add_node("doomed", num_cpus=2)

    def large(batch):
        import numpy as np

        return {"id": batch["id"], "x": np.ones((len(batch["id"]), 20_000))}

    consumers = _consumers(data.range(160, override_num_blocks=20).map_batches(large), 2)
    first = syncline.get([each.read_one.remote() for each in consumers], timeout=GENEROUS_S)
    engine.kill_node("doomed")
    rest = syncline.get([each.read_rest.remote() for each in consumers], timeout=2 * GENEROUS_S)
    assert sorted(row for rows in (*first, *rest) for row in rows) == list(range(160))


TRAINING = """
import time
from syncline import data, train

def rows_of(name):
    return [int(row) for batch in train.get_dataset_shard(name).iter_batches(batch_size=8) for row in batch["id"]]

def until(path):
    while not path.exists():
        time.sleep(0.02)

def trainer(loop, dataset, name="run", failures=0):
    return train.DataParallelTrainer(
        loop,
        datasets={"train": dataset},
        scaling_config=train.ScalingConfig(num_workers=2, placement_strategy="SPREAD"),
        run_config=train.RunConfig(
            name=name, storage_path=str(shared / "runs"), failure_config=train.FailureConfig(max_failures=failures)
        ),
    )
"""


def test_a_killed_training_worker_is_replaced_and_all_read_anew(
    program: Any, tmp_path: Any
) -> None:
    process = program(
        TRAINING
        + """
def loop():
    import signal
    rank = train.get_context().get_world_rank()
    if rank == 1 and not (shared / "died").exists():
        next(iter(train.get_dataset_shard("train").iter_batches(batch_size=8)))
        (shared / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    rows = [rows_of("train") for _ in range(2)]
    train.report({"rows": len(rows[0])})
    return rows

dataset = data.range(160, override_num_blocks=10).map_batches(lambda batch: {"id": batch["id"]})
result = trainer(loop, dataset, failures=1).fit()
print("ROWS", result.metrics["rows"], [len(rows) for rows in result.return_value])
"""
    )
    output, _ = process.communicate(timeout=2 * GENEROUS_S)
    assert (tmp_path / "died").exists()
    assert "ROWS 80 [80, 80]" in output, output


def test_a_run_reads_on_when_its_program_is_gone_unless_the_program_held_the_rows(
    program: Any, tmp_path: Any
) -> None:
    loop = """
def loop():
    (shared / "NAME-began").touch()
    until(shared / "NAME-go")
    name = f"NAME-{train.get_context().get_world_rank()}"
    try:
        text = str(len(rows_of("train")))
    except BaseException as error:
        text = f"{type(error).__name__}: {error}"
    (shared / f".{name}").write_text(text)
    (shared / f".{name}").rename(shared / name)

"""
    for name, dataset, expected in (
        (
            "lazy",
            (
                "data.range(160, override_num_blocks=10).map_batches(lambda batch: {'id':"
                " batch['id']})"
            ),
            "80",
        ),
        ("held", "data.range(400_000, override_num_blocks=4).materialize()", "held in memory"),
    ):
        process = program(
            TRAINING + loop.replace("NAME", name) + f"trainer(loop, {dataset}, name={name!r}).fit()"
        )
        eventually((tmp_path / f"{name}-began").exists, what="the run has begun")
        process.kill()
        process.wait()
        (tmp_path / f"{name}-go").touch()
        told = [
            eventually(partial(_text, tmp_path / f"{name}-{rank}"), what="the rank has read")
            for rank in range(2)
        ]
        assert all(expected in text for text in told), told


def _text(path: Any) -> str | None:
    return path.read_text() if path.exists() else None
