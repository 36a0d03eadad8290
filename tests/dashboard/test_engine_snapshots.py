"""Engine snapshots for the cluster page and `syncline status`: local programs, and engines that
cannot be queried.
"""

import os
import time

import pytest

from syncline.core import control
from syncline.core.control_server import EngineHandler
from syncline.core.engine import ActorInfo, ActorListing, TaskCount, TaskInfo, TaskListing
from syncline.dashboard import engine_snapshots
from syncline.dashboard.engine_snapshots import (
    Node,
    engine_snapshot,
    machine_snapshot,
    masked_command,
    resources_in_use,
)
from syncline.dashboard.pages import cluster_page

NODE = {
    "NodeID": "ab" * 16,
    "Alive": True,
    "NodeManagerAddress": "10.0.0.1",
    "NodeManagerHostname": "one",
    "Resources": {
        "CPU": 4.0,
        "memory": 2.0 * 1024**3,
        "node:10.0.0.1": 1.0,
        "node:__internal_head__": 1.0,
        "accelerator_type:H100": 1.0,
    },
    "Labels": {"zone": "north"},
}
ACTOR = ActorInfo(
    actor_id="1",
    class_name="Counter",
    name="<b>bold</b>",
    state="ALIVE",
    pid=7,
    node_id="ab" * 16,
    resources={"CPU": 1.0, "memory": 1024.0**3},
    restarts=2,
    pending_calls=5,
)
RUNNING = TaskInfo(
    task_id="2", name="work", state="RUNNING", pid=8, node_id="ab" * 16, started=100.0
)


class OneEngine:
    """An engine with one node, one actor and four tasks."""

    def nodes(self):
        return [NODE]

    def cluster_resources(self):
        return NODE["Resources"]

    def available_resources(self):
        return {"CPU": 1.0}

    def actors(self, limit):
        return ActorListing(actors=(ACTOR,), total=3)

    def tasks(self, limit):
        counts = (
            TaskCount(name="work", state="QUEUED", count=3),
            TaskCount(name="work", state="RUNNING", count=1),
        )
        return TaskListing(counts=counts, running=(RUNNING,), total=4)


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """Hide all programs except those of the test."""
    monkeypatch.setenv("SYNCLINE_TMPDIR", str(tmp_path))
    control.close()
    yield
    control.close()


def look():
    (program,) = machine_snapshot().programs
    return program


def test_without_programs_nothing_is_found():
    assert machine_snapshot().programs == ()


def test_programs_without_an_engine_are_left_out():
    control.serve("run:/a", lambda *_: None)
    assert machine_snapshot().programs == ()


def test_a_program_is_shown_with_its_engine():
    control.serve(control.ENGINE, EngineHandler(OneEngine()))
    program = look()
    assert program.pid == os.getpid()
    assert program.started < time.time()
    engine = program.engine
    assert engine.nodes == (
        Node(
            node_id="ab" * 16,
            address="10.0.0.1",
            hostname="one",
            alive=True,
            head=True,
            resources={"CPU": 4.0, "memory": 2.0 * 1024**3},
            accelerators=["H100"],
            labels={"zone": "north"},
        ),
    )
    assert engine.resources["CPU"] == {"used": 3.0, "total": 4.0}
    assert engine.actors.actors == (ACTOR,)
    assert engine.tasks.running == (RUNNING,)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (lambda *_: 1 / 0, "reported an error: division by zero"),
        (lambda *_: {"another": "version"}, "another version of syncline"),
        (lambda *_: None, "another version of syncline"),
    ],
)
def test_an_engine_that_cannot_be_read_is_shown_with_the_reason(answer, problem):
    control.serve(control.ENGINE, answer)
    program = look()
    assert program.engine is None
    assert problem in program.problem


def test_a_program_that_does_not_answer_is_shown_so(monkeypatch):
    control.serve(control.ENGINE, lambda *_: time.sleep(60))
    monkeypatch.setattr(engine_snapshots, "LIMIT_S", 0.05)
    assert look().problem.startswith("The program does not answer")


