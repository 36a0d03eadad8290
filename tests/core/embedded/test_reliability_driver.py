"""Every end of the driver leaves no process and no file; the fork server's end affects no task."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from syncline.testing import Program, run_program
from tests.core.embedded.reliability import PRELUDE, assert_all_gone

pytestmark = pytest.mark.processes

IDLE = """
syncline.init(num_cpus=2)
syncline.get(syncline.remote(os.getpid).remote(), timeout=LIMIT_S)
kept = syncline.put(np.ones(1_000_000))
print("fork_server", fork_server_pid())
print("ready")
time.sleep(1000)
"""

RUNNING = """
import multiprocessing
syncline.init(num_cpus=4)


@syncline.remote
def with_children(method):
    held = syncline.put(np.ones(1_000_000))
    if method == "program":
        child = subprocess.Popen(["sleep", "1000"])
    else:
        child = multiprocessing.get_context(method).Process(target=time.sleep, args=(1000,))
        child.start()
    open(f"started-{method}", "w").close()
    time.sleep(1000)


@syncline.remote
class Waiting:
    def on(self, refs):
        return syncline.get(refs[0])


methods = ["program", "fork", "forkserver", "spawn"]
running = [with_children.remote(method) for method in methods]
waiting = Waiting.remote()
answer = waiting.on.remote([running[0]])
until(lambda: all(os.path.exists(f"started-{method}") for method in methods), "all tasks run")
print("fork_server", fork_server_pid())
print("ready")
syncline.get(answer)
"""

PUTTING = """
syncline.init(num_cpus=1)
syncline.get(syncline.remote(os.getpid).remote(), timeout=LIMIT_S)
print("fork_server", fork_server_pid())
array = np.ones(25_000_000)
kept = [syncline.put(array)]
print("ready")
while True:
    kept = [*kept[-2:], syncline.put(array)]
"""

STARTING = """
syncline.init(num_cpus=8)


@syncline.remote
def sleep():
    time.sleep(1000)


running = [sleep.remote() for _ in range(20)]
print("fork_server", fork_server_pid())
print("ready")
time.sleep(1000)
"""

PROGRAMS = {"idle": IDLE, "running": RUNNING, "putting": PUTTING, "starting": STARTING}


def _template(program: Program) -> int:
    return int(program.wait_for("fork_server").split()[1])


@pytest.mark.promise
@pytest.mark.parametrize("doing", PROGRAMS)
def test_killed_driver_leaves_nothing(doing: str) -> None:
    with run_program(PRELUDE + PROGRAMS[doing]) as program:
        program.wait_for("ready")
        program.send_signal(signal.SIGKILL)
        assert program.wait().return_code == -signal.SIGKILL
        assert_all_gone(program)


@pytest.mark.parametrize("doing", ["idle", "running", "putting"])
def test_workers_clean_up_when_driver_and_fork_server_are_killed(doing: str) -> None:
    with run_program(PRELUDE + PROGRAMS[doing]) as program:
        program.wait_for("ready")
        os.kill(_template(program), signal.SIGKILL)
        program.send_signal(signal.SIGKILL)
        assert program.wait().return_code == -signal.SIGKILL
        assert_all_gone(program)


def test_next_program_removes_files_of_a_program_without_survivors(tmp_path: Path) -> None:
    environment = {"SYNCLINE_TMPDIR": str(tmp_path)}
    text = (
        "syncline.init(num_cpus=1)\nkept = syncline.put(np.ones(1_000_000))\n"
        "print('fork_server', fork_server_pid())\ntime.sleep(1000)\n"
    )
    with run_program(PRELUDE + text, environment=environment) as program:
        os.kill(_template(program), signal.SIGKILL)
        program.end()  # every process at the same time: none is left to clean up
        with run_program(PRELUDE + "syncline.init(num_cpus=1)", environment=environment) as after:
            after.wait().check()
            assert_all_gone(after)
        assert_all_gone(program)
        assert not list(tmp_path.glob("*/*"))


def test_driver_killed_long_after_the_fork_server_leaves_nothing() -> None:
    with run_program(
        PRELUDE + RUNNING.replace('print("ready")', "os.kill(fork_server_pid(), 9); print('ready')")
    ) as program:
        program.wait_for("ready")
        program.send_signal(signal.SIGKILL)
        program.wait()
        assert_all_gone(program)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_driver_ended_by_a_signal_leaves_nothing(number: signal.Signals) -> None:
    with run_program(PRELUDE + RUNNING) as program:
        program.wait_for("ready")
        program.signal_group(number)
        ended = program.wait()
        assert ended.return_code == -number
        if number == signal.SIGINT:
            assert "KeyboardInterrupt" in ended.stderr
        assert_all_gone(program)


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("sys.exit(7)", 7),
        ("raise LookupError('this one')", 1),
        ("os._exit(9)", 9),
        ("os.abort()", -signal.SIGABRT),
        ("os.execv(sys.executable, [sys.executable, '-c', 'print(1)'])", 0),
        ("syncline.shutdown()", 0),
        (
            "threading.Thread(target=lambda: (syncline.shutdown(), os._exit(5))).start()\n"
            "time.sleep(1000)",
            5,
        ),
    ],
)
def test_every_way_to_leave_a_program_leaves_nothing(end: str, code: int) -> None:
    text = RUNNING.replace("syncline.get(answer)", end)
    with run_program(PRELUDE + text) as program:
        ended = program.wait()
        assert ended.return_code == code, ended.stderr
        if "this one" in end:
            assert "LookupError: this one" in ended.stderr
        assert_all_gone(program)


def test_killed_fork_server_is_replaced_without_effect_on_tasks() -> None:
    text = """
