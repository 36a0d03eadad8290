"""The conformance suite and the reliability tests without the calls that only Linux has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from syncline import settings

HERE = Path(__file__).parent
EMBEDDED = HERE.parent / "embedded"
LAUNCHER = HERE.parents[1] / "launcher"


def run_without_linux(*arguments: str) -> None:
    """Run tests in a process whose children have none of the calls either."""
    environment = {
        **settings.inherited_environment(),
        "PYTHONPATH": str(HERE / "without_linux"),
        "SYNCLINE_PORTABLE": "1",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", *arguments]
    result = subprocess.run(
        command, cwd=HERE.parents[2], env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout[-5000:] + result.stderr[-1000:]
    assert " passed" in result.stdout


@pytest.mark.processes
def test_tasks_and_objects() -> None:
    conformance = EMBEDDED / "test_embedded_conformance.py"
    run_without_linux(str(conformance), "-k", "TestTasks or TestObjects")


@pytest.mark.processes
def test_killed_workers_leave_nothing() -> None:
    run_without_linux(str(EMBEDDED / "test_reliability_workers.py"), "-m", "not long")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_conformance_suite() -> None:
    run_without_linux(str(EMBEDDED / "test_embedded_conformance.py"))


@pytest.mark.long
@pytest.mark.timeout(900)
def test_killed_programs_leave_nothing() -> None:
    run_without_linux(
        str(EMBEDDED / "test_reliability_driver.py"),
        str(EMBEDDED / "test_reliability_programs.py"),
        "-m",
        "not long",
        "-k",
        "not shared_memory",  # there is none
    )


@pytest.mark.processes
def test_launched_jobs_and_a_warm_template() -> None:
    run_without_linux(
        str(LAUNCHER / "test_launcher_jobs.py"),
        "-m",
        "processes",
        "-k",
        "record_of_a_finished or warm_template or lost_template",
    )


@pytest.mark.long
@pytest.mark.timeout(900)
def test_launcher() -> None:
    run_without_linux(str(LAUNCHER), "-m", "not long")


@pytest.mark.processes
def test_a_launched_job_names_stopped_and_missing_ranks_and_stalls() -> None:
    run_without_linux(
        str(LAUNCHER / "test_launcher_jobs.py"),
        "-m",
        "processes",
        "-k",
        "stalled or stopped_rank or missing_collective",
    )


def test_peer_without_credentials_is_found_by_the_file_beside_the_socket(tmp_path: Path) -> None:
    program = """
import os, socket, sys
from pathlib import Path
from syncline.core import host

path = Path(sys.argv[1])
listener = socket.socket(socket.AF_UNIX)
listener.bind(str(path.with_suffix(".new")))
path.with_suffix(".new").rename(path)
listener.listen()
client = socket.socket(socket.AF_UNIX)
client.connect(str(path))
assert host.peer(client, path) == (0, os.getuid())
host.publish_listener(path)
assert host.peer(client, path) == (os.getpid(), os.getuid())
assert host.peer(listener.accept()[0]) == (0, os.getuid())
host.withdraw_listener(path)
print(os.listdir(path.parent))
"""
    result = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "a.sock")],
        env={
            **settings.inherited_environment(),
            "PYTHONPATH": str(HERE / "without_linux"),
            "SYNCLINE_PORTABLE": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout == "[]\n", result.stderr


def test_the_guard_removes_what_only_linux_has() -> None:
    program = """
import os, select
from syncline import system
from syncline.runs import usage
from syncline.runs.environment import process_identity

assert not system.IS_LINUX and system.SHARED_MEMORY is None
assert not hasattr(os, "memfd_create") and not hasattr(select, "epoll")
assert usage._content("/proc/stat") == b""
assert usage.process_counters(os.getpid()).rss_bytes > 0
print(process_identity(os.getpid()))
"""
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={
            **settings.inherited_environment(),
            "PYTHONPATH": str(HERE / "without_linux"),
            "SYNCLINE_PORTABLE": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout.startswith("//"), result.stderr