def test_a_program_that_ended_meanwhile_is_left_out(monkeypatch):
    control.serve(control.ENGINE, EngineHandler(OneEngine()))
    found = control.programs()
    control.close()
    monkeypatch.setattr(control, "programs", lambda: found)
    monkeypatch.setattr(engine_snapshots.psutil, "pid_exists", lambda pid: False)
    assert machine_snapshot().programs == ()


def test_more_programs_than_are_asked_are_counted(monkeypatch):
    control.serve(control.ENGINE, EngineHandler(OneEngine()))
    found = control.programs() * 3
    monkeypatch.setattr(control, "programs", lambda: found)
    monkeypatch.setattr(engine_snapshots, "MAX_PROGRAMS", 2)
    machine = machine_snapshot()
    assert (len(machine.programs), machine.others) == (2, 1)


def test_commands_are_shown_without_secrets_and_cut():
    assert (
        masked_command(("python", "train.py", "--api-key=abc", "a b"))
        == "python train.py --api-key=*** 'a b'"
    )
    assert len(masked_command(["x" * 10_000])) < 1000
    assert masked_command(()) == "(unknown)"


def test_bookkeeping_resources_are_left_out_and_the_well_known_come_first():
    total = {
        "slot": 1.0,
        "memory": 8.0,
        "CPU_group_0_ab": 2.0,
        "bundle_group_ab": 1000.0,
        "node:1": 1.0,
        "CPU": 2.0,
    }
    assert resources_in_use(total, {"CPU": 0.5}) == {
        "CPU": {"used": 1.5, "total": 2.0},
        "memory": {"used": 8.0, "total": 8.0},
        "slot": {"used": 1.0, "total": 1.0},
    }


# -- rows


def engine():
    answers = EngineHandler(OneEngine())
    return engine_snapshot(
        {action: answers(action, {}) for action in ("nodes", "resources", "actors", "tasks")}
    )


def test_rows_tell_actors_and_tasks():
    names = cluster_page.node_names(engine().nodes)
    (actor,) = cluster_page.actor_rows(engine().actors, names)
    assert (actor["name"], actor["state"], actor["node"], actor["resources"]) == (
        "<b>bold</b>",
        "alive",
        "one",
        "1 CPU, 1.0 GiB memory",
    )
    (running,) = cluster_page.running_rows(engine().tasks, names, now=190.0)
    assert (running["since"], running["since:text"]) == (90.0, "1 min 30 s")
    assert [
        (row["name"], row["state"], row["count"]) for row in cluster_page.count_rows(engine().tasks)
    ] == [("work", "queued", 3), ("work", "running", 1)]
    assert cluster_page.left_out(1, 3, "actors") == "1 of 3 actors are shown."
    assert cluster_page.left_out(3, 3, "actors") == ""


def test_rows_tell_nodes_and_resources():
    (node,) = cluster_page.node_rows(engine().nodes)
    assert (node["host"], node["state"], node["resources"]) == (
        "one (head)",
        "alive",
        "4 CPU, 2.0 GiB memory",
    )
    cpu, memory = cluster_page.resource_rows(engine().resources)
    assert (cpu["used:text"], cpu["total:text"], cpu["share:text"]) == ("3", "4", "75 %")
    assert memory["total:text"] == "2.0 GiB"
    assert cluster_page.in_use(engine(), "CPU") == "3 of 4"
    assert cluster_page.in_use(engine(), "GPU") == "-"
    assert cluster_page.resource_rows({"slot": {"used": 0.0, "total": 0.0}})[0]["share:text"] == "-"


def test_nodes_on_one_host_are_told_apart():
    twins = [engine_snapshots.parse_node({**NODE, "NodeID": id * 16}) for id in ("ab", "cd")]
    assert list(cluster_page.node_names(twins).values()) == ["one abababab", "one cdcdcdcd"]
