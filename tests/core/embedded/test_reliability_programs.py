"""Concurrent programs, other users, small shared memory, and processes of user code."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from syncline.testing import run_program
from syncline.testing.waiting import eventually
from tests.core.embedded.reliability import PRELUDE, assert_all_gone

pytestmark = pytest.mark.processes

NAMED = """
me = sys.argv[1]
syncline.init(num_cpus=2)


@syncline.remote
class Owner:
    def __init__(self, owner):
        self.owner = owner

    def tell(self):
        return self.owner


@syncline.remote
def find():
    return syncline.get(syncline.get_actor("shared name").tell.remote())


owner = Owner.options(name="shared name").remote(me)
large = syncline.put(np.full(1_000_000, float(ord(me[0]))))
assert syncline.get(find.remote(), timeout=LIMIT_S) == me
print("found my own")
turn = 0
while not os.path.exists("end"):
    assert syncline.get(find.remote(), timeout=LIMIT_S) == me
    assert syncline.get(large).max() == ord(me[0])
    turn += 1
    if os.path.exists("tell"):
        os.remove("tell")
        print("still found", turn)
    time.sleep(0.02)
syncline.shutdown()
print("done")
"""


def test_two_programs_are_independent(tmp_path: Path) -> None:
    environment = {"SYNCLINE_TMPDIR": str(tmp_path)}
    with (
        run_program(PRELUDE + NAMED, "a", environment=environment) as one,
        run_program(PRELUDE + NAMED, "b", environment=environment) as two,
    ):
        one.wait_for("found my own")
        two.wait_for("found my own")
        two.send_signal(signal.SIGKILL)
        two.wait()
        assert_all_gone(two)
        (one.directory / "tell").touch()
        one.wait_for("still found")
        (one.directory / "end").touch()
        assert "done" in one.wait().check().stdout
        assert_all_gone(one)
    assert not list(tmp_path.glob("*/*"))


@pytest.fixture
def public_directory() -> Iterator[Path]:
    """A directory like `/tmp`, which every user may write to."""
    made = Path(tempfile.mkdtemp(prefix="public-"))
    made.chmod(0o1777)
    yield made
    shutil.rmtree(made)


NOBODY = 65534
BECOME_NOBODY = f"import os; os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"


def _nobody_can_import() -> bool:
    if os.getuid() != 0:
        return False
    again = "subprocess.run([sys.executable, '-c', 'import numpy'], check=True)"
    code = f"{BECOME_NOBODY}import numpy, syncline.core.embedded.start, subprocess, sys; {again}"
    source = str(Path(__file__).resolve().parents[3] / "src")
    tried = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        check=False,
    )
    return tried.returncode == 0


def test_two_users_share_a_directory_for_temporary_files(public_directory: Path) -> None:
    if not _nobody_can_import():
        pytest.skip("needs root, and an installation that other users can read")
    other_home = public_directory / "home"
    other_home.mkdir()
    os.chown(other_home, NOBODY, NOBODY)
    text = NAMED.replace('"end"', "sys.argv[2]").replace('"tell"', "sys.argv[3]")
    files = [str(public_directory / name) for name in ("end", "tell")]
    environment = {"SYNCLINE_TMPDIR": str(public_directory)}
    theirs = {**environment, "HOME": str(other_home), "TMPDIR": str(public_directory)}
    with (
        run_program(PRELUDE + text, "root", *files, environment=environment) as one,
        run_program(
            BECOME_NOBODY + "os.chdir('/')\n" + PRELUDE + text, "nobody", *files, environment=theirs
        ) as two,
    ):
        one.wait_for("found my own")
        two.wait_for("found my own")
        one.send_signal(signal.SIGKILL)
        one.wait()
        assert_all_gone(one)
        with run_program(
            PRELUDE + "syncline.init(num_cpus=1); print(syncline.get(syncline.put(3)))",
            environment=environment,
        ) as third:
            third.wait().check()  # sweeps dead sessions, but not the other user's
            assert_all_gone(third)
        Path(files[0]).touch()
        assert "done" in two.wait().check().stdout
        assert_all_gone(two)
        eventually(
            lambda: not list(public_directory.glob("syncline-*/*")), what="no session is left"
        )


SMALL_SHARED_MEMORY = """
if len(sys.argv) == 1:
    mount = 'mount -t tmpfs -o size=64m tmpfs /dev/shm && exec "$0" "$@"'
    program = [sys.executable, *sys.orig_argv[1:], "inside"]
    os.execvp("unshare", ["unshare", "-m", "sh", "-c", mount, *program])
syncline.init(num_cpus=2)
arrays = [np.full(2_500_000, float(i)) for i in range(10)]
kept = [syncline.put(array) for array in arrays]
made = [syncline.remote(lambda i: np.full(2_500_000, float(i))).remote(i) for i in range(10, 14)]
for i, ref in enumerate([*kept, *made]):
    array = syncline.get(ref, timeout=LIMIT_S)
    assert array.nbytes == 20_000_000 and array.min() == array.max() == i
sums = [syncline.remote(lambda array: float(array.sum())).remote(ref) for ref in kept]
assert syncline.get(sums, timeout=LIMIT_S) == [2_500_000.0 * i for i in range(10)]
store = statistics()["store"]
assert 0 < store.in_use_bytes <= 64 << 20, store
assert store.disk_segments >= 11, store
del kept, made, sums, ref, array
until_nothing_held()
syncline.shutdown()
assert os.listdir("/dev/shm") == [], os.listdir("/dev/shm")
print("done")
"""


def _may_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "-m", "sh", "-c", "mount -t tmpfs -o size=64m tmpfs /dev/shm"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_shared_memory_of_64_megabytes_suffices() -> None:
    if not _may_mount():
        pytest.skip("needs the right to mount its own shared memory")
    with run_program(PRELUDE + SMALL_SHARED_MEMORY) as program:
        assert "done" in program.wait().check().stdout
        assert_all_gone(program)


def test_forked_children_of_the_driver_do_not_affect_it() -> None:
    text = """
