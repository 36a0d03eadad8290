"""What a trainer refuses before anything starts, and local mode."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

import syncline.train as train
from syncline import tune
from syncline.train.trainer import takes_config


def bare() -> None: ...
def one(config: dict[str, Any]) -> None: ...
def optional(config: dict[str, Any] | None = None) -> None: ...
def two(config: dict[str, Any], other: int) -> None: ...
def more_with_defaults(config: dict[str, Any], other: int = 1) -> None: ...
def keyword(*, config: dict[str, Any]) -> None: ...


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (bare, False),
        (one, True),
        (optional, True),
        (more_with_defaults, True),
        (functools.partial(two, other=1), True),
    ],
)
def test_the_configuration_goes_to_functions_that_take_it(function: Any, expected: bool) -> None:
    assert takes_config(function) is expected


@pytest.mark.parametrize("function", [two, keyword])
def test_a_function_that_needs_more_is_refused_with_the_remedy(function: Any) -> None:
    with pytest.raises(ValueError, match=r"Put everything into `train_loop_config`"):
        train.DataParallelTrainer(function)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("scaling_config", {"num_workers": 2}),
        ("run_config", "name"),
        ("train_loop_config", [1]),
        ("backend_config", object()),
        ("resume_from_checkpoint", "/path"),
        ("metadata", 1),
        ("validation_config", print),
    ],
)
def test_an_argument_of_the_wrong_kind_is_named(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"`{name}` is a"):
        train.DataParallelTrainer(one, **{name: value})


def test_something_that_cannot_be_called_is_refused() -> None:
    with pytest.raises(ValueError, match="must be a function"):
        train.DataParallelTrainer(3)


@pytest.mark.parametrize(
    "call",
    [
        lambda: train.report({"a": 1}),
        train.get_checkpoint,
        train.get_context,
        train.get_all_reported_checkpoints,
        train.get_dataset_shard,
        train.get_preemption_info,
        train.collective.barrier,
        lambda: train.collective.broadcast_from_rank_zero(1),
    ],
)
def test_worker_functions_outside_a_worker_say_where_they_belong(call: Any) -> None:
    with pytest.raises(RuntimeError, match="cannot be used outside a training function"):
        call()


def local(function: Any, **options: Any) -> train.Result:
    return train.DataParallelTrainer(
        function, scaling_config=train.ScalingConfig(num_workers=0), **options
    ).fit()


def test_local_mode_runs_here_and_keeps_nothing(tmp_path: Path) -> None:
    def loop(config: dict[str, Any]) -> str:
        context = train.get_context()
        assert (context.get_world_size(), context.get_world_rank(), context.get_local_rank()) == (
            1,
            0,
            0,
        )
        assert train.get_checkpoint() is None
        for step in range(config["steps"]):
            train.report({"step": step}, checkpoint=train.Checkpoint(str(tmp_path)))
        assert train.get_checkpoint() == train.Checkpoint(str(tmp_path))
        assert train.collective.broadcast_from_rank_zero("x") == "x"
        return "done"

    storage = tmp_path / "storage"
    result = local(
        loop, train_loop_config={"steps": 3}, run_config=train.RunConfig(storage_path=str(storage))
    )
    assert result.metrics == {"step": 2}
    assert result.return_value == "done"
    assert result.checkpoint == train.Checkpoint(str(tmp_path))
    assert result.metrics_dataframe is not None
    assert list(result.metrics_dataframe["step"]) == [0, 1, 2]
    assert not storage.exists()


def test_local_mode_raises_what_the_function_raises_and_ends_its_session() -> None:
    def loop() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        local(loop)
    with pytest.raises(RuntimeError, match="outside a training function"):
        train.get_context()


def test_local_mode_takes_its_ranks_from_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "1",
    }.items():
        monkeypatch.setenv(name, value)

    def loop() -> list[int]:
        context = train.get_context()
        return [
            context.get_world_rank(),
            context.get_world_size(),
            context.get_local_rank(),
            context.get_node_rank(),
        ]

    assert local(loop).return_value == [3, 4, 1, 1]


def test_a_program_that_torchrun_starts_several_times_does_not_train_several_times(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    run_config = train.RunConfig(storage_path=str(tmp_path))
    trainer = train.DataParallelTrainer(lambda: None, run_config=run_config)
    with pytest.raises(
        RuntimeError, match=r"started this program 2 times \(this is rank 1\).*num_workers=0"
    ):
        trainer.fit()
    with pytest.raises(RuntimeError, match="2 times a search"):
        tune.Tuner(trainer, run_config=tune.RunConfig(storage_path=str(tmp_path))).fit()
    assert list(tmp_path.iterdir()) == []
    assert local(lambda: 7).return_value == 7


def test_local_mode_has_no_storage_and_says_so() -> None:
    with pytest.raises(RuntimeError, match="num_workers=1"):
        local(lambda: train.get_context().get_storage())


def test_one_process_holds_one_training_function() -> None:
    with pytest.raises(RuntimeError, match="inside a training function"):
        local(lambda: local(bare))


def test_a_large_broadcast_is_warned_about() -> None:
    with pytest.warns(UserWarning, match="meant for less than 1000"):
        local(lambda: train.collective.broadcast_from_rank_zero("x" * 2000))


def test_restore_says_how_a_run_continues() -> None:
    from syncline.train.data_parallel_trainer import DataParallelTrainer

    assert DataParallelTrainer is train.DataParallelTrainer
    for method in (DataParallelTrainer.restore, DataParallelTrainer.can_restore):
        with pytest.raises(DeprecationWarning, match=r"the same `RunConfig\(name=…, storage"):
            method("/some/path")
