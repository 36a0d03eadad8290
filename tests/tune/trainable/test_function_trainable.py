"""Function as a trainable: one iteration per report, end, arguments of `report`, and sessions of
`syncline.train` inside.
"""

from __future__ import annotations

import functools
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from syncline import train
from syncline.air import session as air_session
from syncline.testing.waiting import eventually
from syncline.train.checkpoint import Checkpoint, CheckpointUploadMode
from syncline.train.session import current_session
from syncline.train.torch import TorchTrainer
from syncline.tune import context
from syncline.tune.execution.placement_groups import PlacementGroupFactory
from syncline.tune.trainable import FunctionTrainable, wrap_function
from syncline.tune.trainable.session import Reported
from syncline.tune.trainable.trainable import TrainingResult
from syncline.tune.trainable.trainable_state import TrialInfo


def reported(trainable: FunctionTrainable) -> Reported:
    """Return the last message, a report."""
    assert isinstance(trainable.message, Reported)
    return trainable.message


def results(
    function: Any, config: dict[str, Any] | None = None, limit: int = 20
) -> list[dict[str, Any]]:
    """Return all results of a function except the final repetition."""
    trainable = wrap_function(function)(config or {})
    collected: list[dict[str, Any]] = []
    while len(collected) < limit:
        result = trainable.train()
        if trainable.ended:
            break
        collected.append(result)
    trainable.stop()
    return collected


@pytest.fixture(autouse=True)
def no_session_left() -> Iterator[None]:
    yield
    assert current_session() is None


def test_one_report_is_one_iteration_and_the_function_waits_at_it() -> None:
    steps: list[int] = []

    def function(config: dict[str, Any]) -> None:
        for step in range(3):
            steps.append(step)
            context.report({"step": step * config["scale"]})

    trainable = wrap_function(function)({"scale": 10})
    assert steps == []
    first = trainable.train()
    assert (first["step"], first["training_iteration"], first["config"], steps) == (
        0,
        1,
        {"scale": 10},
        [0],
    )
    second = trainable.train()
    assert (second["step"], second["training_iteration"], steps) == (10, 2, [0, 1])
    assert not trainable.ended
    trainable.train()
    last = trainable.train()
    assert trainable.ended
    assert (last["step"], last["training_iteration"], last["done"]) == (20, 3, True)
    with pytest.raises(RuntimeError, match="has already returned"):
        trainable.train()


def test_a_function_that_never_reports_has_the_facts_only() -> None:
    trainable = wrap_function(lambda config: None)({})
    result = trainable.train()
    assert trainable.ended
    assert result["done"]
    assert {"trial_id", "pid", "hostname", "config", "date"} <= set(result)
    assert result["training_iteration"] == 0


@pytest.mark.parametrize(
    ("value", "expected"),
    [({"loss": 0.5}, {"loss": 0.5}), (0.5, {"_metric": 0.5}), (0, {"_metric": 0})],
)
def test_a_returned_value_is_a_report(value: Any, expected: dict[str, Any]) -> None:
    (result,) = results(lambda config: value)
    assert expected.items() <= result.items()


def test_yielded_values_are_reports() -> None:
    def function(config: dict[str, Any]) -> Iterator[Any]:
        for step in range(3):
            yield {"step": step} if step else 7

    assert [result.get("step", result.get("_metric")) for result in results(function)] == [7, 1, 2]


def test_a_generator_is_closed_when_the_trial_stops() -> None:
    closed = threading.Event()

    def function(config: dict[str, Any]) -> Iterator[Any]:
        try:
            while True:
                yield 1
        finally:
            closed.set()

    trainable = wrap_function(function)({})
    trainable.train()
    trainable.stop()
    assert closed.wait(30)


def test_a_value_that_is_no_result_is_refused() -> None:
    with pytest.raises(ValueError, match="returned or yielded a str"):
        results(lambda config: "model")


def test_an_error_comes_out_of_train_with_the_functions_frames_last() -> None:
    def broken(config: dict[str, Any]) -> None:
        context.report({"x": 1})
        raise KeyError("lr")

    trainable = wrap_function(broken)({})
    trainable.train()
    with pytest.raises(KeyError, match="lr") as caught:
        trainable.train()
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "broken"
    assert trainable.ended