faulthandler.cancel_dump_traceback_later()  # a forked child's finalization would wait for it
syncline.init(num_cpus=2)


@syncline.remote
def double(x):
    return 2 * x


@syncline.remote
class Adder:
    def add(self, x):
        return x + 1


adder = Adder.remote()
large = syncline.put(np.ones(1_000_000))
array = syncline.get(large)
leave = [
    lambda: os._exit(0), lambda: sys.exit(0), lambda: os.kill(os.getpid(), 9),
    lambda: (syncline.shutdown(), os._exit(0)),
]
for number, way in enumerate(leave):
    running = [double.remote(i) for i in range(20)]
    pid = os.fork()
    if pid == 0:
        assert array.sum() == 1_000_000
        if number % 2:
            del large, array, adder, running
        way()
    os.waitpid(pid, 0)
    assert syncline.get(running, timeout=LIMIT_S) == [2 * i for i in range(20)], number
    assert syncline.get(adder.add.remote(number), timeout=LIMIT_S) == number + 1
    assert syncline.get(large, timeout=LIMIT_S).sum() == 1_000_000
for _ in range(3):  # while another thread works with the engine
    stop = threading.Event()

    def work():
        while not stop.is_set():
            assert syncline.get(double.remote(4), timeout=LIMIT_S) == 8

    thread = threading.Thread(target=work)
    thread.start()
    for _ in range(5):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    stop.set()
    thread.join()
del array, large, adder, running
# children may still read what was mapped when they were forked, so that one object stays to the end
until(
    lambda: statistics()["objects"].objects <= 1 and not statistics()["hub"].actors,
    "all other objects are freed",
)
print("done")
"""
    with run_program(PRELUDE + text) as program:
        assert "done" in program.wait().check().stdout
        assert_all_gone(program)


AGAIN = """
@syncline.remote
def double(x):
    return 2 * x


@syncline.remote
class Counter:
    def one(self):
        return 1


held = None
for turn in range(4):
    syncline.init(num_cpus=2)
    ref, counter = double.remote(turn), Counter.remote()
    assert syncline.get(counter.one.remote(), timeout=LIMIT_S) == 1
    if held is not None:
        old_ref, old_counter = held
        assert old_ref != ref
        try:
            syncline.get(old_ref, timeout=LIMIT_S)
        except exceptions.ObjectLostError:
            pass
        else:
            raise AssertionError("a reference of an earlier session leads somewhere")
        syncline.kill(old_counter)
        del old_ref, old_counter
    held = ref, counter
    del ref, counter
    syncline.put(0)  # what died is counted by now
    assert syncline.get(held[0], timeout=LIMIT_S) == 2 * turn
    assert syncline.get(held[1].one.remote(), timeout=LIMIT_S) == 1
    syncline.shutdown()
print("done")
"""


def test_references_of_an_earlier_session_are_invalid_in_the_next() -> None:
    with run_program(PRELUDE + AGAIN) as program:
        assert "done" in program.wait().check().stdout
        assert_all_gone(program)


CHILDREN = """
METHOD = sys.argv[1]
HELPER = '''
import os
import syncline

@syncline.remote
def double(x):
    return 2 * x


def child(ref, name, answers):
    total = float(syncline.get(ref, timeout=60).sum())
    doubled = syncline.get([double.remote(i) for i in range(5)], timeout=60)
    named = syncline.get(syncline.get_actor(name).pid.remote(), timeout=60)
    made = syncline.put([total])
    answers.put((os.getpid(), total, doubled, named, syncline.get(made)))


def run(method, ref, name):
    import multiprocessing
    context = multiprocessing.get_context(method)
    answers = context.Queue()
    children = [context.Process(target=child, args=(ref, name, answers)) for _ in range(2)]
    for process in children:
        process.start()
    found = [answers.get(timeout=60) for _ in children]
    for process in children:
        process.join(60)
    assert [process.exitcode for process in children] == [0, 0], children
    return found
'''
if __name__ == "__main__":  # children run this file as well, and would find a half-written helper
    open("helper.py", "w").write(HELPER)
import helper


@syncline.remote
class Named:
    def pid(self):
        return os.getpid()


def main():
    syncline.init(num_cpus=4)
    named = Named.options(name="somebody").remote()
    pid = syncline.get(named.pid.remote(), timeout=LIMIT_S)
    large = syncline.put(np.ones(500_000))
    there = syncline.remote(lambda refs: helper.run(METHOD, refs[0], "somebody")).remote([large])
    for found in (helper.run(METHOD, large, "somebody"), syncline.get(there, timeout=LIMIT_S)):
        assert len({entry[0] for entry in found}) == 2
        for entry in found:
            assert entry[1:] == (500_000.0, [0, 2, 4, 6, 8], pid, [500_000.0]), entry
    until(lambda: statistics()["hub"].processes <= 6, "children have left the hub")
    assert syncline.get(named.pid.remote(), timeout=LIMIT_S) == pid
    del large, there, named
    until_nothing_held()
    print("done")


if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_children_by_multiprocessing_take_part(method: str) -> None:
    with run_program(PRELUDE + CHILDREN, method) as program:
        assert "done" in program.wait().check().stdout
        assert_all_gone(program)
