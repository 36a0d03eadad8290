"""Shared by all tests: a neutral environment, small engines, and the limit on flaky marks.

Fixtures of one area are in that area's own conftest.
"""

import gc
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from syncline.core.embedded import worker_processes as processes

MAX_FLAKY_TESTS = 10
OWN_VARIABLES = "SYNCLINE_"
KEPT_VARIABLES = frozenset({"SYNCLINE_PORTABLE"})
"""Own variables that a test run chooses for all of its processes."""
TOPICS = frozenset(
    {
        "accelerate",
        "data",
        "fastapi",
        "lightning",
        "pandas",
        "pyarrow",
        "serve",
        "torch",
        "train",
        "transformers",
        "tune",
    }
)
"""Parts of module names that workers inherit from the template process; other modules are cheap."""


def pytest_configure() -> None:
    """Let programs of tests receive Ctrl-C: in the background of a shell they would ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse more than a handful of tests that may be run again, and marks without a reason."""
    marks = {item.nodeid: mark for item in items if (mark := item.get_closest_marker("flaky"))}
    without_reason = [name for name, mark in marks.items() if not mark.kwargs.get("reason")]
    if len(marks) > MAX_FLAKY_TESTS or without_reason:
        raise pytest.UsageError(
            f"{len(marks)} tests are marked flaky, of which {without_reason} give no reason. "
            f"At most {MAX_FLAKY_TESTS} may be: fix the test or the product, or delete the test."
        )


def pytest_collection_finish() -> None:
    """Freeze modules and tests: each garbage collection would look at them for half a second."""
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def neutral_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Hide the user's settings and home directory from the tests."""
    patch = pytest.MonkeyPatch()
    for name in [name for name in os.environ if name.startswith(OWN_VARIABLES)]:
        if name not in KEPT_VARIABLES:
            patch.delenv(name)
    patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    # Programs of other test processes would be reported to compete for the machine.
    patch.setenv("SYNCLINE_TMPDIR", str(tmp_path_factory.mktemp("programs")))
    # With metrics on, Ray takes most of a minute to leave a cluster if the process used another
    # cluster before.
    patch.setenv("RAY_enable_open_telemetry", "0")
    yield
    patch.undo()


@pytest.fixture(scope="module", autouse=True)
def no_engine_left() -> Iterator[None]:
    """Shut down the engine that a module's tests started, because `init` refuses a second one."""
    yield
    lifecycle = sys.modules.get("syncline.core.lifecycle")
    if lifecycle is not None:
        lifecycle.shutdown()


@pytest.fixture(scope="module", autouse=True)
def template_of_the_module(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let template processes import only the heavy modules that the test file itself uses.

    Otherwise each engine would import torch and every framework that the suite has loaded.
    """
    topics = _topics_of(request.path)
    with pytest.MonkeyPatch.context() as patch:
        modules = tuple(
            name
            for name in processes.HEAVY_MODULES
            if TOPICS.intersection(name.split(".")) <= topics
        )
        patch.setattr(processes, "HEAVY_MODULES", modules)
        yield


def _topics_of(path: Path) -> set[str]:
    """Return the words of a file's import lines and of its path."""
    lines = re.findall(r"^\s*(?:import|from) .*", path.read_text(), re.MULTILINE)
    return set(re.findall(r"\w+", " ".join([str(path.relative_to(Path(__file__).parent)), *lines])))
