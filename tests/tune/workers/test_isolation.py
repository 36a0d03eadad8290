"""State of a worker process: which parts are restored after a trial, and which end the process."""

from __future__ import annotations

import builtins
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from syncline.tune.workers import isolation
from syncline.tune.workers.isolation import ProcessState

MODULE = """
import functools
import numpy as np

count = 0
table = {"a": [1, 2]}
array = np.zeros(3)
generator = np.random.default_rng(0)

class Model:
    seen = []

def default(x, cache={}):
    return cache.setdefault(x, x)

@functools.lru_cache
def cached(x):
    return x
"""


@pytest.fixture
def helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module of the program."""
    (tmp_path / "trial_helper.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    # The tests are modules of the program, too, with state that cannot be compared.
    loaded = isolation._program_modules()
    monkeypatch.setattr(
        isolation,
        "_program_modules",
        lambda: {
            name: module
            for name, module in sys.modules.items()
            if name not in loaded and isolation._is_program(name, module)
        },
    )
    yield __import__("trial_helper")
    sys.modules.pop("trial_helper", None)


@pytest.fixture
def state(helper: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ProcessState:
    # The time limit of a test uses SIGALRM.
    monkeypatch.setattr(isolation, "_SIGNALS", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT])
    return ProcessState(lambda: None)


def test_an_unchanged_process_may_run_another_trial(state: ProcessState) -> None:
    assert state.restore() == ""


def test_environment_directory_and_settings_are_restored(
    state: ProcessState, tmp_path: Path
) -> None:
    here, path, level = os.getcwd(), list(sys.path), logging.getLogger().level
    os.environ["TRIAL_ADDED"] = "1"
    home = os.environ.pop("HOME", None)
    os.chdir(tmp_path)
    mask = os.umask(0o077)
    sys.path.append("/nowhere")
    logging.getLogger().setLevel(1)
    warnings.simplefilter("error")
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + 100)
    assert state.restore() == ""
    assert "TRIAL_ADDED" not in os.environ
    assert os.environ.get("HOME") == home
    assert (os.getcwd(), sys.path, logging.getLogger().level) == (here, path, level)
    assert os.umask(mask) == mask
    assert sys.getrecursionlimit() == limit
    warnings.warn("not an error", stacklevel=1)


def test_each_trial_gets_new_random_numbers(state: ProcessState) -> None:
    random.seed(0)
    np.random.seed(0)
    fixed = random.random(), np.random.rand()
    random.seed(0)
    np.random.seed(0)
    assert state.restore() == ""
    assert (random.random(), np.random.rand()) != fixed


def test_a_seed_that_a_module_sets_on_import_holds_for_each_trial(helper: ModuleType) -> None:
    state = ProcessState(lambda: random.seed(5))
    first = random.random()
    random.random()
    assert state.restore() == ""
    assert random.random() == first


@pytest.mark.parametrize(
    "change",
    [
        lambda module: setattr(module, "count", 1),
        lambda module: setattr(module, "added", 1),
        lambda module: module.table["a"].append(3),
        lambda module: module.array.__setitem__(0, 1),
        lambda module: module.generator.random(),
        lambda module: module.Model.seen.append(1),
        lambda module: setattr(module.Model, "other", 1),
        lambda module: module.default(7),
        lambda module: setattr(module, "cached", lambda x: x),
    ],
    ids=["value", "name", "list", "array", "generator", "class", "attribute", "default", "patch"],
)
def test_a_changed_module_of_the_program_makes_the_process_unusable(
    state: ProcessState, helper: ModuleType, change: Callable[[ModuleType], object]
) -> None:
    change(helper)
    assert state.restore() == "it changed the module 'trial_helper'"


def test_caches_of_functions_are_emptied(state: ProcessState, helper: ModuleType) -> None:
    helper.cached(1)
    assert state.restore() == ""
    assert helper.cached.cache_info().currsize == 0


def test_modules_with_a_state_that_cannot_be_compared_are_not_shared(helper: ModuleType) -> None:
    vars(helper)["stream"] = (number for number in range(3))
    assert "cannot be compared" in ProcessState(lambda: None).restore()


def test_a_module_that_a_trial_imports_is_named(state: ProcessState, tmp_path: Path) -> None:
    (tmp_path / "trial_other.py").write_text("x = 1\n")
    __import__("trial_other")
    try:
        assert state.restore() == f"{isolation.IMPORTED}trial_other"
    finally:
        sys.modules.pop("trial_other")


def test_a_program_beside_the_library_belongs_to_the_program() -> None:
    library = Path(isolation.__file__).parents[2]
    assert not isolation._is_program_file(str(library / "tune" / "tuner.py"))
    assert isolation._is_program_file(str(library.with_name("syncline_models") / "net.py"))


def test_a_changed_built_in_name_is_found(
    state: ProcessState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builtins, "print", lambda *values: None)
    assert state.restore() == "it changed the built-in name 'print'"


def test_a_changed_signal_handler_is_found(state: ProcessState) -> None:
    before = signal.signal(signal.SIGUSR2, lambda number, frame: None)
    try:
        assert state.restore() == "it changed the handler of SIGUSR2"
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert state.restore() == ""


def test_a_thread_that_still_runs_is_found(state: ProcessState) -> None:
    end = threading.Event()
    thread = threading.Thread(target=end.wait, name="left over")
    thread.start()
    try:
        assert state.restore() == "its thread 'left over' still runs"
    finally:
        end.set()
        thread.join()
    assert state.restore() == ""


def test_an_open_file_is_found(state: ProcessState, tmp_path: Path) -> None:
    file = open(tmp_path / "log.txt", "w")  # noqa: SIM115
    try:
        assert state.restore() == f"it left {str(tmp_path / 'log.txt')!r} open"
    finally:
        file.close()
    assert state.restore() == ""


def test_a_child_process_is_found(state: ProcessState) -> None:
    had_children, state._has_children = state._has_children, False  # of earlier tests
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert child.stdin is not None
    try:
        assert state.restore() == "its child process still runs"
    finally:
        child.stdin.close()
        child.wait()
    assert had_children or state.restore() == ""


def test_a_process_that_grew_is_replaced(
    state: ProcessState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation, "MEMORY_LIMIT_BYTES", -1 << 50)
    assert state.restore().startswith("the process grew by")


def test_a_look_at_the_own_time_on_another_thread_is_no_open_file(state: ProcessState) -> None:
    with open(f"/proc/self/task/{os.getpid()}/schedstat"):
        assert state.restore() == ""
    with os.scandir("/proc/self/task") as tasks:
        next(tasks)
        assert state.restore() == ""
