"""`fit()` from end to end with real workers: groups, restarts, deaths, interrupts."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import syncline
import syncline.data
from syncline import train
from syncline.testing import run_program
from syncline.testing.programs import is_alive
from syncline.train.storage.context import StorageContext

pytestmark = pytest.mark.processes

PATIENCE_S = 60.0


@pytest.fixture(scope="module", autouse=True)
def engine() -> Iterator[None]:
    syncline.init(num_cpus=4, num_gpus=4)
    yield
    syncline.shutdown()


def fit(
    function: Any,
    storage: Path,
    *,
    workers: int | tuple[int, int] = 2,
    config: dict[str, Any] | None = None,
    **options: Any,
) -> Any:
    run_options = {
        key: options.pop(key)
        for key in ("failure_config", "checkpoint_config", "callbacks")
        if key in options
    }
    scaling = options.pop("scaling_config", None) or train.ScalingConfig(num_workers=workers)
    run_config = train.RunConfig(name="run", storage_path=str(storage), **run_options)
    return train.DataParallelTrainer(
        function, train_loop_config=config, scaling_config=scaling, run_config=run_config, **options
    ).fit()


def report(metrics: dict[str, Any], **options: Any) -> None:
    rank = train.get_context().get_world_rank()
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, f"rank{rank}").write_text(json.dumps(metrics))
        train.report(metrics, checkpoint=train.Checkpoint.from_directory(directory), **options)


def test_parts_that_a_failed_attempt_left_behind_are_deleted(tmp_path: Path) -> None:
    run = tmp_path / "run"

    def loop() -> None:
        rank = train.get_context().get_world_rank()
        if rank == 1 and train.get_checkpoint() is None:
            report({"step": 0})
            deadline = time.monotonic() + PATIENCE_S
            while not list(run.glob(".tmp-*000001*")) and time.monotonic() < deadline:
                time.sleep(0.01)
            raise RuntimeError("while rank 0 waits with its part of the next checkpoint")
        report({"step": 0})
        report({"step": 1})

    result = fit(loop, tmp_path, failure_config=train.FailureConfig(max_failures=1))
    assert result.metrics["step"] == 1
    assert not list(run.glob(".tmp-*"))


def test_an_error_of_one_rank_does_not_lose_a_checkpoint_that_others_still_write(
    tmp_path: Path,
) -> None:
    def loop() -> None:
        rank = train.get_context().get_world_rank()
        if train.get_checkpoint() is not None:
            return
        if rank == 0:
            sync = StorageContext.sync

            def slow_sync(self: StorageContext, name: str) -> None:
                time.sleep(2.0)  # four times as long as messages of survivors are awaited
                sync(self, name)

            StorageContext.sync = slow_sync  # type: ignore[method-assign]
        report({"step": 0})
        if rank == 1:
            raise RuntimeError("while rank 0 waits for its disk")
        time.sleep(PATIENCE_S)

    result = fit(loop, tmp_path, failure_config=train.FailureConfig(max_failures=1))
    assert sorted(os.listdir(result.checkpoint.path)) == [".resume", "rank0", "rank1"]


def test_ranks_report_together_and_their_files_merge(tmp_path: Path) -> None:
    def loop() -> list[int]:
        context = train.get_context()
        rank, size = context.get_world_rank(), context.get_world_size()
        report({"rank": rank}, checkpoint_dir_name=f"by-{rank}")
        checkpoint = train.get_checkpoint()
        assert checkpoint is not None
        assert sorted(os.listdir(checkpoint.path)) == [
            ".resume",
            *(f"rank{r}" for r in range(size)),
        ]
        told = train.collective.broadcast_from_rank_zero(("told", rank))
        assert told == ("told", 0)
        train.collective.barrier()
        return [
            rank,
            size,
            context.get_local_rank(),
            context.get_local_world_size(),
            context.get_node_rank(),
        ]

    result = fit(loop, tmp_path, workers=3)
    assert result.return_value == [0, 3, 0, 3, 0]
    assert result.metrics == {"rank": 0}
    assert Path(result.checkpoint.path).name == "by-0"


def test_every_worker_sees_the_gpus_of_its_node(tmp_path: Path) -> None:
    def loop() -> None:
        visible = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
        mine = train.session.get_session().gpu_ids
        train.report({"visible": visible, "mine": list(mine)})

    seen = fit(
        loop, tmp_path, scaling_config=train.ScalingConfig(num_workers=2, use_gpu=True)
    ).metrics
    assert len(seen["visible"]) == 2
    assert len(seen["mine"]) == 1
    assert seen["mine"][0] == seen["visible"][0]


VISIBLE = """
import os
import syncline
from syncline import train

