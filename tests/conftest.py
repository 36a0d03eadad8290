"""What all tests share: the `processes` marker's reruns, and an environment that does not depend on who runs the suite.

Fixtures for one area live in that area's own conftest.
"""

import os
import sys
from collections.abc import Iterator

import pytest

RERUNS_OF_PROCESS_TESTS = 2
OWN_VARIABLES = "SYNCLINE_"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests with real processes two more chances: a machine that others load may starve a worker past any limit."""
    for item in items:
        if item.get_closest_marker("processes") and not item.get_closest_marker("flaky"):
            item.add_marker(pytest.mark.flaky(reruns=RERUNS_OF_PROCESS_TESTS))


@pytest.fixture(scope="session", autouse=True)
def neutral_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No setting of the person who runs the suite reaches the tests, and no default path leads into their home."""
    patch = pytest.MonkeyPatch()
    for name in [name for name in os.environ if name.startswith(OWN_VARIABLES)]:
        patch.delenv(name)
    patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    # With its metrics on, Ray takes most of a minute to leave a cluster in a process that used another one, gone by now, before.
    patch.setenv("RAY_enable_open_telemetry", "0")
    yield
    patch.undo()


@pytest.fixture(scope="module", autouse=True)
def no_engine_left() -> Iterator[None]:
    """What a module has started ends with it: the first use of a task or a dataset starts an engine, and `init` refuses a second one."""
    yield
    lifecycle = sys.modules.get("syncline.core.lifecycle")
    if lifecycle is not None:
        lifecycle.shutdown()