syncline.init(num_cpus=4)


@syncline.remote
def double(x, seconds=0.0):
    open(f"begun-{x}", "w").close()
    time.sleep(seconds)
    return 2 * x


@syncline.remote(max_restarts=1)
class Counter:
    def __init__(self):
        self.n = 0

    def add(self):
        self.n += 1
        return self.n, os.getpid()


@syncline.remote(max_retries=0)
def with_child():
    child = subprocess.Popen(["sleep", "1000"])
    with open("child.tmp", "w") as file:
        file.write(f"{os.getpid()} {child.pid}")
    os.rename("child.tmp", "child")
    time.sleep(1000)


counter = Counter.remote()
first, pid = syncline.get(counter.add.remote(), timeout=LIMIT_S)
lasting = double.remote(21, 1.0)
doomed = with_child.remote()
until(lambda: os.path.exists("begun-21") and os.path.exists("child"), "tasks run")
before = fork_server_pid()
os.kill(before, signal.SIGKILL)

assert syncline.get(counter.add.remote(), timeout=LIMIT_S) == (2, pid), "same process"
doubled = syncline.get([double.remote(i, 0.01) for i in range(40)], timeout=LIMIT_S)
assert doubled == [2 * i for i in range(40)]
assert syncline.get(lasting, timeout=LIMIT_S) == 42
others = [Counter.remote() for _ in range(3)]
added = syncline.get([other.add.remote() for other in others], timeout=LIMIT_S)
assert [n for n, _ in added] == [1, 1, 1]
until(lambda: fork_server_pid() != before, "there is a new fork_server")

with open("child") as file:
    worker, child = map(int, file.read().split())
os.kill(worker, signal.SIGKILL)
try:
    syncline.get(doomed, timeout=LIMIT_S)
    raise SystemExit("the task has a result without its worker")
except exceptions.WorkerCrashedError:
    pass
until(lambda: not is_alive(child), "what the dead worker started is ended too")

os.kill(pid, signal.SIGKILL)
until(lambda: not is_alive(pid), "the actor's process is gone")
deadline = time.monotonic() + LIMIT_S
while True:  # an actor that an earlier fork server made restarts like any other
    try:
        assert syncline.get(counter.add.remote(), timeout=LIMIT_S)[0] == 1
        break
    except exceptions.ActorUnavailableError:
        assert time.monotonic() < deadline