def test_several_reports_are_returned_together_and_an_error_after_them_by_the_next_call() -> None:
    def broken(config: dict[str, Any]) -> None:
        for step in range(3):
            context.report({"step": step})
        raise KeyError("lr")

    trainable = wrap_function(broken)({})
    together = trainable.train_buffered(1e6)
    assert [result["step"] for result in together] == [0, 1, 2]
    assert [result["training_iteration"] for result in together] == [1, 2, 3]
    assert not trainable.ended
    with pytest.raises(KeyError, match="lr"):
        trainable.train_buffered(1e6)
    assert trainable.ended


def test_reports_that_need_a_decision_end_the_ones_returned_together(tmp_path: Path) -> None:
    steps: list[int] = []

    def function(config: dict[str, Any]) -> None:
        for step in range(8):
            steps.append(step)
            wishes = {"done": step == 2, "should_checkpoint": step == 4}
            checkpoint = Checkpoint(tmp_path) if step == 6 else None
            context.report({"step": step, **wishes}, checkpoint=checkpoint)

    trainable = wrap_function(function)({})
    calls = [trainable.train_buffered(1e6) for _ in range(3)]
    assert [[result["step"] for result in call] for call in calls] == [[0, 1, 2], [3, 4], [5, 6]]
    assert reported(trainable).checkpoint == Checkpoint(tmp_path)
    assert steps[-1] == 6
    last = trainable.train_buffered(1e6)
    assert [(result["step"], result["done"]) for result in last] == [(7, False), (7, True)]
    assert trainable.ended


def test_no_more_reports_are_returned_together_than_asked_for() -> None:
    trainable = wrap_function(lambda config: iter_steps())({})
    assert [result["step"] for result in trainable.train_buffered(1e6, 2)] == [0, 1]
    assert [result["step"] for result in trainable.train_buffered(0.0)] == [2]
    trainable.stop()


def iter_steps() -> Iterator[dict[str, int]]:
    yield from ({"step": step} for step in range(9))


def test_leaving_by_sys_exit_is_an_error() -> None:
    def function(config: dict[str, Any]) -> None:
        raise SystemExit(3)

    with pytest.raises(RuntimeError, match=r"called `sys\.exit\(3\)`"):
        results(function)


def test_stop_unwinds_the_function_at_its_report() -> None:
    unwound = threading.Event()

    def function(config: dict[str, Any]) -> None:
        try:
            while True:
                try:
                    context.report({"x": 1})
                except Exception:  # what programs write around one step does not keep a trial alive
                    continue
        finally:
            unwound.set()

    trainable = wrap_function(function)({})
    trainable.train()
    trainable.stop()
    assert unwound.wait(30)


def test_stop_before_the_start_is_allowed() -> None:
    wrap_function(lambda config: None)({}).stop()


@pytest.mark.parametrize(
    ("function", "remedy"),
    [
        (lambda: None, "add a parameter"),
        (lambda config, reporter: None, r"call `tune\.report\(metrics\)`"),
        (lambda config, checkpoint_dir: None, r"call `tune\.get_checkpoint\(\)`"),
        (lambda config, data: None, "with_parameters"),
    ],
)
def test_signatures_that_cannot_be_trials_are_refused_with_a_remedy(
    function: Any, remedy: str
) -> None:
    with pytest.raises(ValueError, match=remedy):
        wrap_function(function)


def test_values_that_are_not_callable_are_refused() -> None:
    with pytest.raises(TypeError, match="cannot be trained"):
        wrap_function(3)


def test_a_checkpoint_directory_that_nobody_fills_is_warned_of() -> None:
    def function(config: dict[str, Any], checkpoint_dir: str | None = None) -> None: ...

    with pytest.warns(UserWarning, match="`checkpoint_dir` is no longer passed"):
        wrap_function(function)


def test_names_of_wrapped_functions() -> None:
    def train_mnist(config: dict[str, Any], data: int = 0) -> None: ...

    class Objective:
        def __call__(self, config: dict[str, Any]) -> None: ...

    assert wrap_function(train_mnist).__name__ == "train_mnist"
    assert wrap_function(functools.partial(train_mnist, data=1)).__name__ == "train_mnist"
    assert wrap_function(lambda config: None).__name__ == "lambda"
    assert wrap_function(Objective()).__name__ == "Objective"
    assert wrap_function(train_mnist, name="other").__name__ == "other"


