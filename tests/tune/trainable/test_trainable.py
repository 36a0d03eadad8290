"""Class trainable without a search: results, all forms of checkpoints, restore, reset."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from syncline.train.checkpoint import Checkpoint
from syncline.tune.execution.placement_groups import PlacementGroupFactory
from syncline.tune.trainable import Trainable
from syncline.tune.trainable.trainable import TrainingResult
from syncline.tune.trainable.trainable_state import METADATA_FILE, Clock, TrialInfo

AUTOMATIC = {
    "training_iteration",
    "time_this_iter_s",
    "time_total_s",
    "done",
    "trial_id",
    "date",
    "timestamp",
    "pid",
    "hostname",
    "node_ip",
    "config",
    "time_since_restore",
    "iterations_since_restore",
}


class Ticks:
    """Clock that the test advances."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def clock(self) -> Clock:
        return Clock(wall=lambda: self.now, steady=lambda: self.now)


class Counter(Trainable):
    """Trainable that counts and saves in the form that its configuration selects."""

    def setup(self, config: dict[str, Any]) -> None:
        self.value = config.get("start", 0)
        self.loaded: Any = None
        self.cleaned = False

    def step(self) -> dict[str, Any]:
        self.value += 1
        return {"value": self.value, **self.config.get("reports", {})}

    def save_checkpoint(self, checkpoint_dir: str) -> Any:
        form = self.config.get("form")
        if form == "dictionary":
            return {"value": self.value, "lock": None, "function": lambda: 3}
        inner = os.path.join(checkpoint_dir, "inner", "state.txt")
        os.makedirs(os.path.dirname(inner))
        Path(inner).write_text(str(self.value))
        return {
            "directory": checkpoint_dir,
            "path": inner,
            "outside": "/elsewhere/state",
            "number": 3,
        }.get(form)

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.loaded = checkpoint
        if isinstance(checkpoint, dict):
            self.value = checkpoint["value"]
        else:
            path = (
                checkpoint
                if os.path.isfile(checkpoint)
                else os.path.join(checkpoint, "inner", "state.txt")
            )
            self.value = int(Path(path).read_text())

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.value = new_config.get("start", 0)
        return bool(new_config.get("possible", True))

    def cleanup(self) -> None:
        self.cleaned = True


def test_a_result_has_the_keys_that_are_filled_in() -> None:
    result = Counter({"start": 4}).train()
    assert set(result) == AUTOMATIC | {"value"}
    assert (result["value"], result["training_iteration"], result["done"]) == (5, 1, False)
    assert (result["trial_id"], result["config"], result["pid"]) == (
        "default",
        {"start": 4},
        os.getpid(),
    )


def test_time_comes_from_the_given_clock() -> None:
    ticks = Ticks()

    class Slow(Counter):
        def step(self) -> dict[str, Any]:
            ticks.now += 2.5
            return super().step()

    trainable = Slow(clock=ticks.clock())
    trainable.train()
    ticks.now += 100  # time between two steps does not count
    result = trainable.train()
    assert (result["time_this_iter_s"], result["time_total_s"], trainable.time_total_s) == (
        2.5,
        5.0,
        5.0,
    )
    assert result["timestamp"] == 1_105


def test_facts_of_the_trial_come_from_outside() -> None:
    resources = PlacementGroupFactory([{"CPU": 2}])
    facts = TrialInfo(
        trial_id="a1",
        trial_name="Counter_a1",
        trial_dir="/trials/a1",
        experiment_name="search",
        resources=resources,
    )
    trainable = Counter(info=facts)
    assert (trainable.trial_id, trainable.trial_name, trainable.logdir) == (
        "a1",
        "Counter_a1",
        "/trials/a1",
    )
    assert (trainable.experiment_name, trainable.trial_resources) == ("search", resources)
    assert trainable.train()["trial_id"] == "a1"


def test_setup_cannot_change_the_configuration() -> None:
    class Greedy(Counter):
        def setup(self, config: dict[str, Any]) -> None:
            super().setup(config)
            config["inner"].clear()

    assert Greedy({"inner": {"lr": 1}}).get_config() == {"inner": {"lr": 1}}


def test_totals_are_summed_only_where_their_steps_are_reported() -> None:
    trainable = Counter({"reports": {"timesteps_this_iter": 10, "episodes_this_iter": 2}})
    trainable.train()
    result = trainable.train()
    assert (
        result["timesteps_total"],
        result["episodes_total"],
        result["timesteps_since_restore"],
    ) == (20, 4, 20)
    assert "timesteps_total" not in Counter().train()


def test_reported_counters_override_measured_ones() -> None:
    result = Counter(
        {
            "reports": {
                "done": True,
                "training_iteration": 40,
                "time_this_iter_s": 9.0,
                "timestamp": 7,
            }
        }
    ).train()
    assert (
        result["done"],
        result["training_iteration"],
        result["time_this_iter_s"],
        result["timestamp"],
    ) == (True, 40, 9.0, 7)


