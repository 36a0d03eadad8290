"""Long use leaks nothing; under random failures results are right and tables become empty."""

from __future__ import annotations

import pytest

from syncline.testing import run_program
from tests.core.embedded.reliability import PRELUDE, assert_all_gone

pytestmark = [pytest.mark.long, pytest.mark.processes]


def _run(text: str, *args: str) -> None:
    with run_program(PRELUDE + text, *args) as program:
        assert "done" in program.wait(within_s=200).check().stdout
        assert_all_gone(program)


MEASURE = """
import gc, psutil
process = psutil.Process()


def measured():
    gc.collect()
    return process.memory_info().rss, process.num_fds(), process.num_threads()


def assert_flat(before, what, bytes_each, count):
    until_nothing_held()
    rss, fds, threads = (after - earlier for after, earlier in zip(measured(), before))
    assert rss <= count * bytes_each, f"{what}: {rss / count:.0f} bytes each stay in the driver"
    assert fds <= 30 and threads <= 2, f"{what}: {fds} more descriptors, {threads} more threads"

"""


def test_small_objects_leak_nothing_in_the_driver() -> None:
    _run(
        MEASURE
        + """
syncline.init(num_cpus=2)


@syncline.remote
def double(x):
    return [2 * x]


def turn(count):
    refs = [syncline.put([i]) for i in range(count)]
    results = [double.remote(i) for i in range(count)]
    assert syncline.get(refs, timeout=LIMIT_S) == [[i] for i in range(count)]
    assert syncline.get(results, timeout=LIMIT_S) == [[2 * i] for i in range(count)]


for _ in range(3):
    turn(5_000)
before = measured()
for _ in range(4):
    turn(5_000)
assert_flat(before, "an object", 200, 40_000)
print("done")
"""
    )


def test_large_objects_leak_nothing_in_the_driver() -> None:
    _run(
        MEASURE
        + """
syncline.init(num_cpus=2)


@syncline.remote
def copy(array):
    return array + 1


def turn(count):
    for i in range(count):
        array = np.full(50_000, float(i))
        assert syncline.get(copy.remote(syncline.put(array)), timeout=LIMIT_S)[-1] == i + 1


turn(200)
before = measured()
turn(600)
assert_flat(before, "an array", 4_000, 600)
assert statistics()["store"].created < 100, statistics()["store"]
print("done")
"""
    )


def test_actors_leak_nothing_in_the_driver() -> None:
    _run(
        MEASURE
        + """
syncline.init(num_cpus=4)


@syncline.remote(num_cpus=0)
class Keeper:
    def __init__(self, x):
        self.x = x

    def tell(self):
        return self.x


def turn(count):
    for first in range(0, count, 10):
        keepers = [Keeper.remote(first + i) for i in range(10)]
        kept = syncline.get([keeper.tell.remote() for keeper in keepers], timeout=LIMIT_S)
        assert kept == list(range(first, first + 10))
        if first % 20:
            for keeper in keepers:
                syncline.kill(keeper)
        del keepers
        keeper = None


def workers_left():
    return statistics()["processes"].workers <= 8


turn(100)
until(workers_left, "processes of dead actors have ended")
before = measured()
turn(400)
until(workers_left, "processes of dead actors have ended")
assert_flat(before, "an actor", 6_000, 400)
print("done")
"""
    )


