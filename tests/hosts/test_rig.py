"""Simulated hosts: isolation, broken links, and cleanup."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from syncline.testing import eventually, run_program
from syncline.testing.clusters import THIS_HOST, Host
from syncline.testing.programs import is_alive
from tests.hosts.rig import Rig, hosts

pytestmark = pytest.mark.processes

ECHO = """
import socket, sys

listener = socket.create_server((sys.argv[1], 5000))
print("LISTENING", flush=True)
while True:
    connection, _ = listener.accept()
    connection.sendall(socket.gethostname().encode())
    connection.close()
"""
ASK = """
import socket, sys

try:
    with socket.create_connection((sys.argv[1], 5000), timeout=0.5) as connection:
        print(connection.recv(100).decode())
except OSError as error:
    print("unreachable")
"""


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with hosts(3) as rig:
        if rig.why_not is not None:
            pytest.skip(rig.why_not)
        yield rig


def output(host: Host, *command: str) -> str:
    return subprocess.run(
        host.command(*command), capture_output=True, text=True, check=True, timeout=60
    ).stdout.strip()


def test_hosts_have_separate_addresses_names_and_processes_but_shared_files(
    rig: Rig, tmp_path: Path
) -> None:
    assert len({host.address for host in rig}) == len(rig) == 3
    describe = "import os, socket; print(socket.gethostname(), os.getpid(), os.getcwd())"
    told = [output(host, sys.executable, "-c", describe).split() for host in rig]
    assert [name for name, _, _ in told] == ["host-1", "host-2", "host-3"]
    assert all(int(pid) < 1000 for _, pid, _ in told)
    assert {directory for _, _, directory in told} == {os.getcwd()}
    output(rig[0], "touch", str(tmp_path / "file"))
    assert (tmp_path / "file").exists()
    own = rig.with_own(rig[1], tmp_path)
    assert (output(rig[1], "ls", str(tmp_path)), output(own, "ls", str(tmp_path))) == ("file", "")
    assert socket.gethostname() != "host-1"


def test_links_are_cut_one_by_one_or_all_of_a_host_and_heal(rig: Rig) -> None:
    def reached() -> list[str]:
        return [output(rig[number], sys.executable, "-c", ASK, rig[1].address) for number in (0, 2)]

    with rig.run(rig[1], ECHO, rig[1].address) as echo:
        echo.wait_for("LISTENING")
        assert reached() == ["host-2", "host-2"]
        rig.cut(rig[0], rig[1])
        assert reached() == ["unreachable", "host-2"]
        rig.heal(rig[0])
        assert reached() == ["host-2", "host-2"]
        rig.cut(rig[1])
        assert reached() == ["unreachable", "unreachable"]
        rig.heal(rig[1])
        assert reached() == ["host-2", "host-2"]


def test_a_program_on_a_host_dies_with_its_local_process(rig: Rig) -> None:
    with rig.run(rig[0], "import time; print('UP', flush=True); time.sleep(600)") as program:
        program.wait_for("UP")
        (inner,) = psutil.Process(program.pid).children()
        program.send_signal(signal.SIGKILL)
        eventually(lambda: not is_alive(inner))


def test_a_killed_rig_leaves_nothing_behind(rig: Rig) -> None:
    text = """
import subprocess, time
from tests.hosts.rig import hosts

with hosts(2) as rig:
    sleeper = subprocess.Popen(rig[1].command("sleep", "600"))
    print("UP", flush=True)
    time.sleep(600)
"""
    with run_program(text, environment={"PYTHONPATH": os.pathsep.join(sys.path)}) as program:
        program.wait_for("UP")
        eventually(
            lambda: (
                "sleep"
                in [
                    process.name()
                    for process in psutil.Process(program.pid).children(recursive=True)
                ]
            )
        )
        family = psutil.Process(program.pid).children(recursive=True)
        program.send_signal(signal.SIGKILL)
        eventually(lambda: not any(map(is_alive, family)))


def test_without_permission_all_hosts_are_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with hosts(2) as rig:
        assert list(rig) == [THIS_HOST, THIS_HOST]
        assert "not permitted" in str(rig.why_not)
        rig.heal(rig[0])
        with pytest.raises(RuntimeError, match="cannot be cut"):
            rig.cut(rig[0])


def test_a_rig_has_at_least_one_host() -> None:
    with pytest.raises(ValueError, match="between 1 and"), hosts(0):
        pass
