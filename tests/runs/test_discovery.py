"""Discovery of running dashboards: announced by a process, removed with it, and protected from
other users.
"""

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from syncline.runs import discovery

HOLD = """
import sys
from syncline.runs import discovery
discovery.announce(sys.argv[1], sys.argv[2:])
print("up", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("SYNCLINE_TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    yield tmp_path / "tmp"
    discovery.withdraw()


def test_without_a_dashboard_there_is_no_page_and_nothing_is_made(own_directory: Path):
    assert discovery.page_of("/runs/a") is None
    assert list(own_directory.iterdir()) == []


def test_a_run_below_an_announced_path_has_its_page():
    discovery.announce("http://127.0.0.1:8265/", ["/elsewhere", "/runs", "s3://bucket/runs"])
    assert discovery.page_of("/runs/a b?") == "http://127.0.0.1:8265/run/1/a%20b%3F"
    assert discovery.page_of("s3://bucket/runs/x") == "http://127.0.0.1:8265/run/2/x"
    assert discovery.page_of("/other/a") is None
    assert discovery.page_of("/runs/deeper/a") is None


def test_a_path_that_leads_there_by_a_link_is_the_same(tmp_path: Path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "runs")
    discovery.announce("http://127.0.0.1:1", [str(tmp_path / "link")])
    assert discovery.page_of(str(tmp_path / "runs" / "a")) == "http://127.0.0.1:1/run/0/a"


def test_withdrawn_is_gone(own_directory: Path):
    discovery.announce("http://127.0.0.1:1", ["/runs"])
    assert len(discovery.alive()) == 1
    discovery.withdraw()
    assert discovery.alive() == []
    assert list(own_directory.rglob("dashboard-*")) == []


@pytest.mark.processes
def test_an_announcement_dies_with_its_process(own_directory: Path):
    command = [sys.executable, "-c", HOLD, "http://127.0.0.1:7", "/runs"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        assert discovery.page_of("/runs/a") == "http://127.0.0.1:7/run/0/a"
        assert discovery.alive()[0].pid == process.pid
        process.kill()
        process.wait()
    assert discovery.page_of("/runs/a") is None
    assert list(own_directory.rglob("dashboard-*")) == []


def test_the_directory_and_its_files_are_for_their_user_alone():
    discovery.announce("http://127.0.0.1:1", ["/runs"])
    discovery.shared_token("t" * 43)
    directory = discovery.directory()
    assert directory.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o600}


def test_a_directory_that_others_can_look_into_is_not_believed():
    directory = discovery.directory()
    discovery.announce("http://evil.example", ["/runs"])
    directory.chmod(0o755)
    assert discovery.alive() == []
    with pytest.raises(PermissionError, match="open to others"):
        discovery.shared_token("t" * 43)


def test_a_link_in_place_of_the_directory_is_not_believed(own_directory: Path, tmp_path: Path):
    (tmp_path / "theirs").mkdir(mode=0o700)
    outer = own_directory / f"syncline-{os.getuid()}"
    outer.mkdir()
    (outer / "dashboards").symlink_to(tmp_path / "theirs")
    assert discovery.alive() == []
    with pytest.raises(PermissionError):
        discovery.announce("http://127.0.0.1:1", ["/runs"])


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"url": 1}', '{"url": "x", "storage_paths": 3, "pid": 1}']
)
def test_damaged_announcements_are_passed_over(text: str):
    path = discovery.directory() / "dashboard-1-1.json"
    path.write_text(text)
    with open(path) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert discovery.alive() == []


def test_an_announcement_that_nobody_holds_is_removed():
    path = discovery.directory() / "dashboard-1-1.json"
    path.write_text(json.dumps({"url": "http://x", "storage_paths": ["/runs"], "pid": os.getpid()}))
    assert discovery.page_of("/runs/a") is None
    assert not path.exists()


def test_the_token_is_kept_for_the_next_dashboard():
    assert discovery.shared_token("a" * 43) == "a" * 43
    assert discovery.shared_token("b" * 43) == "a" * 43


@pytest.mark.parametrize("mode", [0o644, 0o660])
def test_a_token_that_others_could_read_is_replaced(mode: int):
    discovery.shared_token("a" * 43)
    (discovery.directory() / "token").chmod(mode)
    assert discovery.shared_token("b" * 43) == "b" * 43


def test_a_damaged_token_is_replaced():
    discovery.shared_token("a" * 43)
    (discovery.directory() / "token").write_text("short")
    assert discovery.shared_token("b" * 43) == "b" * 43
