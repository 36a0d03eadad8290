"""Processes of trials: who gets the process of a trial that still cleans up."""

import subprocess
import sys
from collections import deque
from typing import Any

import cloudpickle
import pytest

from syncline.tune import registry
from syncline.tune.execution.placement_groups import PlacementGroupFactory
from syncline.tune.registry import WithNames
from syncline.tune.trainable.function_trainable import wrap_function
from syncline.tune.workers import messages
from syncline.tune.workers.pool import CLEAN_UP_S, MODULES, ProcessPool, TrialProcess

ONE_CPU = PlacementGroupFactory([{"CPU": 1}])


class Pool(ProcessPool):
    """A pool whose actors are numbers."""

    def __init__(self) -> None:
        self._reuse = True
        self._isolated = False
        self._waiting = deque()
        self.cleaning_up = {}
        self._clock = lambda: self.now
        self._is_one_machine, self._is_local_mode = True, False
        self._trainable = None  # type: ignore[assignment]
        self.now = 0.0
        self.started = 0
        self.calls: list[tuple[Any, str]] = []

    def _start(self, factory: Any, group: Any) -> Any:
        self.started += 1
        return self.started

    def _run(self, process: TrialProcess, on_outcome: Any, *arguments: Any) -> None:
        self.calls.append((process.actor, type(arguments[0]).__name__))

    def start_trial(self) -> TrialProcess:
        process = self.take(ONE_CPU, None)
        self.start(process, object.__new__(messages.Start), lambda outcome, error: None)
        return process


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Pool:
    made = Pool()
    monkeypatch.setattr(
        "syncline.tune.workers.pool.api.kill", lambda actor: made.calls.append((actor, "kill"))
    )
    return made


def test_a_trial_starts_in_a_process_once_it_has_cleaned_up(processes: Pool) -> None:
    first = processes.start_trial()
    processes.clean_up(first, lambda: None)
    second = processes.start_trial()
    third = processes.start_trial()  # the first process is promised to the second trial
    assert processes.calls == [(1, "Start"), (1, "Stop"), (2, "Start")]
    assert processes.finish(first)
    assert processes.calls[-1] == (1, "Start")
    assert (second.actor, third.actor) == (1, 2)
    assert not processes.finish(first)


def test_a_process_that_takes_too_long_to_clean_up_is_replaced(processes: Pool) -> None:
    first = processes.start_trial()
    processes.clean_up(first, lambda: None)
    second = processes.start_trial()
    processes.now = CLEAN_UP_S
    assert processes.overdue() == [first]
    processes.finish(first)
    assert processes.calls[-2:] == [(1, "kill"), (2, "Start")]
    assert second.actor == 2


@pytest.mark.parametrize("way", ["end", "clean up"])
def test_a_trial_that_ends_before_it_starts_leaves_the_process_alone(
    processes: Pool, way: str
) -> None:
    first = processes.start_trial()
    processes.clean_up(first, lambda: None)
    second = processes.start_trial()
    done: list[bool] = []
    if way == "end":
        processes.end(second)
    else:
        processes.clean_up(second, lambda: done.append(True))
        assert done == [True]
        assert processes.finish(second)
    processes.finish(first)
    assert processes.calls == [(1, "Start"), (1, "Stop")]
    assert processes.start_trial().actor == 1


def test_without_reuse_a_process_ends_after_its_trial(processes: Pool) -> None:
    processes._reuse = False
    first = processes.start_trial()
    processes.clean_up(first, lambda: None)
    assert processes.start_trial().actor == 2
    processes.finish(first)
    assert processes.calls[-1] == (1, "kill")


@pytest.mark.processes
def test_a_new_process_imports_nothing_of_the_library_for_a_trial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The fork server has imported `MODULES` and `trial_runner` before it forks the process."""
    for names in ("_environments", "_parts"):  # other tests register some
        monkeypatch.setattr(registry, names, {})
    program = f"""
import importlib, pickle, sys
for name in (*{MODULES!r}, "syncline.tune.workers.trial_runner"):
    importlib.import_module(name)
before = set(sys.modules)
kind = pickle.loads(bytes.fromhex(sys.argv[1]))
kind({{}})
from syncline import tune
tune.report
print(sorted(name for name in set(sys.modules) - before if name.startswith("syncline")))
"""
    trainable = cloudpickle.dumps(WithNames(wrap_function(lambda config: {"x": 1})))
    ran = subprocess.run(
        [sys.executable, "-c", program, trainable.hex()], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"
