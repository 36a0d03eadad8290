"""Training on a Ray cluster: runs outlive their programs, lost workers and nodes are replaced, what
cannot work is told.

The programs are processes of their own, so that they can be killed; the cluster is one of this
machine, with two nodes.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from syncline.testing.clusters import RayCluster
from syncline.testing.waiting import GENEROUS_S, eventually

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.processes,
    pytest.mark.xdist_group("ray"),
    pytest.mark.timeout(240),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
]

PRELUDE = """
import json, os, signal, socket, sys, tempfile, threading, time
from pathlib import Path
import syncline
from syncline import train

shared = Path(os.environ["SHARED"])


def trainer(function, name="run", workers=2, config=None, max_failures=0, **run):
    return train.DataParallelTrainer(
        function,
        train_loop_config=config,
        scaling_config=train.ScalingConfig(num_workers=workers, placement_strategy="SPREAD"),
        run_config=train.RunConfig(
            name=name,
            **{"storage_path": str(shared / "runs"), "failure_config": train.FailureConfig(max_failures=max_failures), **run},
        ),
    )


def save(metrics):
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "state.json").write_text(json.dumps(metrics))
        train.report(metrics, checkpoint=train.Checkpoint.from_directory(directory))


def until(path):
    while not path.exists():
        time.sleep(0.02)


def tell(**facts):
    print("FACTS " + json.dumps(facts), flush=True)
"""

WAITING_RUN = """
def loop():
    context = train.get_context()
    if context.get_world_rank() == 0:
        (shared / "starts").open("a").write(f"{os.getpid()}\\n")
    save({"epoch": 0})
    until(shared / "go")
    train.report({"epoch": 1})
    return {"pid": os.getpid()}