syncline.init(num_cpus=2, num_gpus=2)

def loop():
    train.report({"visible": os.environ["CUDA_VISIBLE_DEVICES"]})

trainer = train.DataParallelTrainer(
    loop, scaling_config=train.ScalingConfig(num_workers=1, use_gpu=True)
)
print(trainer.fit().metrics["visible"])
"""


@pytest.mark.parametrize(("value", "visible"), [("0", "0"), ("1", "0,1")])
def test_workers_keep_the_visible_gpus_if_the_user_says_so(
    tmp_path: Path, value: str, visible: str
) -> None:
    variables = {
        "CUDA_VISIBLE_DEVICES": "0,1",
        "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": value,
        "SYNCLINE_STORAGE_PATH": str(tmp_path),
    }
    with run_program(VISIBLE, environment=variables) as program:
        assert program.wait().check().stdout.splitlines()[-1] == visible


def test_a_killed_worker_is_named_with_its_cause_and_the_error_can_be_pickled(
    tmp_path: Path,
) -> None:
    def loop() -> None:
        if train.get_context().get_world_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        train.collective.barrier()

    with pytest.raises(
        train.WorkerGroupError,
        match=r"Rank 1 was killed by SIGKILL \(.*grown to \d+ MB.*It was process \d+ on host",
    ) as raised:
        fit(loop, tmp_path)
    assert list(raised.value.worker_failures) == [1]
    assert "The run has ended after 1 failure" in str(raised.value)
    assert "max_restarts" not in str(pickle.loads(pickle.dumps(raised.value)))


@pytest.mark.promise
def test_training_goes_on_from_the_latest_checkpoint_after_a_kill(tmp_path: Path) -> None:
    def loop(config: dict[str, Any]) -> int:
        context = train.get_context()
        checkpoint = train.get_checkpoint()
        start = (
            0
            if checkpoint is None
            else json.loads(Path(checkpoint.path, "rank0").read_text())["step"] + 1
        )
        for step in range(start, 5):
            report({"step": step})
            train.get_checkpoint()  # waits until it is registered
            train.collective.barrier()
            if step == 2 and context.get_world_rank() == 1 and start == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            train.collective.barrier()
        return start

    result = fit(loop, tmp_path, config={}, failure_config=train.FailureConfig(max_failures=1))
    assert result.return_value == 3
    assert [r["metrics"]["step"] for r in result.reports] == [0, 1, 2, 3, 4]


@pytest.mark.promise
def test_an_error_of_one_rank_ends_the_others_which_wait_for_it(tmp_path: Path) -> None:
    def loop() -> None:
        if train.get_context().get_world_rank() == 1:
            raise LookupError("the first")
        train.collective.barrier()

    with pytest.raises(train.WorkerGroupError, match="the first") as raised:
        fit(loop, tmp_path)
    assert isinstance(raised.value.worker_failures[1], LookupError)


@pytest.mark.promise
def test_a_rank_that_does_not_report_is_named_with_its_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYNCLINE_TRAIN_COLLECTIVE_TIMEOUT_S", "1")

    def asleep_at_the_wheel() -> None:
        time.sleep(1_000)

    def loop() -> None:
        if train.get_context().get_world_rank() == 1:
            asleep_at_the_wheel()
        report({})
        train.get_checkpoint()

    with pytest.raises(train.WorkerGroupError, match="asleep_at_the_wheel") as raised:
        fit(loop, tmp_path)
    assert list(raised.value.worker_failures) == [1]


def test_a_rank_that_returns_without_its_report_is_named_at_once(tmp_path: Path) -> None:
    def loop() -> None:
        if train.get_context().get_world_rank() == 0:
            report({})
            train.get_checkpoint()

    with pytest.raises(
        train.WorkerGroupError,
        match="Rank 1 returned from its training function without report number 0",
    ):
        fit(loop, tmp_path)


@pytest.mark.promise
def test_more_than_there_is_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError,
        match=r"`num_workers=8` needs 8 CPUs \(1 per worker\) but there are 4.*"
        r"lower `num_workers` to 4",
    ):
        fit(lambda: None, tmp_path, workers=8)
    with pytest.raises(ValueError, match=r"needs 5 GPUs"):
        fit(lambda: None, tmp_path, scaling_config=train.ScalingConfig(num_workers=5, use_gpu=True))


def test_an_elastic_group_takes_what_there_is(tmp_path: Path) -> None:
    assert (
        fit(lambda: train.get_context().get_world_size(), tmp_path, workers=(1, 16)).return_value
        == 4
    )


def test_what_cannot_be_pickled_is_named(tmp_path: Path) -> None:
    guard = threading.Lock()
    with pytest.raises(TypeError, match="guard"):
        fit(lambda: guard.acquire(), tmp_path)


def test_what_ranks_print_is_kept_in_the_run_directory(tmp_path: Path) -> None:
    fit(lambda: print("from rank", train.get_context().get_world_rank()), tmp_path)
    for rank in (0, 1):
        assert (tmp_path / "run" / "logs" / f"rank-{rank}.log").read_text() == f"from rank {rank}\n"


class Counting(train.UserCallback):
    """Counts rank 0's reports, and those that came out of order."""

    def __init__(self) -> None:
        self.reports = self.out_of_order = 0

    def on_report(self, run_context: Any, step: int, metrics: Any) -> None:
        self.out_of_order += metrics["index"] != self.reports
        self.reports += 1


