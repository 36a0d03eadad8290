"""`syncline run` with each `TrainingFault` on one of four ranks of a plain script, on one node or
two, and with a slow network between three.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from syncline import runs
from syncline.runs.verdicts import Verdict, verdicts
from syncline.testing import emulated_network
from syncline.testing.programs import free_port
from syncline.testing.training_faults import TrainingFault

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

RANK = 2
ELSEWHERE = {TrainingFault.NOT_A_NUMBER, TrainingFault.NETWORK_DELAY}
"""The launcher does not see numbers, and the ranks have one host."""
SHOWN = tuple(fault for fault in TrainingFault if fault not in ELSEWHERE)
LIMIT_S = 180.0
CLEAN_S = 15.0
"""Seconds of a run before its fault."""
SEES_NAN_S = 8.0
"""Seconds of a run with a NaN: several windows of the diagnosis."""


def found(folder: Path) -> list[Verdict]:
    """Return the verdicts so far of the run, on the first node if there are several."""
    paths = [p for p in (folder / "runs").glob("*/run.json") if "-node-" not in p.parent.name]
    return verdicts(runs.open(paths[0].parent).events) if paths else []


def until(
    condition: Callable[[], bool], process: subprocess.Popen[bytes], limit_s: float = LIMIT_S
) -> None:
    """Wait for the condition, the end of the job, or the limit."""
    deadline = time.monotonic() + limit_s
    while not condition() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)


@pytest.fixture
def start(launcher, tmp_path):
    """Return a function that starts the job with a fault; the job ends with the test."""
    one = launcher("syncline")
    output = (tmp_path / "output").open("wb")
    started = []

    def run(fault: TrainingFault, nodes: int = 1) -> tuple[subprocess.Popen[bytes], Path]:
        port = str(free_port())
        for node in range(nodes):
            place = ("--nnodes", str(nodes), "--node-rank", str(node), "--master-port", port)
            options = ("-n", str(4 // nodes), "--shutdown-timeout", "1")
            job = ("faulty.py", str(fault), str(one.folder), str(RANK))
            arguments = (*place, "--master-addr", "localhost", *options, *job)
            started.append(one.start(*arguments, stdout=output, stderr=output))
        return started[0], one.folder

    yield run
    for process in started:
        process.terminate()
        process.wait(LIMIT_S)
    output.close()


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("fault", SHOWN, ids=str)
def test_the_verdict_names_the_rank_and_the_cause(start, tmp_path, fault, nodes):
    process, folder = start(fault, nodes)

    def is_named() -> bool:
        return (str(fault), (RANK,)) in [(str(each.cause), each.ranks) for each in found(folder)]

    until(is_named, process)
    said = [each.title for each in found(folder)]
    assert is_named(), (said, (tmp_path / "output").read_text(errors="replace")[-3000:])
    assert {each.ranks for each in found(folder)} == {(RANK,)}, said


def test_a_nan_is_no_fault_that_the_launcher_sees(start):
    process, folder = start(TrainingFault.NOT_A_NUMBER)
    until(lambda: bool(found(folder)), process, SEES_NAN_S)
    assert "nan" not in [str(each.cause) for each in found(folder)]
    (folder / "stop").touch()
    assert process.wait(LIMIT_S) == 0


@pytest.mark.skipif(
    emulated_network.obstacle() is not None, reason=str(emulated_network.obstacle())
)
def test_a_host_with_a_slow_network_is_named(launcher):
    one = launcher("syncline")
    slow = one.folder / "slow"
    with emulated_network.emulated_network(3) as network:
        processes = []
        for node in range(3):
            place = ("--nnodes", "3", "--node-rank", str(node), "--master-port", "29511")
            options = ("--master-addr", emulated_network.address(0), "-n", "1")
            trigger = str(slow if node == RANK else one.folder / "never")
            job = (*place, *options, "faulty.py", "clean", str(one.folder))
            processes.append(on_host(one, network, node, trigger, *job))
        until(lambda: bool(list((one.folder / "runs").glob("*/run.json"))), processes[0])
        until(lambda: False, processes[0], CLEAN_S)
        assert found(one.folder) == []
        slow.touch()
        until(lambda: bool(found(one.folder)), processes[0])
        (one.folder / "stop").touch()
        assert [process.wait(LIMIT_S) for process in processes] == [0, 0, 0]
    assert [(str(each.cause), each.ranks) for each in found(one.folder)] == [
        ("network delay", (RANK,))
    ]


def on_host(one, network: str, host: int, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a launcher on a host of the network."""
    variables = {
        "SYNCLINE_STORAGE_PATH": str(one.folder / "runs"),
        "GLOO_SOCKET_IFNAME": emulated_network.INTERFACE,
    }
    command = [sys.executable, "on_host.py", network, str(host), *arguments]
    scripts = Path(__file__).with_name("scripts")
    return subprocess.Popen(command, cwd=scripts, env={**os.environ, **variables})
