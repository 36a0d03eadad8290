"""Private directories, list of snapshots, removal."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from syncline.testing.waiting import eventually
from syncline.train.snapshots import directory as directories
from syncline.train.snapshots import reaper
from syncline.train.snapshots.choice import Choice
from syncline.train.snapshots.directory import count_start, list_snapshots


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(directories, "root", lambda: tmp_path / "root")
    yield tmp_path / "root"
    for path in list(directories._locks):
        os.close(directories._locks.pop(path))


def test_a_snapshot_is_not_started_from_for_ever(tmp_path: Path) -> None:
    choice = Choice(step=7)
    for _ in range(directories.MAX_STARTS):
        assert count_start(tmp_path, choice) == choice
    assert f"{directories.MAX_STARTS} attempts" in count_start(tmp_path, choice).refusal
    assert count_start(tmp_path, Choice(step=8)).step == 8, "there was progress"
    assert count_start(tmp_path, choice) == choice


def test_directories_are_private(root: Path) -> None:
    directory = directories.directory_of("/runs/a", 1.0)
    directories.join(directory)
    assert root.stat().st_mode & 0o777 == directory.stat().st_mode & 0o777 == 0o700
    directory.chmod(0o755)
    directories.leave(directory)
    directories.join(directory)
    assert directory.stat().st_mode & 0o777 == 0o700


def test_each_node_has_a_directory_of_its_own(tmp_path: Path) -> None:
    elsewhere = "/mnt/memory/syncline-7-snapshots/key"
    assert directories.on_this_node(elsewhere) == tmp_path / "root" / "key"


def test_the_file_system_in_memory_may_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # the root of the other tests
    monkeypatch.setenv("SYNCLINE_SHARED_MEMORY", str(tmp_path))
    assert directories.root() == tmp_path / f"syncline-{os.getuid()}-snapshots"
    monkeypatch.delenv("SYNCLINE_SHARED_MEMORY")
    assert directories.root() != tmp_path / f"syncline-{os.getuid()}-snapshots"


def test_a_run_of_the_same_name_has_another_directory() -> None:
    assert directories.directory_of("/runs/a", 1.0) != directories.directory_of("/runs/a", 2.0)
    assert directories.directory_of("/runs/a", 1.0) != directories.directory_of("/runs/b", 1.0)


def test_a_file_system_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing is not a directory on this node.*Create"):
        directories.join(tmp_path / "missing" / "syncline-7-snapshots" / "key")


HOLDER = """
import sys
from pathlib import Path
from syncline.train.snapshots import directory
directory.join(Path(sys.argv[1]))
directory.take_rank(Path(sys.argv[1]), 0)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(root: Path) -> Iterator[subprocess.Popen[str]]:
    """A process of a run whose snapshots are in `root/run`."""
    root.mkdir(mode=0o700)
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(root / "run")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_only_old_directories_of_dead_runs_are_swept(
    root: Path, holder: subprocess.Popen[str]
) -> None:
    directories.sweep(keep_s=0.0)
    assert (root / "run").exists(), "its process is alive"
    holder.kill()
    holder.wait()
    directories.sweep(keep_s=600.0)
    assert (root / "run").exists(), "it may be read for ten minutes"
    directories.sweep(keep_s=0.0)
    assert not (root / "run").exists()


def test_a_directory_that_is_deleted_during_the_sweep_is_no_error(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "a").mkdir(parents=True)
    monkeypatch.setattr(directories, "_directories", lambda parent: [root / "gone", root / "a"])
    directories.sweep(keep_s=0.0)
    assert not (root / "a").exists(), "the others are still swept"


def test_the_reaper_deletes_the_snapshots_after_the_last_process(
    root: Path, holder: subprocess.Popen[str]
) -> None:
    command = [sys.executable, "-I", "-S", reaper.__file__, str(root / "run"), "0.2"]
    process = subprocess.Popen(command)
    eventually(lambda: (root / "run" / reaper.REAPER_LOCK).exists())
    assert subprocess.run(command, timeout=30, check=False).returncode == 0, "one is enough"
    assert (root / "run").exists()
    holder.kill()
    holder.wait()
    assert process.wait(30) == 0
    assert not (root / "run").exists()


def test_a_directory_with_a_reaper_is_not_swept(root: Path, holder: subprocess.Popen[str]) -> None:
    command = [sys.executable, "-I", "-S", reaper.__file__, str(root / "run"), "600"]
    process = subprocess.Popen(command)
    eventually(lambda: (root / "run" / reaper.REAPER_LOCK).exists())
    holder.kill()
    holder.wait()
    directories.sweep(keep_s=0.0)
    assert (root / "run").exists(), "its run keeps it for longer"
    process.kill()
    process.wait()
    directories.sweep(keep_s=0.0)
    assert not (root / "run").exists()


def test_the_reaper_ends_when_the_run_has_deleted_its_snapshots(
    root: Path, holder: subprocess.Popen[str]
) -> None:
    command = [sys.executable, "-I", "-S", reaper.__file__, str(root / "run"), "600"]
    process = subprocess.Popen(command)
    eventually(lambda: (root / "run" / reaper.REAPER_LOCK).exists())
    directories.remove(root / "run")
    holder.kill()
    assert process.wait(30) == 0


def test_the_predecessor_of_a_rank_is_waited_for(
    root: Path, holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directories, "PREDECESSOR_S", 0.05)
    with pytest.raises(TimeoutError, match="has not ended"):
        directories.take_rank(root / "run", 0)
    holder.kill()
    monkeypatch.setattr(directories, "PREDECESSOR_S", 30.0)
    directories.take_rank(root / "run", 0)
    assert list_snapshots(root / "run") == []


def test_a_directory_of_another_user_is_an_error(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root.mkdir()
    monkeypatch.setattr(os, "getuid", lambda: os.geteuid() + 1)
    with pytest.raises(PermissionError, match="belongs to user"):
        directories.join(root / "run")


def test_a_lock_is_held_until_the_process_leaves(root: Path) -> None:
    directory = root / "run"
    directories.join(directory)
    command = [sys.executable, "-I", "-S", "-c"]
    program = (
        f"import sys; sys.path.insert(0, {str(Path(reaper.__file__).parent)!r}); import reaper; "
        f"print(reaper.remove_unused({str(directory)!r}))"
    )

    def removed() -> str:
        return subprocess.run(
            [*command, program], capture_output=True, text=True, check=True, timeout=30
        ).stdout.strip()

    assert removed() == "False"
    directories.leave(directory)
    assert removed() == "True"
    assert not directory.exists()