del counter, others, lasting, doomed
until_nothing_held()
print("done")
"""
    with run_program(PRELUDE + text) as program:
        assert "done" in program.wait().check().stdout
        assert_all_gone(program)


def test_get_works_again_after_an_interrupt() -> None:
    text = """
syncline.init(num_cpus=2)


@syncline.remote
def double(x, seconds=0.0):
    time.sleep(seconds)
    return 2 * x


lasting = double.remote(4, 1.0)
waiting = double.remote(5, 1000)
try:
    threading.Timer(0.3, print, ("ready",)).start()
    syncline.get(waiting)
    raise SystemExit("no interrupt")
except KeyboardInterrupt:
    pass
assert syncline.get(lasting, timeout=LIMIT_S) == 8, "Ctrl-C does not reach workers"
syncline.cancel(waiting)
doubled = syncline.get([double.remote(i) for i in range(50)], timeout=LIMIT_S)
assert doubled == [2 * i for i in range(50)]
print("done")
"""
    with run_program(PRELUDE + text) as program:
        program.wait_for("ready")
        program.signal_group(signal.SIGINT)
        assert "done" in program.wait().check().stdout
        assert_all_gone(program)


def test_interrupts_at_any_moment_break_nothing() -> None:
    text = """
syncline.init(num_cpus=2)
moments = random.Random(11)


@syncline.remote
def double(x):
    return 2 * x


@syncline.remote
class Adder:
    def add(self, x):
        return x + 1


adder = Adder.remote()
syncline.get(adder.add.remote(0), timeout=LIMIT_S)
main = threading.main_thread().ident
for turn in range(20):
    made = []
    timer = threading.Timer(moments.uniform(0.0, 0.1), signal.pthread_kill, (main, signal.SIGINT))
    try:
        timer.start()
        number = 0
        while True:
            number += 1
            if turn % 4 == 0:
                made.append((2 * number, double.remote(number)))
            elif turn % 4 == 1:
                made.append((number + 1, adder.add.remote(number)))
            elif turn % 4 == 2:
                made.append((number, syncline.put(number)))
                syncline.wait([made[-1][1]], timeout=LIMIT_S)
            else:
                assert syncline.get(double.remote(number), timeout=LIMIT_S) == 2 * number
    except KeyboardInterrupt:
        pass
    timer.join()
    expected = [value for value, _ in made]
    assert syncline.get([ref for _, ref in made], timeout=LIMIT_S) == expected, turn
    assert syncline.get(adder.add.remote(turn), timeout=LIMIT_S) == turn + 1
print("done")
"""
    with run_program(PRELUDE + text) as program:
        assert "done" in program.wait().check().stdout
        assert_all_gone(program)


def test_long_directory_for_temporary_files() -> None:
    text = """
import multiprocessing

os.makedirs(os.environ["SYNCLINE_TMPDIR"])


def child(ref, answers):
    answers.put(float(syncline.get(ref, timeout=LIMIT_S).sum()))


syncline.init(num_cpus=1)
assert len(syncline.get(syncline.remote(os.getcwd).remote(), timeout=LIMIT_S)) > 1
context = multiprocessing.get_context("fork")
answers = context.Queue()
held = syncline.put(np.ones(100_000))
process = context.Process(target=child, args=(held, answers))
process.start()
assert answers.get(timeout=LIMIT_S) == 100_000
process.join()
print("ready")
time.sleep(1000)
"""
    with run_program(
        PRELUDE
        + "os.environ['SYNCLINE_TMPDIR'] = os.path.join(os.environ['TMPDIR'], *['d' * 150] * 3)\n"
        + text
    ) as program:
        program.wait_for("ready")
        program.send_signal(signal.SIGKILL)
        program.wait()
        assert_all_gone(program)
