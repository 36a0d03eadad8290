"""A run that is started again on a cluster: it continues from the snapshots of all nodes.

On a cluster, a killed program does not end its run, so the controller of the run is killed, too.
The nodes are on one machine. Each one has its own file system in memory, as machines do.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from syncline import runs
from syncline.testing.clusters import MARK, Host, RayCluster
from syncline.testing.programs import kill_all, marked
from syncline.testing.waiting import GENEROUS_S, eventually
from syncline.train.snapshots.slot import SnapshotHeader, SnapshotSlot

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.processes,
    pytest.mark.xdist_group("ray"),
    pytest.mark.timeout(420),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
]

PROGRAM = """
import sys
from pathlib import Path
import torch
import syncline
from syncline import train
from syncline.train.torch import TorchTrainer, prepare_data_loader, prepare_model

shared, group, width = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])


def loop(config):
    rank = train.get_context().get_world_rank()
    torch.manual_seed(0)
    model = prepare_model(torch.nn.Linear(8, config["width"]))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    progress = {"step": 0}
    train.register_state(progress=progress)
    samples = torch.randn(1 << 14, 8, generator=torch.Generator().manual_seed(1))
    loader = prepare_data_loader(torch.utils.data.DataLoader(samples, batch_size=4))
    steps = (shared / f"steps-{rank}").open("a", buffering=1)
    while True:
        for batch in loader:
            loss = model(batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            progress["step"] += 1
            steps.write(f"{progress['step']}\\n")
            end = shared / "end"
            has_end = torch.tensor(float(end.exists() and progress["step"] >= int(end.read_text())))
            torch.distributed.all_reduce(has_end)
            if has_end:
                return progress["step"]


with syncline.init():
    result = TorchTrainer(
        loop,
        train_loop_config={"width": width},
        scaling_config=train.ScalingConfig(
            num_workers=2,
            placement_strategy="SPREAD",
            resources_per_worker={"CPU": 1, group: 1},
        ),
        run_config=train.RunConfig(
            name="run",
            storage_path=str(shared / "runs"),
            failure_config=train.FailureConfig(max_failures=1),
            snapshot=train.SnapshotConfig(copy_every_s=0.0),
        ),
    ).fit()
    (shared / "value").write_text(str(result.return_value))
"""


class Program:
    """The program on a cluster with two groups of two nodes."""

    def __init__(self, cluster: RayCluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder

    @contextmanager
    def started(self, group: str, *, width: int = 4) -> Iterator[subprocess.Popen[str]]:
        """Start the program with its ranks on the nodes of a group; kill it at the end."""
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(self._folder), group, str(width)],
            env=self._cluster.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self._folder,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def kill_after_copies(self) -> int:
        """Start the program on the first group, and kill it and the run's controller when both
        ranks have copied a step; return the first such step.
        """
        with self.started("first") as process:
            eventually(
                lambda: self._copied() or process.poll() is not None,
                within_s=2 * GENEROUS_S,
                what="all ranks have copied a step",
            )
            assert process.poll() is None, process.communicate()[0]
        copied = min(self._copied())
        of_head = marked(MARK, [f"{self._cluster.directory.name}:head"])
        controllers = [each for each in of_head if "RunActor" in " ".join(each.cmdline())]
        assert len(controllers) == 1, of_head
        kill_all(controllers)
        return copied

    def finished(self, group: str, *, width: int = 4) -> str:
        """Start the program again, and let it end after some steps; return its output."""
        (self._folder / "end").write_text(str(max(self.steps) + 20))
        with self.started(group, width=width) as process:
            output, _ = process.communicate(timeout=2 * GENEROUS_S)
        assert process.returncode == 0, output
        assert int((self._folder / "value").read_text()) >= self.steps_at_end
        return output

    @property
    def starts(self) -> list[object]:
        """For each attempt, the step of the snapshot that it started from; None without one."""
        events = runs.open(self._folder / "runs/run").events
        return [event["snapshot"] for event in events if event["event"] == "attempt"]

    @property
    def steps(self) -> list[int]:
        """Steps of rank 0 so far, in the order in which it made them."""
        return [int(line) for line in (self._folder / "steps-0").read_text().split()]

    @property
    def steps_at_end(self) -> int:
        return int((self._folder / "end").read_text())

    @property
    def files(self) -> list[str]:
        """Names of the snapshots of all nodes."""
        return [path.name for path in self._folder.glob("memory-*/*/*/*-*.*[0-9]")]

    def _copied(self) -> set[int]:
        """Return the steps that both ranks have copied to the other node."""
        found: dict[int, set[int]] = {0: set(), 1: set()}
        for header in map(_header, self._folder.glob("memory-*/*/*/copy-*")):
            if header is not None:
                found[header.rank].add(header.step)
        return found[0] & found[1]


def _header(path: Path) -> SnapshotHeader | None:
    slot = SnapshotSlot(path)
    try:
        return slot.header()
    finally:
        slot.close()


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    def memory(name: str) -> Host:
        (tmp_path / f"memory-{name}").mkdir()
        return Host(enter=("env", f"SYNCLINE_SHARED_MEMORY={tmp_path / f'memory-{name}'}"))

    with RayCluster(num_cpus=0, host=memory("head")) as cluster:
        for group in ("first", "second"):
            for number in (1, 2):
                cluster.add_node(
                    f"{group}-{number}",
                    num_cpus=1,
                    resources={group: 1},
                    host=memory(f"{group}-{number}"),
                )
        yield Program(cluster, tmp_path)


def test_ranks_on_other_nodes_continue_from_the_snapshots_of_a_killed_program(
    program: Program,
) -> None:
    copied = program.kill_after_copies()
    output = program.finished("second")
    first, second = program.starts
    assert first is None
    assert isinstance(second, int), output
    assert copied <= second
    jumps = [(a, b) for a, b in pairwise(program.steps) if b != a + 1]
    assert len(jumps) <= 1
    assert all(after == second + 1 <= before for before, after in jumps), "no step is left out"
    assert program.files == [], "a finished run deletes its snapshots on all nodes"


def test_a_snapshot_of_another_model_does_not_come_back_from_its_copies(program: Program) -> None:
    program.kill_after_copies()
    output = program.finished("first", width=6)
    assert "but this model's is float32 [6" in output, output
    _, refused, after = program.starts
    assert refused is not None
    assert after is None, output
