"""Nested dictionaries, waiting for a GPU, checks of trainables, the trainable for tests."""

import logging
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import syncline
from syncline import tune
from syncline.tune import utils
from syncline.tune.trainable import Trainable
from syncline.tune.tune_config import TuneConfig
from syncline.tune.utils.mock_trainable import (
    MOCK_ERROR_KEY,
    MOCK_TRAINABLE_NAME,
    MyTrainableClass,
    register_mock_trainable,
)

NESTED = {"a": {"b": [1, {"c": 2}], "empty": {}}, "d": 3}


def test_dictionaries_become_flat_and_nested_again() -> None:
    assert utils.flatten_dict(NESTED) == {"a/b": [1, {"c": 2}], "d": 3}
    assert utils.flatten_dict(NESTED, flatten_list=True) == {"a/b/0": 1, "a/b/1/c": 2, "d": 3}
    assert utils.flatten_dict({"a": {"b": {"c": 1}}}, delimiter=".") == {"a.b.c": 1}
    assert utils.unflatten_dict({"a.b.c": 1, "d": 2}, ".") == {"a": {"b": {"c": 1}}, "d": 2}
    with pytest.raises(ValueError, match="'b/c' contains '/'"):
        utils.flatten_dict({"a": {"b/c": 1}}, prevent_delimiter=True)
    with pytest.raises(TypeError, match="rename one of the two keys"):
        utils.unflatten_dict({"a": 1, "a/b": 2})


def test_values_are_found_by_flat_keys() -> None:
    assert utils.unflattened_lookup("a/b/1/c", NESTED) == 2
    assert utils.unflattened_lookup("a/b", {"a/b": 5}) == 5
    assert utils.unflattened_lookup("a/x", NESTED, default=7) == 7
    for missing in ("a/x", "a/b/9", "d/e"):
        with pytest.raises(KeyError):
            utils.unflattened_lookup(missing, NESTED)


def test_dictionaries_are_merged() -> None:
    before = {"a": {"b": 1, "type": "x"}, "c": 1}
    assert utils.merge_dicts(before, {"a": {"d": 2}}) == {
        "a": {"b": 1, "type": "x", "d": 2},
        "c": 1,
    }
    assert before == {"a": {"b": 1, "type": "x"}, "c": 1}
    changed = utils.deep_update(
        utils.merge_dicts(before, {}), {"a": {"type": "y"}}, override_all_if_type_changes=["a"]
    )
    assert changed["a"] == {"type": "y"}
    with pytest.raises(Exception, match="unknown key 'z'"):
        utils.deep_update(dict(before), {"z": 1})


def test_slow_operations_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    times = iter([0.0, 2.0, 2.0, 2.1])
    with caplog.at_level(logging.WARNING, "syncline"):
        with utils.warn_if_slow("save", clock=lambda: next(times)):
            pass
        assert "`save` took 2.000 s" in caplog.text
        caplog.clear()
        with utils.warn_if_slow("save", clock=lambda: next(times)):
            pass
        assert not caplog.records


class NVML(SimpleNamespace):
    """Two GPUs, whose used memory falls from look to look."""

    class NVMLError(Exception):
        pass

    def __init__(self, *used: float) -> None:
        super().__init__(used=list(used))

    def nvmlInit(self) -> None: ...
    def nvmlShutdown(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index >= 2:
            raise self.NVMLError("not found")
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:
        return {"GPU-a": 1}[uuid]

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(used=self.used.pop(0), total=1.0)


def test_a_gpu_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    def wait(*used: float, **options: Any) -> bool:
        monkeypatch.setitem(sys.modules, "pynvml", NVML(*used))
        return utils.wait_for_gpu(sleep=waits.append, **options)

    assert wait(0.5, 0.2, 0.005, gpu_id="1", delay_s=3)
    assert waits == [3, 3]
    assert wait(0.05, gpu_id="GPU-a", target_util=0.1)
    with pytest.raises(RuntimeError, match=r"50\.0% of the memory"):
        wait(0.5, 0.5, gpu_id=0, retry=2)
    with pytest.raises(ValueError, match="gpu_id=5 is none of the 2 GPUs"):
        wait(gpu_id=5)
    monkeypatch.setattr("syncline.core.api.get_gpu_ids", list)
    with pytest.raises(RuntimeError, match="this worker has no GPU"):
        wait()


def test_the_trainable_for_tests_has_a_known_curve(tmp_path: Any) -> None:
    trainable = MyTrainableClass({"width": 2, "height": 10, MOCK_ERROR_KEY: True})
    assert trainable.train()["episode_reward_mean"] == pytest.approx(4.62117, abs=1e-4)
    with pytest.raises(RuntimeError, match="step 2 fails"):
        trainable.train()
    trainable.save_checkpoint(str(tmp_path))
    again = MyTrainableClass({"width": 2, MOCK_ERROR_KEY: True})
    again.load_checkpoint(str(tmp_path))
    assert again.train()["episode_reward_mean"] == pytest.approx(0.76159, abs=1e-4)


def test_names_of_modules() -> None:
    assert TuneConfig is tune.TuneConfig
    with pytest.raises(ImportError, match="joblib"):
        __import__("syncline.tune.sklearn")


class Forgetful(MyTrainableClass):
    """Does not continue from its checkpoint."""

    def restore(self, checkpoint: Any) -> None:
        pass


@pytest.fixture
def two_cpus() -> Iterator[None]:
    syncline.init(num_cpus=2)
    yield
    syncline.shutdown()


@pytest.mark.processes
@pytest.mark.usefixtures("two_cpus")
def test_trainables_are_checked_in_two_processes(tmp_path: Any) -> None:
    assert utils.validate_save_restore(MyTrainableClass)
    with pytest.raises(AssertionError, match="continues with iteration 1 instead of 4"):
        utils.validate_save_restore(Forgetful)
    register_mock_trainable()
    (trial,) = tune.run(
        MOCK_TRAINABLE_NAME, stop={"training_iteration": 2}, storage_path=str(tmp_path), verbose=0
    ).trials
    assert trial.last_result["training_iteration"] == 2


class Counting(Trainable):
    """Counts calls of `reset_config`."""

    def setup(self, config: dict[str, Any]) -> None:
        self.resets = 0

    def step(self) -> dict[str, Any]:
        return {"resets": self.resets, "done": True}

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.resets += 1
        return True


@pytest.mark.processes
@pytest.mark.usefixtures("two_cpus")
def test_one_process_serves_all_trials_that_run_one_after_the_other(tmp_path: Any) -> None:
    trials = tune.run(
        Counting,
        num_samples=4,
        reuse_actors=True,
        max_concurrent_trials=1,
        storage_path=str(tmp_path),
        verbose=0,
    ).trials
    assert sorted(trial.last_result["resets"] for trial in trials) == [0, 1, 2, 3]
