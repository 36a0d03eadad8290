"""Killed workers: their tasks are retried or fail with a cause, and nothing leaks."""

from __future__ import annotations

from pathlib import Path

import pytest

from syncline.testing import fault_environment, run_program
from tests.core.embedded.reliability import PRELUDE, assert_all_gone

pytestmark = pytest.mark.processes

DIE_ONCE = """
syncline.init(num_cpus=3)


def once(name):
    try:
        os.close(os.open(name, os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False


def crash_of(ref):
    try:
        syncline.get(ref, timeout=LIMIT_S)
    except exceptions.RayError as error:
        return error
    raise SystemExit("no error")

"""


def _run(text: str, environment: dict[str, str] | None = None) -> None:
    with run_program(
        PRELUDE + DIE_ONCE + text + "\nuntil_nothing_held()\nprint('done')\n",
        environment=environment,
    ) as program:
        assert "done" in program.wait().check().stdout
        assert_all_gone(program)


def test_idle_worker_killed() -> None:
    _run("""
pid_of = syncline.remote(os.getpid)
for _ in range(5):
    pid = syncline.get(pid_of.remote(), timeout=LIMIT_S)
    os.kill(pid, signal.SIGKILL)
    assert pid not in syncline.get([pid_of.remote() for _ in range(30)], timeout=LIMIT_S)[-1:]
""")


@pytest.mark.promise
def test_running_task_is_retried() -> None:
    _run("""
@syncline.remote(max_retries=1)
def survive(x):
    if once("survive"):
        os.kill(os.getpid(), signal.SIGKILL)
    return x


assert syncline.get(survive.remote(np.ones(1_000_000)), timeout=LIMIT_S).sum() == 1_000_000
""")


def test_error_of_a_task_without_retries_has_cause_and_last_lines() -> None:
    _run("""
@syncline.remote(max_retries=0)
def die():
    print(f"last words of {os.getpid()}", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


error = crash_of(die.remote())
assert isinstance(error, exceptions.WorkerCrashedError), repr(error)
assert "SIGKILL" in error.exit_cause and "SIGKILL" in str(error), error
assert f"last words of {error.pid}" in error.log_tail, error.log_tail


@syncline.remote(max_retries=2)
def leave():
    os._exit(3)


error = crash_of(leave.remote())
assert isinstance(error, exceptions.WorkerCrashedError) and "3" in error.exit_cause, repr(error)
del error
""")


def test_worker_killed_in_nested_get() -> None:
    _run("""
@syncline.remote(max_retries=-1)
def inner(x):
    with open(f"inner-{x}", "w") as file:
        file.write(str(os.getpid()))
    until_open(f"go-{x}")
    return x + 1


@syncline.remote(max_retries=-1)
def outer(x):
    with open(f"outer-{x}", "w") as file:
        file.write(str(os.getpid()))
    return 10 * syncline.get(inner.remote(x))


def until_open(name):
    while not os.path.exists(name):
        time.sleep(0.005)


def pid_in(name):
    until(lambda: os.path.exists(name) and open(name).read(), f"{name} is written")
    return int(open(name).read())


for x, victim in enumerate(["outer", "inner", "both"]):
    result = outer.remote(x)
    pids = [pid_in(f"{name}-{x}") for name in ("inner", "outer")]
    for name, pid in zip(("inner", "outer"), pids):
        if victim in (name, "both"):
            os.kill(pid, signal.SIGKILL)
    open(f"go-{x}", "w").close()
    assert syncline.get(result, timeout=LIMIT_S) == 10 * (x + 1)
del result
""")