"""

Run = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    cluster = RayCluster(num_cpus=3)
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def program(cluster: RayCluster, tmp_path: Path) -> Iterator[Run]:
    """Start a program that uses the cluster; what still runs at the end of the test is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(*parts: str) -> subprocess.Popen[str]:
        path = tmp_path / f"program{len(started)}.py"
        path.write_text("\n".join([PRELUDE, *parts]))
        process = subprocess.Popen(
            [sys.executable, str(path)],
            env=cluster.environment(SHARED=str(tmp_path)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=tmp_path,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def facts_of(process: subprocess.Popen[str], returncode: int = 0) -> tuple[dict[str, object], str]:
    """What a program tells, and all that it prints, once it has ended."""
    output, _ = process.communicate(timeout=2 * GENEROUS_S)
    assert process.returncode == returncode, output
    facts: dict[str, object] = {}
    for line in output.splitlines():
        if line.startswith("FACTS "):
            facts.update(json.loads(line[len("FACTS ") :]))
    return facts, output


def pids(path: Path) -> Sequence[int]:
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def test_a_run_goes_on_without_its_program_and_others_attach_to_it(
    program: Run, tmp_path: Path
) -> None:
    first = program(WAITING_RUN, "trainer(loop).fit()")
    (worker,) = eventually(lambda: pids(tmp_path / "starts"))
    eventually((tmp_path / "runs/run/checkpoints.json").exists)
    first.kill()
    first.wait()

    second = program(
        WAITING_RUN,
        """
attached = []
thread = threading.Thread(target=lambda: attached.append(train.attach(shared / "runs/run")))
thread.start()
result = trainer(lambda: None).fit()
thread.join()
tell(metrics=result.metrics, value=result.return_value, attached=attached[0].metrics)
again = trainer(lambda: "another", workers=1, on_conflict="takeover").fit()
tell(again=again.return_value, read=train.attach(shared / "runs/run").metrics)
""",
    )
    assert second.stdout is not None
    lines = []
    while "attached to the run" not in "".join(lines):
        lines.append(second.stdout.readline())
        assert lines[-1], "".join(lines)
    (tmp_path / "go").touch()
    facts, output = facts_of(second)
    assert facts["metrics"] == facts["attached"] == facts["read"] == {"epoch": 1}
    assert facts["value"] == {"pid": worker}
    assert facts["again"] == "another"
    assert pids(tmp_path / "starts") == [worker]
    assert "training finished" in output


def test_ctrl_c_ends_the_run_for_everybody(program: Run, tmp_path: Path) -> None:
    process = program(WAITING_RUN, "trainer(loop).fit()")
    (worker,) = eventually(lambda: pids(tmp_path / "starts"))
    eventually((tmp_path / "runs/run/checkpoints.json").exists)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=GENEROUS_S)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in output
    eventually(lambda: not psutil.pid_exists(worker))
    outcome = json.loads((tmp_path / "runs/run/outcome.json").read_text())
    assert outcome["status"] == "aborted"


def test_errors_are_those_of_the_embedded_engine_and_name_what_is_missing(
    program: Run, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/only_here.py").write_text(
        "class Mistake(Exception): pass\nlimit = 3\ndef loop(): pass\n"
    )
    facts, output = facts_of(
        program("""
def fails():
    def deep():
        raise ValueError("a mistake of the user")
    deep()

def caught(run):
    try:
        run()
    except Exception as error:
        return type(error).__name__, str(error)

syncline.init()
kind, text = caught(trainer(fails, name="fails", workers=1).fit)
tell(kind=kind, text=text)
tell(attached=caught(lambda: train.attach(shared / "runs/fails")))
tell(nowhere=caught(lambda: train.attach(shared / "runs/nobody")))
sys.path.insert(0, str(shared / "elsewhere"))
import only_here
tell(missing=caught(trainer(only_here.loop, name="missing", workers=1).fit))
tell(unpicklable=caught(trainer(lambda: lock, name="unpicklable", workers=1).fit) if (lock := threading.Lock()) else None)
tell(too_large=caught(trainer(fails, name="too_large", workers=100).fit))
""")
    )
    assert facts["kind"] == "WorkerGroupError"
    assert "a mistake of the user" in str(facts["text"])
    assert "in deep" in str(facts["text"])
    assert facts["attached"] == ["TrainingFailedError", facts["text"]]
    assert facts["nowhere"][0] == "ValueError"
    assert "'only_here'" in facts["missing"][1]
    assert "working_dir" in facts["missing"][1]
    assert "lock" in facts["unpicklable"][1]
    assert facts["unpicklable"][0] == "TypeError"
    assert facts["too_large"][0] == "ValueError"


def test_a_killed_worker_and_a_killed_node_are_replaced(
    program: Run, cluster: RayCluster, tmp_path: Path
) -> None:
    cluster.add_node("second", num_cpus=1)
    process = program("""
def loop():
    rank = train.get_context().get_world_rank()
    checkpoint = train.get_checkpoint()
    epoch = json.loads(Path(checkpoint.path, "state.json").read_text())["epoch"] + 1 if checkpoint else 0
    save({"epoch": epoch})
    node = syncline.get_runtime_context().get_node_id()
    (shared / f".{epoch}-{rank}").write_text(f"{os.getpid()} {node}")
    (shared / f".{epoch}-{rank}").rename(shared / f"{epoch}-{rank}")
    until(shared / f"go-{epoch}")
    if epoch == 2:
        return epoch

syncline.init()
result = trainer(loop, max_failures=2).fit()
epochs = [report["metrics"]["epoch"] for report in result.reports]
tell(value=result.return_value, epochs=epochs, alive=[node["NodeID"] for node in syncline.nodes() if node["Alive"]])
""")
    places = {}
    events = tmp_path / "runs/run/events.jsonl"
    for epoch in range(3):
        for rank in range(2):
            place = tmp_path / f"{epoch}-{rank}"
            eventually(place.exists)
            places[epoch, rank] = place.read_text().split()
        # `report` returns before the controller has the report: a rank killed at once repeats it.
        committed = f'"event":"checkpoint","report":{epoch}'
        eventually(lambda text=committed: text in events.read_text(), what=committed)  # type: ignore[misc]
        if epoch == 0:
            os.kill(int(places[0, 1][0]), signal.SIGKILL)
        elif epoch == 1:
            assert places[1, 0][1] != places[1, 1][1], "spread over both nodes"
            cluster.kill_node("second")
    (tmp_path / "go-2").touch()
    facts, _ = facts_of(process)
    assert facts["value"] == 2
    assert facts["epochs"] == [0, 1, 2]
    assert {places[2, 0][1], places[2, 1][1]} <= set(facts["alive"])  # type: ignore[call-overload]


def test_storage_that_only_one_node_sees_is_refused_with_the_others_named(
    program: Run, cluster: RayCluster
) -> None:
    cluster.add_node("third", num_cpus=1)
    facts, _ = facts_of(
        program("""
from fsspec.implementations.memory import MemoryFileSystem
from pyarrow.fs import FSSpecHandler, PyFileSystem

try:
    trainer(lambda: None, storage_path="/here", storage_filesystem=PyFileSystem(FSSpecHandler(MemoryFileSystem()))).fit()
except ValueError as error:
    tell(error=str(error), host=socket.gethostname())
""")
    )
    cluster.kill_node("third")
    assert str(facts["host"]) in str(facts["error"])
    assert "storage_path" in str(facts["error"])
