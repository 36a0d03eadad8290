"""Training on several hosts: addresses, and deaths and silence of nodes and programs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from syncline.testing import eventually
from tests.hosts.lab import Lab, facts_of, go, marked, marks_of_epoch

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.processes,
    pytest.mark.xdist_group("hosts"),
    pytest.mark.timeout(240),
]

BRIEFLY_S = 1.0
"""Shorter than Ray's time to declare a node dead in the tests' clusters."""
HOSTNAMES = {"first": "host-2", "second": "host-3"}


def _epoch(shared: Path, node: str) -> int:
    """Return the epoch of the worker on a node's host."""
    path = shared / f"at-{HOSTNAMES[node]}"
    return int(marked(shared, path.name)["epoch"]) if path.exists() else -1


def _busy(shared: Path) -> tuple[str, str] | None:
    """Return (the node whose host has trained several epochs, the other node)."""
    for former, other in (("first", "second"), ("second", "first")):
        if _epoch(shared, former) > 3:
            return former, other
    return None


def test_ranks_on_two_hosts_connect_at_their_own_addresses(apart: Lab, tmp_path: Path) -> None:
    program = apart.program(
        """
from syncline.train.torch import TorchTrainer

def loop():
    import torch

    context = train.get_context()
    total = torch.tensor([context.get_world_rank() + 1.0])
    torch.distributed.all_reduce(total)
    names = ("MASTER_ADDR", "GLOO_SOCKET_IFNAME")
    places = (context.get_node_rank(), context.get_local_rank())
    facts = {name: os.environ[name] for name in names}
    facts |= {"places": places, "total": total.item(), "host": socket.gethostname()}
    mark(f"rank-{context.get_world_rank()}", **facts)

trainer(loop, workers=3, kind=TorchTrainer).fit()
""",
        shared=tmp_path,
    )
    with program as running:
        facts_of(running)
    ranks = [marked(tmp_path, f"rank-{rank}") for rank in range(3)]
    assert [rank["total"] for rank in ranks] == [6.0] * 3
    assert (
        ranks[0]["host"] == ranks[1]["host"] != ranks[2]["host"]
        or ranks[0]["host"] != ranks[1]["host"] == ranks[2]["host"]
    )
    assert [tuple(rank["places"]) for rank in ranks] in (
        [(0, 0), (0, 1), (1, 0)],
        [(0, 0), (1, 0), (1, 1)],
    )
    (node,) = [node for node, hostname in HOSTNAMES.items() if hostname == ranks[0]["host"]]
    assert {(rank["MASTER_ADDR"], rank["GLOO_SOCKET_IFNAME"]) for rank in ranks} == {
        (apart.host(node).address, "eth0")
    }


def test_workers_of_a_killed_node_restart_elsewhere(lab: Lab, tmp_path: Path) -> None:
    text = """
result = trainer(lambda: in_step(3)).fit()
tell(**summary(result), alive=[node["NodeID"] for node in syncline.nodes() if node["Alive"]])
"""
    with lab.program(text, shared=tmp_path) as program:
        assert len({rank["node"] for rank in marks_of_epoch(tmp_path, 0)}) == 2
        go(tmp_path, 0)
        marks_of_epoch(tmp_path, 1)
        lab.kill("second")
        eventually(lambda: "attempt 1 failed" in program.stderr)
        go(tmp_path, 1, 2, 3)
        facts = facts_of(program)
    assert facts["reported"] == facts["kept"] == [0, 1, 2, 3]
    assert facts["value"] == 3
    assert {rank["node"] for rank in marks_of_epoch(tmp_path, 3)} <= set(facts["alive"])


def test_a_short_silence_of_a_node_loses_and_repeats_nothing(apart: Lab, tmp_path: Path) -> None:
    with apart.program(
        "tell(**summary(trainer(lambda: in_step(3)).fit()))", shared=tmp_path
    ) as program:
        marks_of_epoch(tmp_path, 0)
        apart.rig.cut(apart.host("second"))
        go(tmp_path, 0)
        time.sleep(BRIEFLY_S)
        apart.rig.heal(apart.host("second"))
        go(tmp_path, 1, 2, 3)
        facts = facts_of(program)
    assert facts["kept"] == [0, 1, 2, 3]
    assert facts["value"] == 3