@pytest.mark.promise
def test_killed_actor_restarts_and_then_dies() -> None:
    _run("""
@syncline.remote(max_restarts=1)
class Fragile:
    def __init__(self):
        print("hello from", os.getpid(), flush=True)

    def pid(self):
        return os.getpid()

    def stay(self):
        open("stays", "w").close()
        time.sleep(1000)


actor = Fragile.remote()
first = syncline.get(actor.pid.remote(), timeout=LIMIT_S)
in_flight = [actor.stay.remote(), actor.pid.remote()]
until(lambda: os.path.exists("stays"), "the call runs")
os.kill(first, signal.SIGKILL)
error = crash_of(in_flight[0])
assert isinstance(error, exceptions.ActorUnavailableError), repr(error)
deadline = time.monotonic() + LIMIT_S
while True:
    try:
        second = syncline.get(actor.pid.remote(), timeout=LIMIT_S)
        break
    except exceptions.ActorUnavailableError:
        assert time.monotonic() < deadline
assert second != first
os.kill(second, signal.SIGKILL)
until(lambda: not is_alive(second), "the process is gone")
while True:
    error = crash_of(actor.pid.remote())
    if isinstance(error, exceptions.ActorDiedError):
        break
    assert time.monotonic() < deadline
assert "SIGKILL" in str(error) and f"hello from {second}" in (error.log_tail or ""), repr(error)
try:
    syncline.get(in_flight[1], timeout=LIMIT_S)
except exceptions.RayActorError:
    pass
del actor, in_flight, error
""")


def test_calls_of_a_killed_actor_are_retried_in_order() -> None:
    _run("""
@syncline.remote(max_restarts=-1, max_task_retries=-1)
class Stubborn:
    def number(self, x):
        if x % 10 == 5 and once(f"number-{x}"):
            os.kill(os.getpid(), signal.SIGKILL)
        return x


actor = Stubborn.remote()
assert syncline.get([actor.number.remote(i) for i in range(40)], timeout=LIMIT_S) == list(range(40))
del actor
""")


def test_worker_killed_while_it_holds_and_writes_objects() -> None:
    _run("""
@syncline.remote(max_retries=0)
def hold(refs):
    array = syncline.get(refs[0])
    kept = [syncline.put(array + i) for i in range(3)]
    open("holds", "w").close()
    time.sleep(1000)


@syncline.remote(max_retries=0)
def put_on():
    array = np.ones(2_000_000)
    while True:
        kept = syncline.put(array)
        open("puts", "w").close()


shared = syncline.put(np.full(2_000_000, 3.0))
tasks = [hold.remote([shared]), put_on.remote()]
until(lambda: os.path.exists("holds") and os.path.exists("puts"), "both run")
for process in list(hub().processes.values()):
    if process.pid:
        os.kill(process.pid, signal.SIGKILL)
for task in tasks:
    assert isinstance(crash_of(task), exceptions.WorkerCrashedError)
array = syncline.get(shared, timeout=LIMIT_S)
assert array.min() == array.max() == 3.0
del array, shared, tasks, task
""")


RESULTS = """
@syncline.remote(max_retries=RETRIES)
def large(x):
    return np.full(1_000_000, float(x))


@syncline.remote(max_retries=RETRIES)
def small(x):
    return x


for function in (large, small):
    for x in range(3):
        try:
            value = syncline.get(function.remote(x), timeout=LIMIT_S)
            assert np.max(value) == np.min(value) == x
        except exceptions.WorkerCrashedError:
            assert RETRIES == 0
            print("crashed")
value = None
"""


@pytest.mark.parametrize("retries", [0, 3])
def test_worker_killed_before_it_sends_its_result(retries: int, tmp_path: Path) -> None:
    environment = fault_environment({"worker.before_result": f"kill:1@{tmp_path / 'killed'}"})
    _run(RESULTS.replace("RETRIES", str(retries)), environment)
    assert (tmp_path / "killed").exists()


@pytest.mark.parametrize(
    "point", ["worker.before_task", "worker.before_constructed", "worker.before_call"]
)
def test_worker_killed_at_other_moments(point: str, tmp_path: Path) -> None:
    text = """
@syncline.remote(max_restarts=1, max_task_retries=1)
class Keeper:
    def keep(self, x):
        return x


keepers = [Keeper.remote() for _ in range(2)]
pending = [keeper.keep.remote(np.ones(100_000)) for keeper in keepers]
assert syncline.get(pending, timeout=LIMIT_S)[1].sum() == 100_000
del pending
double = syncline.remote(lambda x: 2 * x)
assert syncline.get([double.remote(i) for i in range(20)], timeout=LIMIT_S) == list(range(0, 40, 2))
del keepers
"""
    _run(text, fault_environment({point: f"kill:1@{tmp_path / 'killed'}"}))
    assert (tmp_path / "killed").exists()
