"""Sessions: private directories, swept when their driver is dead and only then."""

import os
import pickle
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from syncline.core.embedded.child_processes import SOCKET_NAME
from syncline.core.embedded.session_directories import (
    SessionDirectories,
    create_session,
    remove_directories,
    remove_if_abandoned,
)


@pytest.fixture
def roots(tmp_path):
    """A directory for temporary files and one in place of shared memory."""
    (tmp_path / "shm").mkdir()
    return tmp_path / "tmp", tmp_path / "shm"


@pytest.fixture
def create(roots):
    sessions: list[SessionDirectories] = []

    def make(temp_dir=None):
        session = create_session(str(temp_dir or roots[0]), shm_root=roots[1])
        sessions.append(session)
        return session

    yield make
    for session in sessions:
        session.remove()


def exists(session):
    paths = session.paths
    return Path(paths.directory).exists(), Path(paths.shm_directory).exists()


def test_directories_are_private_and_separate(create):
    first, second = create(), create()
    assert first.paths.id != second.paths.id
    for directory in (
        first.paths.directory,
        first.paths.shm_directory,
        os.path.dirname(first.paths.directory),
    ):
        assert stat.S_IMODE(os.stat(directory).st_mode) == 0o700
    assert (first.directory / "logs").is_dir()
    assert {first.paths.directory, first.paths.shm_directory}.isdisjoint(
        {second.paths.directory, second.paths.shm_directory}
    )


def test_a_live_session_is_not_swept(create):
    first = create()
    create()
    assert exists(first) == (True, True)


def test_a_dead_session_is_swept_from_both_places(create):
    dead = create()
    dead.abandon()  # what the kernel does when the driver ends
    create()
    assert exists(dead) == (False, False)


@pytest.mark.processes
def test_the_session_of_a_killed_process_is_swept(create, roots):
    program = (
        "import os, sys, signal\nfrom pathlib import Path\n"
        "from syncline.core.embedded.session_directories import create_session\n"
        "session = create_session(sys.argv[1], shm_root=Path(sys.argv[2]))\n"
        "print(session.paths.directory, session.paths.shm_directory, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, roots)],
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        check=False,
    )
    left = [Path(name) for name in done.stdout.split()]
    assert [path.exists() for path in left] == [True, True]
    create()
    assert [path.exists() for path in left] == [False, False]


def test_a_session_that_is_being_made_is_not_swept(create, roots):
    base = create().directory.parent
    begun = base / "session-1-begun"
    begun.mkdir()
    (begun / "owner.lock.new").touch()
    create()
    assert begun.exists()


def test_the_lock_is_held_before_it_has_its_name(create, monkeypatch):
    """A sweep at the worst moment: just when the lock gets its name."""
    rename = Path.rename
    sweeping = []

    def sweep_and_rename(path, target):
        if not sweeping:
            sweeping.append(path)
            create()
            result = rename(path, target)
            create()
            return result
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", sweep_and_rename)
    session = create()
    assert exists(session) == (True, True)
    assert sweeping


def test_files_of_others_are_left_alone(create, roots):
    base = create().directory.parent
    for root in (base, roots[1]):
        (root / "notes.txt").touch()
        (root / "other-directory").mkdir()
        (root / "session-without-lock").mkdir()
    create()
    for root in (base, roots[1]):
        assert {"notes.txt", "other-directory", "session-without-lock"} <= {
            path.name for path in root.iterdir()
        }


def test_users_do_not_see_each_others_sessions(create, monkeypatch):
    mine = create()
    mine.abandon()
    uid = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: uid * 10 + 1)  # its digits begin with mine
    base = mine.directory.parent.parent / f"syncline-{uid * 10 + 1}"
    with pytest.raises(PermissionError, match=r"another user.*SYNCLINE_TMPDIR"):
        create()  # the directory that it made belongs to the real user
    assert base.exists()
    assert exists(mine) == (True, True)


def test_a_base_directory_linked_by_another_user_is_refused(create, roots, monkeypatch):
    """The link belongs to another user, its target to this one."""
    target = roots[0] / "my-home"
    target.mkdir(parents=True)
    link = roots[0] / f"syncline-{os.getuid()}"
    link.symlink_to(target)
    lstat = Path.lstat

    def stranger(path):
        facts = lstat(path)
        if path != link:
            return facts
        values = list(facts)
        values[stat.ST_UID] = facts.st_uid + 1
        return os.stat_result(values)

    monkeypatch.setattr(Path, "lstat", stranger)
    with pytest.raises(PermissionError, match="another user"):
        create()
    assert list(target.iterdir()) == []


def test_remove_removes_both_directories_and_is_idempotent(create):
    session = create()
    session.remove()
    assert exists(session) == (False, False)
    session.remove()
    remove_directories(session.paths)


def test_abandon_removes_nothing(create):
    session = create()
    session.abandon()
    assert exists(session) == (True, True)
    session.abandon()


def test_without_shared_memory_there_is_no_directory_in_it(roots, monkeypatch):
    session = create_session(str(roots[0]), shm_root=roots[1] / "missing")
    assert session.paths.shm_directory is None
    session.remove()
    assert not session.directory.exists()


def test_full_shared_memory_is_not_used(roots, monkeypatch):
    mkdir = Path.mkdir

    def full(path, *args, **kwargs):
        if path.parent == roots[1]:
            raise OSError(28, "No space left on device")
        mkdir(path, *args, **kwargs)

    monkeypatch.setattr(Path, "mkdir", full)
    session = create_session(str(roots[0]), shm_root=roots[1])
    assert session.paths.shm_directory is None
    session.remove()


def test_a_long_temporary_directory_works(create, tmp_path):
    """Longer than the name of a socket may be, which is therefore bound relative to its
    directory.
    """
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    session = create(deep)
    fd = os.open(session.directory, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"/proc/self/fd/{fd}/{SOCKET_NAME}")
    os.close(fd)
    assert (session.directory / SOCKET_NAME).exists()


def test_paths_can_be_sent(create):
    paths = create().paths
    assert pickle.loads(pickle.dumps(paths)) == paths


def test_the_last_worker_waits_for_a_driver_that_is_dying(create):
    session = create()
    dying = threading.Timer(0.2, session.abandon)
    dying.start()
    remove_if_abandoned(session.paths)
    dying.join()
    assert exists(session) == (False, False)


def test_a_session_whose_driver_lives_is_not_abandoned(create):
    session = create()
    remove_if_abandoned(session.paths)
    assert exists(session) == (True, True)