FUZZ = """
random.seed(int(sys.argv[1]))
syncline.init(num_cpus=4)


@syncline.remote(max_retries=-1)
def leaf(x, seconds):
    time.sleep(seconds)
    return x + 1


@syncline.remote(max_retries=-1)
def tree(x, depth):
    if depth == 0:
        return x
    return sum(syncline.get([tree.remote(x + i, depth - 1) for i in range(2)]))


@syncline.remote(max_retries=-1)
def large(x):
    return np.full(50_000, float(x))


@syncline.remote(max_retries=-1)
def total(array, refs):
    return float(array.sum()) + float(syncline.get(refs[0]).sum())


@syncline.remote(max_retries=-1, num_returns="streaming")
def stream(count):
    for i in range(count):
        yield i


@syncline.remote(max_restarts=-1, max_task_retries=-1)
class Steady:
    def square(self, x):
        return x * x

    def nested(self, x):
        return syncline.get(leaf.remote(x, 0))


@syncline.remote
class Fragile:
    def square(self, x):
        return x * x


def expected_tree(x, depth):
    return x if depth == 0 else expected_tree(x, depth - 1) + expected_tree(x + 1, depth - 1)


def kill_some():
    pids = [process.pid for process in list(hub().processes.values()) if process.pid]
    if pids:
        try:
            os.kill(random.choice(pids), signal.SIGKILL)
        except ProcessLookupError:
            pass


steady = [Steady.remote() for _ in range(2)]
asked = []  # (reference, value, errors that are fine)
streams = []
for step in range(300):
    choice, x = random.random(), random.randrange(100)
    if choice < 0.3:
        asked.append((leaf.remote(x, random.choice([0, 0, 0.005])), x + 1, ()))
    elif choice < 0.4:
        asked.append((tree.remote(x, 2), expected_tree(x, 2), ()))
    elif choice < 0.5:
        asked.append((total.remote(large.remote(x), [large.remote(x)]), 100_000.0 * x, ()))
    elif choice < 0.65:
        asked.append((random.choice(steady).square.remote(x), x * x, ()))
    elif choice < 0.7:
        asked.append((random.choice(steady).nested.remote(x), x + 1, ()))
    elif choice < 0.75:
        asked.append((Fragile.remote().square.remote(x), x * x, (exceptions.RayActorError,)))
    elif choice < 0.8:
        streams.append((stream.remote(5), 5))
    elif choice < 0.9:
        ref = random.choice([leaf.remote(x, 0.02), tree.remote(x, 1)])
        syncline.cancel(ref, force=random.random() < 0.3, recursive=random.random() < 0.5)
        errors = (
            exceptions.TaskCancelledError, exceptions.RayTaskError, exceptions.WorkerCrashedError
        )
        asked.append((ref, None, errors))
    elif choice < 0.95:
        kill_some()
    elif asked:
        syncline.wait([ref for ref, _, _ in asked], num_returns=min(len(asked), 5), timeout=0.01)
for number, (ref, value, fine) in enumerate(asked):
    try:
        result = syncline.get(ref, timeout=LIMIT_S)
        assert value is None or result == value, (number, result, value)
    except exceptions.GetTimeoutError as error:
        raise SystemExit(f"{number} hangs: {statistics()}") from error
    except exceptions.RayError as error:
        if not isinstance(error, fine):
            raise
for generator, count in streams:
    assert [syncline.get(item, timeout=LIMIT_S) for item in generator] == list(range(count))
del asked, streams, steady, ref, generator
until_nothing_held()
now = statistics()
assert now["objects"].pending == 0, now
scheduler = now["scheduler"]
assert scheduler.running == scheduler.queued == scheduler.blocked == 0, now
until(lambda: syncline.available_resources().get("CPU") == 4, "all CPUs are free again")
print("done")
"""


@pytest.mark.parametrize("seed", range(4))
def test_random_work_with_random_kills(seed: int) -> None:
    _run(FUZZ, str(seed))


FORCED = """
random.seed(int(sys.argv[1]))
syncline.init(num_cpus=2)
ready = syncline.put(1)


@syncline.remote
def later():
    time.sleep(random.random() * 0.01)
    return 1


@syncline.remote(max_retries=0)
def inner(refs):
    return syncline.get(refs[0])


for step in range(2_500):
    value = later.remote() if random.random() < 0.2 else ready
    refs = [inner.remote([value]) for _ in range(random.choice([3, 3, 8]))]
    target = random.randrange(len(refs))
    if random.random() < 0.8:
        time.sleep(random.random() * 0.007)
    syncline.cancel(refs[target], force=random.random() < 0.9)
    for number, ref in enumerate(refs):
        try:
            assert syncline.get(ref, timeout=LIMIT_S) == 1
        except exceptions.TaskCancelledError:
            assert number == target, (step, number, target)
print("done")
"""


@pytest.mark.parametrize("seed", range(4))
def test_forced_cancellation_takes_no_other_task_with_it(seed: int) -> None:
    _run(FORCED, str(seed))
