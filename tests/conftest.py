"""What all tests share: the `processes` marker's reruns, an environment that does not depend on who
runs the suite, and small engines.

Fixtures for one area live in that area's own conftest.
"""

import gc
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from syncline.core.embedded import processes

RERUNS_OF_PROCESS_TESTS = 2
OWN_VARIABLES = "SYNCLINE_"
TOPICS = frozenset(
    {
        "accelerate",
        "data",
        "lightning",
        "pandas",
        "pyarrow",
        "torch",
        "train",
        "transformers",
        "tune",
    }
)
"""Parts of the names of modules that workers get from the template; the other modules cost
little.
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests with real processes two more chances: a machine that others load may starve a
    worker past any limit.
    """
    for item in items:
        if item.get_closest_marker("processes") and not item.get_closest_marker("flaky"):
            item.add_marker(pytest.mark.flaky(reruns=RERUNS_OF_PROCESS_TESTS))


def pytest_collection_finish() -> None:
    """Modules and tests are no garbage: many tests collect that, and would look at them, for half a
    second, each time.
    """
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def neutral_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No setting of the person who runs the suite reaches the tests, and no default path leads into
    their home.
    """
    patch = pytest.MonkeyPatch()
    for name in [name for name in os.environ if name.startswith(OWN_VARIABLES)]:
        patch.delenv(name)
    patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    # With its metrics on, Ray takes most of a minute to leave a cluster in a process that used
    # another one, gone by now, before.
    patch.setenv("RAY_enable_open_telemetry", "0")
    yield
    patch.undo()


@pytest.fixture(scope="module", autouse=True)
def no_engine_left() -> Iterator[None]:
    """What a module has started ends with it: the first use of a task or a dataset starts an
    engine, and `init` refuses a second one.
    """
    yield
    lifecycle = sys.modules.get("syncline.core.lifecycle")
    if lifecycle is not None:
        lifecycle.shutdown()


@pytest.fixture(scope="module", autouse=True)
def template_of_the_module(request: pytest.FixtureRequest) -> Iterator[None]:
    """Engines start as if the module's file ran alone: their templates import what it speaks of,
    not all that the suite has imported.

    That would be torch and every library of frameworks, some seconds of work for each of the many
    engines.
    """
    spoken_of = _topics_of(request.path)
    with pytest.MonkeyPatch.context() as patch:
        modules = tuple(
            name
            for name in processes.HEAVY_MODULES
            if TOPICS.intersection(name.split(".")) <= spoken_of
        )
        patch.setattr(processes, "HEAVY_MODULES", modules)
        yield


def _topics_of(path: Path) -> set[str]:
    """Words of the lines that import something, anywhere in the file, and of its place."""
    lines = re.findall(r"^\s*(?:import|from) .*", path.read_text(), re.MULTILINE)
    return set(re.findall(r"\w+", " ".join([str(path.relative_to(Path(__file__).parent)), *lines])))
