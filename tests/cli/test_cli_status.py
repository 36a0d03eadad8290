"""`status` and `nodes` without a cluster: what they show of nodes and resources, and how `nodes`
waits.
"""

import json
from contextlib import contextmanager

import pytest

from syncline.cli import engines, status
from syncline.cli.output import CommandError
from syncline.core import api
from syncline.core.engine import ActorListing, TaskListing
from syncline.dashboard.engine_snapshots import EngineSnapshot, MachineSnapshot, ProgramSnapshot


def node(number, *, alive=True, head=False, **resources):
    return {
        "NodeID": f"{number:02d}" * 20,
        "NodeManagerAddress": f"10.0.0.{number}",
        "NodeManagerHostname": f"host{number}",
        "Alive": alive,
        "Resources": {
            "CPU": 4.0,
            f"node:10.0.0.{number}": 1.0,
            **({"node:__internal_head__": 1.0} if head else {}),
            **resources,
        },
        "Labels": {},
    }


@pytest.fixture
def cluster(monkeypatch):
    """A cluster whose nodes are given; more come with every look, if they are lists in a list. None
    is a look that finds no cluster.
    """

    def make(*looks):
        left = list(looks)

        @contextmanager
        def connected(address):
            now = left.pop(0) if len(left) > 1 else left[0]
            if now is None:
                raise CommandError(f"no cluster at {address}")
            monkeypatch.setattr(api, "nodes", lambda: now)
            monkeypatch.setattr(
                api,
                "cluster_resources",
                lambda: {"CPU": 8.0, "memory": 1024.0**3, "node:10.0.0.1": 1.0},
            )
            monkeypatch.setattr(api, "available_resources", lambda: {"CPU": 5.0})
            yield True

        monkeypatch.setattr(engines, "connected", connected)
        monkeypatch.setattr(engines, "cluster_if_any", connected)
        monkeypatch.setattr(status, "PAUSE_S", 0.0)
        return left

    return make


def test_status_shows_nodes_resources_and_runs(syncline_command, cluster, write_run, tmp_path):
    write_run("vit", outcome="finished", reports=[{"loss": 0.5}])
    cluster(
        [node(2, alive=False), node(1, head=True, **{"GPU": 2.0, "accelerator_type:H100": 1.0})]
    )
    done = syncline_command("status", "--address=10.0.0.1:6379", f"--storage-path={tmp_path}/runs")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0] == "Cluster 10.0.0.1:6379: 1 node alive, 1 dead"
    assert lines[2].split()[:4] == ["10.0.0.1", "host1", "(head)", "alive"]
    assert "2 GPU (H100)" in lines[2]
    assert ["CPU", "3", "8", "38", "%"] in [line.split() for line in lines]
    assert any(line.startswith("vit ") and "loss=0.5" in line for line in lines)


def test_status_of_a_large_cluster_shows_some_nodes_and_json_all(
    syncline_command, cluster, tmp_path
):
    nodes = [node(number, head=number == 5) for number in range(1, 31)]
    cluster(nodes)
    shown = syncline_command("status", f"--storage-path={tmp_path}").stdout
    assert f"… and {30 - status.SHOWN_NODES} more: `syncline nodes`" in shown
    described = json.loads(
        syncline_command("status", f"--storage-path={tmp_path}", "--json").stdout
    )["cluster"]
    assert (described["address"], described["nodes_alive"], len(described["nodes"])) == (
        "10.0.0.5",
        30,
        30,
    )
    assert described["nodes"][0]["head"] is True
    assert described["resources"]["CPU"] == {"used": 3.0, "total": 8.0}


@pytest.fixture
def programs(monkeypatch):
    """Two programs of this machine, and more that are not listed; the second does not answer."""
    engine = EngineSnapshot(
        nodes=(),
        resources={"CPU": {"used": 3.0, "total": 4.0}},
        actors=ActorListing(total=2),
        tasks=TaskListing(total=5),
    )
    first = ProgramSnapshot(
        key="a", pid=41, command="python train.py --lr 0.1", started=1_000.0, engine=engine
    )
    second = ProgramSnapshot(
        key="b",
        pid=42,
        command="python stopped.py",
        started=900.0,
        engine=None,
        problem="It does not answer.",
    )
    monkeypatch.setattr(
        status, "machine_snapshot", lambda: MachineSnapshot(programs=(first, second), others=3)
    )


def test_status_shows_the_programs_of_this_machine(syncline_command, programs, tmp_path):
    done = syncline_command("status", f"--storage-path={tmp_path}/runs")
    assert done.exit_code == 0, done.output
    lines = [line.split() for line in done.stdout.splitlines()]
    assert "Programs with their own workers on this machine: 5" in done.stdout
    first, second = (next(line for line in lines if line[:1] == [pid]) for pid in ("41", "42"))
    assert first[-7:] == ["3", "of", "4", "python", "train.py", "--lr", "0.1"]
    assert second[-5:] == ["does", "not", "answer", "python", "stopped.py"]
    assert "and 3 older ones" in done.stdout


def test_status_gives_programs_as_json(syncline_command, programs, tmp_path):
    described = json.loads(
        syncline_command("status", f"--storage-path={tmp_path}/runs", "--json").stdout
    )["programs"]
    assert described == [
        {
            "pid": 41,
            "command": "python train.py --lr 0.1",
            "started": 1_000.0,
            "resources": {"CPU": {"used": 3.0, "total": 4.0}},
            "actors": 2,
            "tasks": 5,
            "problem": None,
        },
        {
            "pid": 42,
            "command": "python stopped.py",
            "started": 900.0,
            "resources": None,
            "actors": None,
            "tasks": None,
            "problem": "It does not answer.",
        },
    ]


def test_status_without_programs_says_nothing_of_them(syncline_command, tmp_path):
    assert "Programs" not in syncline_command("status", f"--storage-path={tmp_path}/runs").stdout


def test_nodes_waits_for_the_cluster_and_for_so_many_living_nodes(syncline_command, cluster):
    left = cluster(
        None,
        [node(1, head=True)],
        [node(1, head=True), node(2, alive=False)],
        [node(1, head=True), node(2)],
    )
    done = syncline_command("nodes", "--wait-for=2", "--limit=60", "--json")
    assert done.exit_code == 0, done.output
    assert [entry["alive"] for entry in json.loads(done.stdout)["nodes"]] == [True, True]
    assert len(left) == 1


@pytest.mark.parametrize(
    ("look", "said"), [(None, "no cluster at auto"), ([node(1)], "1 of 2 nodes are alive")]
)
def test_nodes_that_do_not_come_end_the_wait_with_1(syncline_command, cluster, look, said):
    cluster(look)
    done = syncline_command("nodes", "--wait-for=2", "--limit=0")
    assert (done.exit_code, done.stdout) == (1, "")
    assert said in done.stderr
