"""`submit` and `jobs` on a real head that asks for a token, where Ray's dashboard is installed."""

import importlib.util
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from syncline.testing.waiting import eventually

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.processes,
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("ray", "aiohttp_cors")),
        reason="Ray alone has no job API: ray[default] does",
    ),
]

MARK = "SYNCLINE_TEST_JOBS"
PROGRAM = """
import sys, syncline
syncline.init()
print("twice", syncline.get(syncline.remote(lambda x: 2 * x).remote(21)), sys.argv[1:])
print("no end of line", end="")
sys.exit(int(sys.argv[1]))
"""


def free_ports(count: int) -> list[int]:
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in servers]
    for server in servers:
        server.close()
    return ports


class Head:
    """A head node in a directory of its own, and `syncline` commands with its token."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "token").touch(mode=0o600)
        (folder / "token").write_text(secrets.token_hex(32))
        self.port, self.dashboard, agent = free_ports(3)
        self.url = f"http://127.0.0.1:{self.dashboard}"
        flags = [
            "--num-cpus=1",
            "--object-store-memory=100000000",
            f"--temp-dir={folder}",
            f"--dashboard-agent-listen-port={agent}",
        ]
        self.started = self.run(
            "start", "--head", f"--port={self.port}", f"--dashboard-port={self.dashboard}", *flags
        )

    def run(self, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self.folder / "token")}
        return subprocess.run(
            [sys.executable, "-m", "syncline", *arguments],
            capture_output=True,
            text=True,
            timeout=150,
            stdin=subprocess.DEVNULL,
            env={
                **os.environ,
                "HOME": str(self.folder),
                MARK: self.folder.name,
                **token,
                **variables,
            },
        )

    def processes(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self.folder.name:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def end(self) -> None:
        for process in self.processes():
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        eventually(lambda: not self.processes(), what="every process of the head is gone")
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="module")
def head():
    head = Head(
        Path(tempfile.mkdtemp(prefix="sl-jobs-", dir="/tmp"))
    )  # short: Ray's sockets lie below it
    try:
        assert head.started.returncode == 0, head.started.stderr
        yield head
    finally:
        head.end()


def test_start_says_how_to_submit_with_the_token(head):
    assert f" RAY_AUTH_MODE=token syncline submit --address={head.url} " in head.started.stdout


def test_program_runs_with_its_directory_and_its_code_is_told(head, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    for code, exit_code in (("0", 0), ("3", 1)):
        done = head.run(
            "submit",
            f"--address={head.url}",
            f"--working-dir={tmp_path}",
            "--",
            "python",
            "program.py",
            code,
        )
        assert done.returncode == exit_code, done.stderr
        assert f"twice 42 ['{code}']\n" in done.stdout
        assert done.stdout.endswith("no end of line\n")
        assert done.stdout.count("twice 42") == 1
    jobs = json.loads(head.run("jobs", "list", f"--address={head.url}", "--json").stdout)["jobs"]
    assert sorted(job["status"] for job in jobs) == ["FAILED", "SUCCEEDED"]


def test_long_output_comes_once_and_whole(head):
    program = "for number in range(20_000): print('x' * 50, number)"
    done = head.run("submit", f"--address={head.url}", "--", "python", "-c", program)
    lines = [line for line in done.stdout.splitlines() if line.startswith("x")]
    assert [int(line.split()[1]) for line in lines] == list(range(20_000))


def test_job_is_stopped(head):
    assert (
        head.run(
            "submit",
            f"--address={head.url}",
            "--no-wait",
            "--submission-id=long",
            "--",
            "sleep",
            "600",
        ).returncode
        == 0
    )
    done = head.run("jobs", "stop", "long", f"--address={head.url}", "--json")
    assert json.loads(done.stdout)["status"] == "STOPPED", done.stderr


def test_without_the_token_nothing_is_told(head):
    for variables, said in (
        ({"RAY_AUTH_MODE": "disabled"}, "RAY_AUTH_MODE=disabled"),
        ({"RAY_AUTH_TOKEN": "x" * 64}, "refuses the token"),
    ):
        done = head.run("jobs", "list", f"--address={head.url}", **variables)
        assert (done.returncode, done.stdout) == (1, "")
        assert said in done.stderr
