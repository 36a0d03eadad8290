"""Successive programs on a cluster, cancellation, and modules that workers lack."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from syncline.testing import run_program
from syncline.testing.clusters import RayCluster

pytest.importorskip("ray")
pytestmark = [pytest.mark.cluster, pytest.mark.processes]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with RayCluster(num_cpus=2) as cluster:
        yield cluster


@pytest.fixture
def only_here(tmp_path: Path) -> str:
    """A directory with a module that only the program can import."""
    (tmp_path / "only_here.py").write_text(
        "class Thing:\n"
        "    def __init__(self, value=5):\n"
        "        self.value = value\n"
        "    def show(self):\n"
        "        return self.value\n"
        "def show(thing=None):\n"
        "    return 7 if thing is None else thing.value\n"
    )
    return str(tmp_path)


def output(cluster: RayCluster, text: str, *arguments: str) -> str:
    """Run a program on the cluster, check its success, and return its output."""
    with run_program(text, *arguments, environment=cluster.environment()) as program:
        ended = program.wait()
    assert ended.return_code == 0, ended.stderr
    return ended.stdout


MAKE = """
import syncline
syncline.init(namespace="shared")
@syncline.remote
class Counter:
    def __init__(self): self.count = 0
    @syncline.method(num_returns=2)
    def add(self, number): self.count += number; return self.count, "added"
actor = Counter.options(name="counter", lifetime="detached").remote()
Counter.options(name="short-lived").remote()
print(syncline.get(actor.add.remote(3)))
"""

FIND = """
import syncline
syncline.init(namespace="shared")
print(syncline.util.list_named_actors())
actor = syncline.get_actor("counter")
print(syncline.get(actor.add.remote(4)))
syncline.kill(actor)
"""

MISS = """
import syncline
syncline.init(namespace="shared")
try:
    syncline.get_actor("counter")
except ValueError as error:
    print("none:", error)
"""


def test_a_detached_actor_is_found_by_the_next_program(cluster: RayCluster) -> None:
    assert output(cluster, MAKE) == "[3, 'added']\n"
    assert output(cluster, FIND) == "['counter']\n[7, 'added']\n"
    assert "none: no living actor is named 'counter' in the namespace 'shared'" in output(
        cluster, MISS
    )


CANCEL = """
import syncline
syncline.init()
@syncline.remote
def one(): return 1
for _ in range(1000):
    ref = one.remote()
    syncline.get(ref)
    syncline.cancel(ref)
    assert syncline.get(ref) == 1
print("lives")
"""


def test_cancelling_a_task_that_has_just_ended_does_not_end_the_program(
    cluster: RayCluster,
) -> None:
    assert output(cluster, CANCEL) == "lives\n"


USE = """
import sys
sys.path.append(sys.argv[1])
import only_here, syncline
syncline.init(runtime_env=eval(sys.argv[3]), log_to_driver=False)
@syncline.remote
def import_inside():
    import only_here
    return only_here.show()
uses = {
    "function": lambda: syncline.remote(only_here.show).remote(),
    "argument": lambda: syncline.remote(lambda thing: thing.value).remote(only_here.Thing(7)),
    "class": lambda: syncline.remote(only_here.Thing).remote(7).show.remote(),
    "statement": import_inside.remote,
}
try:
    print("got", syncline.get(uses[sys.argv[2]]()))
except syncline.exceptions.RayError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("use", ["function", "argument", "class", "statement"])
def test_a_module_that_workers_lack_is_named_with_the_remedy(
    cluster: RayCluster, only_here: str, use: str
) -> None:
    told = output(cluster, USE, only_here, use, "None")
    for part in (
        "the workers of this cluster cannot import 'only_here'",
        "install it on every node",
        "working_dir",
        "py_modules",
    ):
        assert part in told
    assert "\x1b" not in told


@pytest.mark.parametrize("use", ["function", "class"])
def test_the_remedy_helps(cluster: RayCluster, only_here: str, use: str) -> None:
    assert output(cluster, USE, only_here, use, repr({"working_dir": only_here})) == "got 7\n"


BESIDE = """
import beside, syncline
syncline.init()
print(syncline.get(syncline.remote(beside.show).remote()))
"""


def test_modules_beside_the_program_are_found_where_workers_see_its_directory(
    cluster: RayCluster,
) -> None:
    text = (
        f"from pathlib import Path\nPath('beside.py').write_text('def show(): return 7')\n{BESIDE}"
    )
    assert output(cluster, text) == "7\n"
