"""Workers take over the state of the program: here its parts, then real programs."""

from __future__ import annotations

import importlib
import logging
import logging.handlers
import os
import pickle
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from syncline.core import program_state
from syncline.core.program_state import ProgramWatch
from syncline.testing.clusters import RayCluster


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("job")  # not that of a library, whose name begins like its module's
    yield logger
    logger.handlers.clear()
    logger.filters.clear()
    logger.setLevel(logging.NOTSET)
    logger.propagate, logger.disabled = True, False


def received(logger: logging.Logger) -> list[str]:
    """Configure the logger from its own state, as a worker does; return what was left out."""
    left_out: list[str] = []
    state = program_state._logger_state(logger, left_out)
    logger.handlers.clear()
    logger.filters.clear()
    logger.setLevel(logging.NOTSET)
    logger.propagate, logger.disabled = True, False
    return left_out + program_state._configure(state)


def test_a_console_handler_writes_to_the_current_stream_of_the_worker(
    logger: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = logging.StreamHandler(sys.__stderr__)
    handler.setFormatter(logging.Formatter("mine %(message)s"))
    handler.setLevel(logging.WARNING)
    logger.addHandler(handler)
    logger.propagate = False
    assert received(logger) == []
    assert not logger.propagate
    stream = StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    logger.info("dropped")
    logger.warning("kept")
    assert stream.getvalue() == "mine kept\n"


@pytest.mark.parametrize(
    "make",
    [
        lambda path: logging.FileHandler(path, mode="w"),
        lambda path: logging.handlers.RotatingFileHandler(path, maxBytes=10, backupCount=3),
    ],
)
def test_a_log_file_is_appended_to_also_after_it_was_moved_aside(
    logger: logging.Logger, tmp_path: Path, make: Any
) -> None:
    path = tmp_path / "log"
    path.write_text("")
    logger.addHandler(make(path))
    logger.warning("of the program")
    assert received(logger) == []
    logger.warning("of a worker")
    path.rename(tmp_path / "moved")
    logger.warning("after the move")
    assert (tmp_path / "moved").read_text() == "of the program\nof a worker\n"
    assert path.read_text() == "after the move\n"


class Quiet(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return "noise" not in record.getMessage()


def test_filters_and_own_handlers_arrive(logger: logging.Logger) -> None:
    logger.addFilter(Quiet())
    logger.addHandler(logging.NullHandler())
    logger.setLevel(5)
    assert received(logger) == []
    assert [type(each) for each in (*logger.filters, *logger.handlers)] == [
        Quiet,
        logging.NullHandler,
    ]
    assert logger.level == 5


class Connected(logging.Handler):
    def __reduce__(self) -> str:
        raise TypeError("sockets cannot be pickled")


def test_a_handler_that_cannot_be_copied_is_named(logger: logging.Logger) -> None:
    logger.addHandler(Connected())
    (problem,) = received(logger)
    assert "<Connected (NOTSET)> of the logger 'job'" in problem
    assert "sockets cannot be pickled" in problem
    assert logger.handlers == []


def test_a_handler_that_writes_to_memory_stays_behind(logger: logging.Logger) -> None:
    logger.addHandler(logging.StreamHandler(StringIO()))
    assert received(logger) == []
    assert logger.handlers == []


def test_a_filter_for_a_module_that_is_not_loaded_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "some_tool.py").write_text("class ToolWarning(UserWarning): pass")
    monkeypatch.syspath_prepend(tmp_path)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", category=importlib.import_module("some_tool").ToolWarning)
        state = program_state.capture()
    monkeypatch.delitem(sys.modules, "some_tool")
    with warnings.catch_warnings():
        program_state._filter_warnings(state)
        assert "some_tool" not in sys.modules
        assert len(warnings.filters) == len(state.warning_filters) - 1
        category = importlib.import_module("some_tool").ToolWarning
        program_state._filter_warnings(state)
        with pytest.raises(category):
            warnings.warn("a warning of the tool", category, stacklevel=1)


def test_a_worker_does_not_compile_the_pattern_of_a_filter_again() -> None:
    pattern = re.compile("size changed", re.IGNORECASE)  # as a module has that the worker imported
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "size changed")
        state = pickle.loads(pickle.dumps(program_state.capture()))
    with warnings.catch_warnings():
        program_state._filter_warnings(state)
        assert any(message is pattern for _, message, *_ in warnings.filters)


def test_a_state_is_sent_only_when_it_changes(
    logger: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = ProgramWatch()
    assert watch.changed() is not None
    assert watch.changed() is None
    monkeypatch.setattr(sys, "argv", ["train.py", "--lr", "0.5"])
    changed = watch.changed()
    assert changed is not None
    assert pickle.loads(changed).arguments == ("train.py", "--lr", "0.5")
    logger.setLevel(logging.ERROR)
    assert watch.changed() is not None
    assert watch.changed() is None


SCRIPT = """
import argparse, logging, multiprocessing, os, pickle, sys, warnings
import syncline

logging.basicConfig(level=logging.INFO, format="[mine] %(message)s", stream=sys.stdout)
warnings.filterwarnings("ignore", message="hidden")

class Point:
    def __init__(self, x): self.x = x

def double(point): return Point(2 * point.x)

@syncline.remote
def task():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    logging.getLogger("job").info("lr %s", parser.parse_args().lr)
    with warnings.catch_warnings(record=True) as caught:
        warnings.warn("hidden"); warnings.warn("shown")
    assert [str(each.message) for each in caught] == ["shown"], caught
    assert type(pickle.loads(pickle.dumps(Point(1)))) is Point
    for method in ("spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            assert [p.x for p in pool.map(double, [Point(3)])] == [6]
    return sys.argv, sys.path[0], Point

if __name__ == "__main__":
    syncline.init(ADDRESS)
    argv, first, cls = syncline.get(task.remote())
    assert cls is Point
    assert argv == sys.argv, argv
    assert os.path.exists(first), first
    print("done")
"""


def run_script(directory: Path, script: str, *command: str) -> subprocess.CompletedProcess[str]:
    (directory / "script.py").write_text(script)
    return subprocess.run(
        [sys.executable, *command],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


@pytest.mark.processes
@pytest.mark.parametrize("command", [("script.py",), ("-m", "script")])
@pytest.mark.parametrize(
    "uses_cluster", [False, pytest.param(True, marks=pytest.mark.cluster, id="cluster")]
)
def test_a_worker_is_like_the_program(
    tmp_path: Path, uses_cluster: bool, command: tuple[str, ...]
) -> None:
    with RayCluster(num_cpus=1) if uses_cluster else nullcontext() as cluster:
        script = SCRIPT.replace("ADDRESS", repr(cluster.address) if cluster is not None else "")
        done = run_script(tmp_path, script, *command, "--lr", "0.5")
    assert done.stdout.endswith("done\n"), done.stderr
    assert "[mine] lr 0.5" in done.stdout


UNGUARDED = """
import multiprocessing, syncline

def half(x): return x / 2

@syncline.remote
def task():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.map_async(half, [1]).get(5)

syncline.get(task.remote())
"""


@pytest.mark.processes
def test_a_script_without_a_guard_does_not_run_again_in_children_of_workers(tmp_path: Path) -> None:
    done = run_script(tmp_path, UNGUARDED, "script.py")
    assert "Put the top-level calls under `if __name__ == '__main__':`" in done.stderr
    assert "TimeoutError" in done.stderr
