"""Snapshots of the instructions of a controller."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from syncline.train.backend import Worker
from syncline.train.checkpoint import Checkpoint
from syncline.train.console.run_status import RunStatus
from syncline.train.console.snapshot import Phase
from syncline.train.controller import events
from syncline.train.controller.goodput import GoodputMeter
from syncline.train.controller.transitions import State
from syncline.train.workers.messages import Reported, StepTimes


class Run:
    """Stand-in for a controller."""

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        self.now = 1000.0
        self.goodput = GoodputMeter()
        self.status = RunStatus(
            name="vit",
            path="/runs/vit",
            config=config or {},
            goodput=self.goodput,
            clock=lambda: self.now,
        )

    def train(self, attempt: int, *, start: str = "") -> None:
        self.status.instruction_started(
            events.StartGroup(attempt=attempt, world_size=2, first_index=0)
        )
        self.status.attempt_started(
            [worker(rank, node=rank // 2) for rank in range(4)],
            start,
            "http://127.0.0.1:8265/run/0/vit",
        )
        self.status.instruction_started(events.LaunchTraining(attempt=attempt))
        self.goodput.attempt_began(self.now)

    def report(self, rank: int, metrics: dict[str, Any], index: int = 0) -> None:
        self.status.instruction_started(
            events.RecordReport(rank=rank, report=Reported(index=index, metrics=metrics, time=0.0))
        )


def worker(rank: int, *, node: int) -> Worker:
    return Worker(
        rank=rank,
        node_id=f"node-{node}",
        node_ip="10.0.0.1",
        hostname=f"host-{node}",
        pid=1,
        local_rank=rank % 2,
        local_world_size=2,
        node_rank=node,
        gpu_ids=[str(rank % 2)],
    )


def test_snapshot_has_state_of_run() -> None:
    run = Run({"epochs": 4})
    run.train(1)
    run.now += 10
    run.report(
        0, {"epoch": 0, "loss": 0.123456789, "layers": {"first": 1}, "list": [1, 2], "none": None}
    )
    run.report(1, {"epoch": 0, "loss": 9.0})
    run.status.checkpoint_committed(Checkpoint("/runs/vit/checkpoint_000000"), None)
    run.now += 5
    snapshot = run.status.snapshot(State.RUNNING)
    assert (snapshot.phase, snapshot.running_s, snapshot.attempt, snapshot.reports) == (
        Phase.TRAINING,
        15.0,
        1,
        1,
    )
    assert snapshot.metrics == (("epoch", "0"), ("loss", "0.123457"), ("layers/first", "1"))
    assert [node.hostname for node in snapshot.nodes] == ["host-0", "host-1"]
    assert [(node.workers, node.gpu_ids) for node in snapshot.nodes] == [(2, ("0", "1"))] * 2
    assert snapshot.workers == 4
    assert (snapshot.checkpoint, snapshot.checkpoint_age_s, snapshot.best_checkpoint) == (
        "/runs/vit/checkpoint_000000",
        5.0,
        "",
    )
    assert snapshot.page == "http://127.0.0.1:8265/run/0/vit"
    assert snapshot.progress is not None
    assert (snapshot.progress.done, snapshot.progress.left_s) == (1, 25.0)
    assert pickle.loads(pickle.dumps(snapshot)) == snapshot


def test_restarts_and_resizes_are_counted_separately() -> None:
    run = Run()
    run.train(1)
    run.status.instruction_started(events.StopGroup(attempt=1, graceful=False))
    assert run.status.snapshot(State.RESTARTING).nodes == ()
    run.status.instruction_started(
        events.NotifyRestart(failed_attempt=1, cause="", count=1, limit=2)
    )
    run.train(2, start="from a checkpoint")
    run.status.instruction_started(events.NotifyResize(world_size=4, workers=2))
    run.train(3, start="from another")
    snapshot = run.status.snapshot(State.RUNNING)
    assert (snapshot.attempt, snapshot.restarts, snapshot.resizes, snapshot.start) == (
        3,
        1,
        1,
        "from another",
    )


def test_report_rate_covers_last_seconds() -> None:
    run = Run()
    run.train(1)
    rates = []
    for second in range(30):
        rates.append(run.status.snapshot(State.RUNNING).reports_per_s)
        for _ in range(2 if second < 15 else 4):
            run.report(0, {"loss": 1.0})
        run.now += 1
    assert rates[0] is None
    assert rates[14] == pytest.approx(2.0)
    assert rates[-1] == pytest.approx(4.0)


def test_goodput_so_far_includes_waiting_for_restart() -> None:
    run = Run()
    assert run.status.snapshot(State.STARTING).goodput is None
    run.train(1)
    run.now += 50
    run.goodput.record(0, StepTimes(total_s=50, data_s=10))
    so_far = run.status.snapshot(State.RUNNING).goodput
    assert so_far is not None
    assert (so_far.data, so_far.compute) == pytest.approx((0.2, 0.8))
    run.goodput.attempt_ended(run.now, lost=True)
    run.now += 50
    waiting = run.status.snapshot(State.SCHEDULING).goodput
    assert waiting is not None
    assert waiting.restarts == pytest.approx(1.0)


def test_remaining_validations_have_their_own_phase() -> None:
    run = Run()
    run.train(1)
    assert run.status.snapshot(State.FINISHING).phase is Phase.FINISHING
    run.status.instruction_started(events.DrainValidations())
    assert run.status.snapshot(State.FINISHING).phase is Phase.VALIDATING
    assert run.status.snapshot(State.FINISHED).phase is Phase.FINISHED


def test_every_state_has_a_phase() -> None:
    run = Run()
    assert {state for state in State if run.status.snapshot(state).phase.is_end} == {
        state for state in State if state.is_end
    }


def test_later_advances_times_until_the_end() -> None:
    run = Run({"epochs": 4})
    run.train(1)
    run.now += 10
    run.report(0, {"epoch": 0})
    snapshot = run.status.snapshot(State.RUNNING)
    later = snapshot.later(4.0)
    assert later.progress is not None
    assert (later.running_s, later.progress.left_s) == (14.0, 26.0)
    ended = run.status.snapshot(State.FINISHED)
    assert ended.later(4.0) is ended