def test_a_worker_of_a_node_declared_dead_does_not_write_to_the_run(
    apart: Lab, tmp_path: Path
) -> None:
    text = """
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

# Not a local directory for the run: workers write to the final path, as in a bucket.
bucket = SubTreeFileSystem(str(shared), LocalFileSystem())

def begin():
    checkpoint = train.get_checkpoint()
    if checkpoint is None:
        return 0
    return json.loads(bucket.open_input_file(f"{checkpoint.path}/state.json").read())["epoch"] + 1

result = trainer(at_will, workers=1, storage_path="runs", storage_filesystem=bucket).fit()
os.chdir(shared)
tell(**summary(result))
"""
    with apart.program(text, shared=tmp_path) as program:
        former, other = eventually(lambda: _busy(tmp_path))
        apart.rig.cut(apart.host(former))
        eventually(lambda: _epoch(tmp_path, other) > 0, what=f"training on {other}")
        seen = _epoch(tmp_path, former)
        eventually(
            lambda: _epoch(tmp_path, former) > seen, what="the worker that was given up goes on"
        )
        eventually(
            lambda: _epoch(tmp_path, other) > seen, what="the new worker is where the former was"
        )
        apart.rig.heal(apart.host(former))
        (tmp_path / "stop").touch()
        facts = facts_of(program)
        apart.kill(former)
    assert facts["kept"] == facts["reported"] == list(range(len(facts["kept"])))
    assert facts["hosts"] == sorted(facts["hosts"], key=[HOSTNAMES[former], HOSTNAMES[other]].index)
    assert set(facts["hosts"]) == set(HOSTNAMES.values())
    assert facts["writers"] == [[host] for host in facts["hosts"]]


def test_a_second_program_resumes_the_run_of_a_killed_one(lab: Lab, tmp_path: Path) -> None:
    with lab.program("trainer(lambda: in_step(2)).fit()", shared=tmp_path) as first:
        before = marks_of_epoch(tmp_path, 0)
        first.end()
    text = """
attached = []
thread = threading.Thread(target=lambda: attached.append(train.attach(shared / "runs/run")))
thread.start()
result = trainer(lambda: None).fit()
thread.join()
tell(**summary(result), attached=summary(attached[0]))
"""
    with lab.program(text, shared=tmp_path, on="first") as second:
        eventually(lambda: second.stderr.count("attached to the run") == 2)
        go(tmp_path, 0, 1, 2)
        facts = facts_of(second)
    assert facts.pop("attached") == facts
    assert facts["reported"] == facts["kept"] == [0, 1, 2]
    assert facts["value"] == 2
    assert [rank["node"] for rank in marks_of_epoch(tmp_path, 2)] == [
        rank["node"] for rank in before
    ]


def test_a_controller_of_a_node_declared_dead_does_not_write_to_the_run(
    apart: Lab, tmp_path: Path
) -> None:
    with (
        apart.program(
            'trainer(at_will, workers=1, needs="second").fit()', shared=tmp_path, on="second"
        ),
        apart.program(
            """
while not (shared / "cut").exists():
    time.sleep(0.02)
tell(**summary(trainer(at_will, workers=1, needs="first").fit()))
""",
            shared=tmp_path,
        ) as heir,
    ):
        eventually(lambda: _epoch(tmp_path, "second") > 3)
        apart.rig.cut(apart.host("second"))
        (tmp_path / "cut").touch()
        eventually(lambda: _epoch(tmp_path, "first") > 3, what="another controller goes on")
        seen = _epoch(tmp_path, "second")
        eventually(
            lambda: _epoch(tmp_path, "second") > seen, what="the former controller hears reports"
        )
        apart.rig.heal(apart.host("second"))
        (tmp_path / "stop").touch()
        facts = facts_of(heir)
        apart.kill("second")
    assert facts["kept"] == facts["reported"] == list(range(len(facts["kept"])))
    assert facts["hosts"] == sorted(
        facts["hosts"], key=[HOSTNAMES["second"], HOSTNAMES["first"]].index
    )
    assert set(facts["hosts"]) == set(HOSTNAMES.values())
    assert facts["writers"] == [[host] for host in facts["hosts"]]