@pytest.mark.long
def test_a_hundred_thousand_quick_reports_of_two_ranks_arrive(tmp_path: Path) -> None:
    def loop() -> None:
        for index in range(100_000):
            train.report({"index": index})

    callback = Counting()
    result = fit(loop, tmp_path, callbacks=[callback])
    assert (callback.reports, callback.out_of_order) == (100_000, 0)
    indices = [report["metrics"]["index"] for report in result.reports]
    assert indices[:30_000] == list(range(30_000))  # later ones are thinned, but for the last
    assert indices == sorted(set(indices))
    assert result.metrics == {"index": 99_999}


def test_the_resources_are_free_after_success_and_after_failure(tmp_path: Path) -> None:
    def broken() -> None:
        raise ValueError

    fit(lambda: None, tmp_path)
    with pytest.raises(train.WorkerGroupError):
        fit(broken, tmp_path / "broken")
    deadline = time.monotonic() + PATIENCE_S
    while syncline.available_resources().get("CPU") != 4 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert syncline.available_resources()["CPU"] == 4


PROGRAM = textwrap.dedent(
    """
    import os, sys, time
    from syncline import train

    def loop():
        directory = sys.argv[1] if len(sys.argv) > 1 else DIRECTORY
        open(os.path.join(directory, f"pid-{os.getpid()}"), "w").close()
        time.sleep(1000)

    DIRECTORY = sys.argv[1]
    try:
        train.DataParallelTrainer(
            loop,
            scaling_config=train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}),
            run_config=train.RunConfig(name="run", storage_path=os.path.join(DIRECTORY, "storage")),
        ).fit()
    except KeyboardInterrupt:
        print("interrupted as it should be")
        raise
    """
)