def test_a_reported_checkpoint_is_there_for_that_result_only(tmp_path: Path) -> None:
    def function(config: dict[str, Any]) -> None:
        context.report({"x": 1}, checkpoint=Checkpoint.from_directory(tmp_path))
        context.report({"x": 2})

    trainable = wrap_function(function)({})
    assert trainable.train()["x"] == 1
    assert reported(trainable).checkpoint == Checkpoint(tmp_path)
    assert not reported(trainable).in_place
    assert trainable.save().checkpoint == Checkpoint(tmp_path)
    trainable.train()
    assert reported(trainable).checkpoint is None
    assert trainable.session.latest == Checkpoint(tmp_path)
    trainable.stop()


def test_the_function_goes_on_from_what_it_is_given(tmp_path: Path) -> None:
    seen: list[Checkpoint | None] = []

    def function(config: dict[str, Any]) -> None:
        seen.append(context.get_checkpoint())
        context.report({"x": 1}, checkpoint=Checkpoint(tmp_path / "reported"))
        seen.append(context.get_checkpoint())

    trainable = wrap_function(function)({})
    trainable.restore(
        TrainingResult(checkpoint=Checkpoint(tmp_path / "start"), metrics={"training_iteration": 4})
    )
    assert trainable.train()["training_iteration"] == 5
    trainable.session.latest = Checkpoint(tmp_path / "kept")  # where the search has copied it to
    trainable.train()
    assert seen == [Checkpoint(tmp_path / "start"), Checkpoint(tmp_path / "kept")]


def test_saving_a_function_that_has_no_checkpoint_says_why(tmp_path: Path) -> None:
    trainable = wrap_function(lambda config: None)({})
    with pytest.raises(RuntimeError, match="has reported no checkpoint"):
        trainable.save()
    with pytest.raises(ValueError, match="a function saves when"):
        trainable.save(tmp_path)


def test_a_function_becomes_another_trial_where_the_first_call_has_ended() -> None:
    def function(config: dict[str, Any]) -> None:
        while True:
            context.report({"x": config["x"], "id": context.get_context().get_trial_id()})

    trainable = wrap_function(function)({"x": 1}, info=TrialInfo(trial_id="a"))
    trainable.train()
    assert trainable.reset({"x": 2}, info=TrialInfo(trial_id="b"))
    result = trainable.train()
    assert (result["x"], result["id"], result["training_iteration"]) == (2, "b", 1)
    trainable.stop()


def test_a_function_that_is_busy_cannot_become_another_trial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("syncline.tune.trainable.function_trainable.RESET_LIMIT_S", 0.05)
    release = threading.Event()

    def function(config: dict[str, Any]) -> None:
        try:
            context.report({"x": 1})
        finally:
            release.wait(60)

    trainable = wrap_function(function)({})
    trainable.train()
    assert not trainable.reset({})
    release.set()


def test_the_function_may_change_its_configuration() -> None:
    def function(config: dict[str, Any]) -> None:
        config.pop("lr")
        context.report({"x": 1})

    assert results(function, {"lr": 0.1})[0]["config"] == {"lr": 0.1}


def test_older_forms_of_report() -> None:
    def function(config: dict[str, Any]) -> None:
        context.report(x=1, y=2)
        context.report({"x": 2}, y=3)
        context.report(0.5)
        context.report()

    reported = results(function)
    assert [(result.get("x"), result.get("y"), result.get("_metric")) for result in reported] == [
        (1, 2, None),
        (2, 3, None),
        (None, None, 0.5),
        (None, None, None),
    ]


def test_metrics_that_cannot_be_kept_are_refused_at_the_report() -> None:
    def function(config: dict[str, Any]) -> None:
        context.report({"loss": torch.zeros(1)})

    with pytest.raises(ValueError, match=r"Report `loss\.item\(\)` instead"):
        results(function)
    with pytest.raises(TypeError, match="a str is no Checkpoint"):
        results(lambda config: context.report({"x": 1}, checkpoint="/models"))
    with pytest.raises(TypeError, match="metrics must be a dictionary, not a list"):
        results(lambda config: context.report([1]))