def test_results_are_plain_values() -> None:
    result = Counter({"reports": {"loss": torch.tensor(0.5), "accuracy": np.float32(0.25)}}).train()
    assert (result["loss"], type(result["loss"]), type(result["accuracy"])) == (0.5, float, float)
    with pytest.raises(ValueError, match=r"'loss' is a torch\.Tensor of shape \(3,\)"):
        Counter({"reports": {"loss": torch.zeros(3)}}).train()


def test_a_step_that_returns_no_dictionary_is_told_so() -> None:
    class Number(Trainable):
        def step(self) -> Any:
            return 3

    with pytest.raises(TypeError, match=r"Number\.step\(\) returned 3, which is no dictionary"):
        Number().train()


def test_methods_that_are_missing_are_named() -> None:
    bare = Trainable()
    with pytest.raises(NotImplementedError, match="has no `step`"):
        bare.train()
    with pytest.raises(NotImplementedError, match="has no `save_checkpoint`"):
        bare.save()


@pytest.mark.parametrize("form", ["nothing", "directory", "path", "dictionary"])
def test_every_form_of_checkpoint_is_restored_after_its_directory_has_moved(
    form: str, tmp_path: Path
) -> None:
    first = Counter({"form": form})
    first.train()
    first.train()
    first.save(tmp_path / "saved")
    moved = (tmp_path / "saved").rename(tmp_path / "moved")
    second = Counter({"form": form})
    second.restore(str(moved))
    assert (second.value, second.iteration) == (2, 2)
    expected = {
        "nothing": str(moved),
        "directory": str(moved),
        "path": str(moved / "inner" / "state.txt"),
    }
    if form == "dictionary":
        assert second.loaded["function"]() == 3
    else:
        assert second.loaded == expected[form]
    result = second.train()
    assert (result["value"], result["training_iteration"], result["iterations_since_restore"]) == (
        3,
        3,
        1,
    )
    assert result["time_total_s"] > first.time_total_s


def test_save_without_a_directory_makes_one_that_restore_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    trainable = Counter({"form": "nothing"})
    trainable.train()
    result = trainable.save()
    assert isinstance(result, TrainingResult)
    assert result.metrics["value"] == 1
    assert os.path.exists(os.path.join(result, METADATA_FILE))
    for given in (result, result.checkpoint, result.checkpoint.path):
        again = Counter()
        again.restore(given)
        assert (again.value, again.iteration) == (1, 1)


def test_counters_of_a_foreign_checkpoint_come_with_the_result(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "state.txt").write_text("8")
    trainable = Counter()
    trainable.restore(
        TrainingResult(
            checkpoint=Checkpoint(tmp_path), metrics={"training_iteration": 8, "time_total_s": 80.0}
        )
    )
    assert (trainable.value, trainable.training_iteration, trainable.time_total_s) == (8, 8, 80.0)


@pytest.mark.parametrize(
    ("form", "error", "message"),
    [("outside", ValueError, "is outside"), ("number", TypeError, "returned a int")],
)
def test_invalid_values_of_save_checkpoint_are_refused(
    form: str, error: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        Counter({"form": form}).save(tmp_path)


def test_restoring_from_nowhere_says_so(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Counter cannot be restored from .*missing"):
        Counter().restore(tmp_path / "missing")


def test_reset_makes_another_trial_of_it() -> None:
    trainable = Counter({"start": 1}, info=TrialInfo(trial_id="a"))
    trainable.train()
    assert trainable.reset({"start": 10}, info=TrialInfo(trial_id="b"))
    result = trainable.train()
    assert (
        result["value"],
        result["training_iteration"],
        result["trial_id"],
        result["config"],
    ) == (11, 1, "b", {"start": 10})
    assert not trainable.reset({"possible": False})


def test_stop_cleans_up() -> None:
    trainable = Counter()
    trainable.stop()
    assert trainable.cleaned


def test_buffered_training_ends_where_a_result_is_due() -> None:
    ticks = Ticks()

    class Ending(Counter):
        def step(self) -> dict[str, Any]:
            ticks.now += 1
            return {**super().step(), "done": self.value == 7}

    trainable = Ending(clock=ticks.clock())
    assert [result["value"] for result in trainable.train_buffered(0)] == [1]
    assert [result["value"] for result in trainable.train_buffered(2.5)] == [2, 3, 4]
    assert [result["value"] for result in trainable.train_buffered(100, max_buffer_length=1)] == [5]
    assert [result["value"] for result in trainable.train_buffered(100)] == [6, 7]


def test_the_directory_of_a_trainable_alone_is_made_when_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYNCLINE_STORAGE_PATH", str(tmp_path / "results"))
    trainable = Counter()
    assert not (tmp_path / "results").exists()
    directory = trainable.logdir
    assert Path(directory).parent == tmp_path / "results"
    assert trainable.logdir == directory


def test_models_are_exported_by_what_the_subclass_defines() -> None:
    class Exporting(Counter):
        def _export_model(self, export_formats: Any, export_dir: str) -> dict[str, str]:
            return {name: f"{export_dir}/{name}" for name in export_formats}

    assert Exporting().export_model("onnx", "/models") == {"onnx": "/models/onnx"}


def test_a_configuration_with_what_cannot_be_copied_fails_in_setup_only() -> None:
    with pytest.raises(TypeError, match="lock"):
        Counter({"lock": threading.Lock()})
