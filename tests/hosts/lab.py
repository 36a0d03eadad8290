"""A Ray cluster on three hosts, and programs that run on it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from syncline.testing import Program, eventually
from syncline.testing.clusters import Host, RayCluster
from tests.hosts.rig import Rig

HEAD = "head"
NODES = ("first", "second")
CPUS = 2
"""CPUs of each node."""
STORE_BYTES = 100 * 1024**2

PRELUDE = """
import json, os, socket, sys, tempfile, threading, time
from pathlib import Path
import syncline
from syncline import train

shared = Path(os.environ["SHARED"])


def trainer(function, workers=2, needs="away", kind=train.DataParallelTrainer, **run):
    return kind(
        function,
        scaling_config=train.ScalingConfig(
            num_workers=workers,
            placement_strategy="SPREAD",
            resources_per_worker={"CPU": 1, needs: 1},
        ),
        run_config=train.RunConfig(
            name="run",
            **{
                "storage_path": str(shared / "runs"),
                "failure_config": train.FailureConfig(max_failures=1),
                **run,
            },
        ),
    )


def mark(name, **facts):
    (shared / f".{name}").write_text(json.dumps(facts))
    (shared / f".{name}").rename(shared / name)


def tell(**facts):
    print("FACTS " + json.dumps(facts), flush=True)


def begin():
    checkpoint = train.get_checkpoint()
    if checkpoint is None:
        return 0
    return json.loads(Path(checkpoint.path, "state.json").read_text())["epoch"] + 1


def save(**state):
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "state.json").write_text(json.dumps(state))
        Path(directory, f"by-{socket.gethostname()}").touch()
        train.report(state, checkpoint=train.Checkpoint.from_directory(directory))


def in_step(last):
    "Run epochs with one checkpoint each; wait for the test's permission after each."
    rank = train.get_context().get_world_rank()
    for epoch in range(begin(), last + 1):
        save(epoch=epoch)
        train.get_checkpoint()
        node = syncline.get_runtime_context().get_node_id()
        mark(f"{epoch}-{rank}", host=socket.gethostname(), node=node)
        while not (shared / f"go-{epoch}").exists():
            time.sleep(0.02)
    return last


def at_will():
    "Run epochs with one checkpoint each until the test stops them; mark the host's epoch."
    epoch, host = begin(), socket.gethostname()
    while not (shared / "stop").exists():
        save(epoch=epoch, host=host)
        mark(f"at-{host}", epoch=epoch)
        epoch += 1
        time.sleep(0.05)
    return epoch


def summary(result):
    paths = [Path(checkpoint.path) for checkpoint, _ in result.best_checkpoints]
    return {
        "reported": [report["metrics"]["epoch"] for report in result.reports],
        "kept": [json.loads((path / "state.json").read_text())["epoch"] for path in paths],
        "hosts": [metrics.get("host") for _, metrics in result.best_checkpoints],
        "writers": [
            [writer.name.removeprefix("by-") for writer in path.glob("by-*")] for path in paths
        ],
        "value": result.return_value,
    }
"""


class Lab:
    """A cluster on the hosts of a rig: the head on the first, a node on each other host."""

    def __init__(self, rig: Rig, cluster: RayCluster) -> None:
        self.rig = rig
        self.cluster = cluster
        self._running: set[str] = set()

    def host(self, name: str) -> Host:
        """Return the host of the head or of a node."""
        return self.rig[(HEAD, *NODES).index(name)]

    def start(self, name: str, host: Host | None = None) -> None:
        """Start a node on its own host or on `host`.

        It has the resources "away" and its own name, as many as CPUs.
        """
        self.cluster.add_node(
            name, num_cpus=CPUS, resources={"away": CPUS, name: CPUS}, host=host or self.host(name)
        )
        self._running.add(name)

    def kill(self, name: str) -> None:
        """Kill a node."""
        self._running.discard(name)
        self.cluster.kill_node(name)

    def start_missing(self) -> None:
        """Start missing nodes, one by one, because they choose names in the same directory."""
        for name in NODES:
            if name not in self._running:
                self.start(name)

    def program(self, *parts: str, shared: Path, on: str = HEAD) -> AbstractContextManager[Program]:
        """Run a program on the host of the head or a node; `shared` is shared with the test."""
        environment = {
            **self.cluster.variables,
            "SYNCLINE_ADDRESS": self.cluster.address,
            "SHARED": str(shared),
        }
        return self.rig.run(self.host(on), "\n".join([PRELUDE, *parts]), environment=environment)


def facts_of(program: Program) -> dict[str, Any]:
    """Wait for a program's success and return the facts that it printed."""
    facts: dict[str, Any] = {}
    for line in program.wait().check().stdout.splitlines():
        if line.startswith("FACTS "):
            facts.update(json.loads(line[len("FACTS ") :]))
    return facts


def marked(shared: Path, name: str) -> Mapping[str, Any]:
    """Wait for a mark and return its facts."""
    mark = shared / name
    eventually(mark.exists, what=f"the mark {name}")
    facts: dict[str, Any] = json.loads(mark.read_text())
    return facts


def marks_of_epoch(shared: Path, epoch: int, ranks: int = 2) -> list[Mapping[str, Any]]:
    """Wait until all ranks are in the epoch and the run has its checkpoint; return their marks."""
    return [marked(shared, f"{epoch}-{rank}") for rank in range(ranks)]


def go(shared: Path, *epochs: int) -> None:
    """Let these epochs end."""
    for epoch in epochs:
        (shared / f"go-{epoch}").touch()