@pytest.mark.promise
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_no_worker_outlives_a_program_that_is_interrupted_or_killed(
    tmp_path: Path, stop: signal.Signals
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, str(tmp_path / "program.py"), str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as program:
        pids = _wait_for_pids(tmp_path, 2)
        program.send_signal(stop)
        output, _ = program.communicate(timeout=PATIENCE_S)
    assert ("interrupted as it should be" in output) == (stop is signal.SIGINT)
    deadline = time.monotonic() + PATIENCE_S
    while any(is_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [pid for pid in pids if is_alive(pid)]


def _wait_for_pids(directory: Path, count: int) -> list[int]:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        pids = [int(path.name.removeprefix("pid-")) for path in directory.glob("pid-*")]
        if len(pids) == count:
            return pids
        time.sleep(0.05)
    raise AssertionError(f"only {len(pids)} of {count} workers have started")


def test_every_rank_gets_all_checkpoints_whoever_reported_them(tmp_path: Path) -> None:
    def loop() -> list[int]:
        rank = train.get_context().get_world_rank()
        counts = []
        for step in range(2):
            if rank == 0:
                report({"step": step})
            else:
                train.report({"step": step})
            counts.append(len(train.get_all_reported_checkpoints()))
        assert counts == [1, 2], (rank, counts)
        return counts

    assert fit(loop, tmp_path).return_value == [1, 2]


def test_validations_continue_while_training_restarts(tmp_path: Path) -> None:
    started = tmp_path / "started"

    def validate(checkpoint: train.Checkpoint) -> dict[str, Any]:
        started.touch()
        deadline = time.monotonic() + PATIENCE_S
        while not (tmp_path / "restarted").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return {"validated": checkpoint.path[-1]}

    def loop() -> Any:
        if train.get_checkpoint() is None:
            report({"step": 0}, validation=True)
            report({"step": 1}, validation=True)
            deadline = time.monotonic() + PATIENCE_S
            while not started.exists():
                assert time.monotonic() < deadline
                time.sleep(0.01)
            raise RuntimeError("once")
        (tmp_path / "restarted").touch()
        return [each.metrics for each in train.get_all_reported_checkpoints()]

    result = fit(
        loop,
        tmp_path,
        workers=1,
        failure_config=train.FailureConfig(max_failures=1),
        validation_config=train.ValidationConfig(fn=validate),
    )
    assert result.return_value == [{"step": 0, "validated": "0"}, {"step": 1, "validated": "1"}]


def test_workers_have_the_programs_settings_of_datasets(tmp_path: Path) -> None:
    def loop() -> int | None:
        return syncline.data.DataContext.get_current().target_max_block_size

    context = syncline.data.DataContext.get_current()
    with syncline.data.DataContext.current(context.copy()) as changed:
        changed.target_max_block_size = 12_345
        assert fit(loop, tmp_path).return_value == 12_345


def test_returned_tensors_have_no_graph(tmp_path: Path) -> None:
    def loop() -> Any:
        weights = torch.ones(2, requires_grad=True)
        return {"loss": (weights * 2).sum(), "all": [weights, (3, weights * 2)]}

    value = fit(loop, tmp_path).return_value
    assert float(value["loss"]) == 4
    tensors = [value["loss"], value["all"][0], value["all"][1][1]]
    assert not any(tensor.requires_grad for tensor in tensors)
    assert value["all"][1][0] == 3


def test_a_failed_run_keeps_its_last_checkpoint_and_metrics(tmp_path: Path) -> None:
    def loop() -> None:
        report({"step": 0})
        train.report({"step": 1})
        raise RuntimeError("after the last report")

    with pytest.raises(train.TrainingFailedError):
        fit(loop, tmp_path)
    result = train.Result.from_path(tmp_path / "run")
    assert result.metrics == {"step": 1}
    assert result.checkpoint is not None
    assert result.checkpoint.path.endswith("checkpoint_000000")
    assert "after the last report" in str(result.error)


def test_a_validation_that_takes_too_long_is_given_up_and_training_is_not(tmp_path: Path) -> None:
    def validate(checkpoint: train.Checkpoint, seconds: float) -> dict[str, Any]:
        time.sleep(seconds)
        return {"validated": len(os.listdir(checkpoint.path))}

    def loop() -> list[str]:
        report(
            {"step": 0},
            validation=train.ValidationTaskConfig(fn_kwargs={"seconds": 1_000}, timeout_s=0.5),
        )
        report({"step": 1}, validation=True)
        return [reported.status.value for reported in train.get_all_reported_checkpoints()]

    config = train.ValidationConfig(
        fn=validate, task_config=train.ValidationTaskConfig(fn_kwargs={"seconds": 0})
    )
    result = fit(loop, tmp_path, validation_config=config)
    assert result.return_value == ["VALIDATION_TIMEOUT", "VALIDATED"]
    assert result.best_checkpoints[-1][1] == {
        "step": 1,
        "validated": 3,
    }  # the states of the readers among them