def test_the_functions_of_train_work_in_a_trial(tmp_path: Path) -> None:
    source = tmp_path / "asynchronous"
    source.mkdir()

    def function(config: dict[str, Any]) -> None:
        facts = train.get_context()
        train.report(
            {
                "name": facts.get_experiment_name(),
                "size": facts.get_world_size(),
                "rank": facts.get_world_rank(),
            }
        )
        air_session.report({"x": 1}, checkpoint=Checkpoint(tmp_path))
        train.report({"same": train.get_checkpoint() == Checkpoint(tmp_path)})
        train.report(
            {"x": 2}, Checkpoint(source), checkpoint_upload_mode=CheckpointUploadMode.ASYNC
        )
        train.report(
            {"gone": not source.exists()},
            Checkpoint(tmp_path),
            checkpoint_upload_mode=CheckpointUploadMode.NO_UPLOAD,
        )

    trainable = wrap_function(function)({}, info=TrialInfo(experiment_name="search"))
    first = trainable.train()
    assert (first["name"], first["size"], first["rank"]) == ("search", 1, 0)
    trainable.train()
    assert trainable.train()["same"]
    trainable.train()
    assert source.exists()  # the search copies now
    assert trainable.train()["gone"]
    assert reported(trainable).in_place
    trainable.stop()


def test_functions_for_workers_of_trainers_are_refused() -> None:
    with pytest.raises(RuntimeError, match="a trial has no shards"):
        results(lambda config: train.get_dataset_shard("train"))
    with pytest.raises(ValueError, match="checkpoint_dir_name"):
        results(lambda config: train.report({"x": 1}, checkpoint_dir_name="mine"))


def test_a_trainer_may_run_in_the_trials_own_process() -> None:
    def loop() -> None:
        train.report({"loss": 0.25})
        context.report({"loss": 0.125})  # inside the inner run, it is the inner run that hears

    def function(config: dict[str, Any]) -> None:
        result = TorchTrainer(loop, scaling_config=train.ScalingConfig(num_workers=0)).fit()
        context.report({"inner": result.metrics["loss"]})

    assert [result["inner"] for result in results(function)] == [0.125]


def test_a_trainer_inside_a_training_function_is_still_refused() -> None:
    def fit(function: Any) -> Any:
        return TorchTrainer(function, scaling_config=train.ScalingConfig(num_workers=0)).fit()

    with pytest.raises(RuntimeError, match="inside a training function"):
        fit(lambda: fit(lambda: None))


def test_trials_that_take_turns_in_one_process_keep_their_sessions() -> None:
    def function(config: dict[str, Any]) -> None:
        while True:
            context.report({"id": context.get_context().get_trial_id()})

    kind = wrap_function(function)
    trainables = [kind({}, info=TrialInfo(trial_id=trial_id)) for trial_id in "abc"]
    for _ in range(3):
        assert [trainable.train()["id"] for trainable in trainables] == ["a", "b", "c"]
    for trainable in trainables:
        trainable.stop()
    assert current_session() is None


FORKING = """
import os
from syncline.tune import context
from syncline.tune.trainable import wrap_function

def function(config):
    read, write = os.pipe()
    if os.fork() == 0:
        try:
            context.report({"x": 1})
        except RuntimeError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    os.wait()
    context.report({"said": os.read(read, 1000).decode()})

print(wrap_function(function)({}).train()["said"])
"""


def test_a_process_that_the_trial_has_forked_cannot_report() -> None:
    # A process of its own: forking one that has run other tests, with threads of libraries in it,
    # is not safe.
    done = subprocess.run(
        [sys.executable, "-c", FORKING], capture_output=True, text=True, timeout=60, check=True
    )
    assert "a process forked by the trial" in done.stdout


def test_the_thread_ends_with_the_trial() -> None:
    def function(config: dict[str, Any]) -> None:
        while True:
            context.report({"x": 1})

    before = set(threading.enumerate())
    trainable = wrap_function(function)({})
    trainable.train()
    trainable.stop()
    eventually(lambda: set(threading.enumerate()) <= before)


def test_resources_of_the_function_are_the_class_s_request() -> None:
    def function(config: dict[str, Any]) -> None: ...

    assert wrap_function(function).default_resource_request({}) is None
    function._resources = lambda config: {"cpu": config["cpus"]}  # type: ignore[attr-defined]
    assert wrap_function(function).default_resource_request({"cpus": 3}) == PlacementGroupFactory(
        [{"CPU": 3}]
    )
    function._resources = 3  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="resources 3 have an unknown type"):
        wrap_function(function).default_resource_request({})


def test_it_is_a_trainable_class() -> None:
    assert issubclass(wrap_function(lambda config: None), FunctionTrainable)
