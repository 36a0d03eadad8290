"""`Pool` beside `multiprocessing.Pool`: each case gives the same on both.

Not compared, because the standard library waits forever there: workers that die, initializers that
raise, results of a terminated pool. Different on purpose: `imap` yields the exception of an item,
as Ray's pool does, where the standard library raises it; a function that raises StopIteration fails
its item, where the standard library leaves the item out; `map_async` of nothing calls its callback.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import multiprocessing
import operator
import os
import pickle
import queue
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.pool import Pool as StandardPool
from typing import Any

import pytest

import syncline
from syncline.util.multiprocessing import Pool

pytestmark = pytest.mark.processes

LIMIT_S = 60.0
# Not "fork": children of this process, which has loaded all libraries of other tests, may crash.
STANDARD = functools.partial(StandardPool, context=multiprocessing.get_context("forkserver"))


@pytest.fixture(scope="module", autouse=True)
def engine() -> Iterator[None]:
    syncline.init(num_cpus=2)
    yield
    syncline.shutdown()


@pytest.fixture(scope="module")
def pools(engine: None) -> Iterator[tuple[Any, Any]]:
    with STANDARD(2) as standard, Pool(2) as ours:
        yield standard, ours


def outcome(call: Callable[[], object]) -> object:
    """Return the value of a call, or the type of its exception."""
    try:
        return call()
    except Exception as error:
        return type(error)


def square(value: int) -> int:
    return value * value


def add(left: int, right: int = 10, *, factor: int = 1) -> int:
    return factor * (left + right)


def fail_on(value: int, bad: int) -> int:
    if value == bad:
        raise LookupError(f"bad {value}")
    return value


def fail_always(value: int) -> int:
    raise KeyError(value)


def nap(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


class Doubler:
    def __call__(self, value: int) -> int:
        return 2 * value

    def method(self, value: int) -> int:
        return 3 * value


class OwnError(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code


def raise_own(value: int) -> int:
    raise OwnError(value, "text")


def broken(count: int) -> Iterator[int]:
    yield from range(count)
    raise OSError("the iterable is broken")


def taken(results: Iterator[Any]) -> list[object]:
    """Return values and the types of exceptions, which one pool raises and the other one yields."""
    found: list[object] = []
    while True:
        try:
            value = next(results)
        except StopIteration:
            return found
        except Exception as error:
            found.append(type(error))
        else:
            found.append(type(value) if isinstance(value, Exception) else value)


CASES: dict[str, Callable[[Any], object]] = {
    "map": lambda pool: pool.map(square, [3, 1, 2]),
    "map of nothing": lambda pool: pool.map(square, []),
    "map of a generator": lambda pool: pool.map(square, (n for n in range(7))),
    "map of a range, a dict, a text": lambda pool: [
        pool.map(square, range(5)),
        pool.map(square, {1: 2, 3: 4}),
        pool.map(str.upper, "abc"),
    ],
    "map with chunk sizes": lambda pool: [
        pool.map(square, range(11), size) for size in (1, 2, 5, 11, 100)
    ],
    "map of builtins and classes": lambda pool: [
        pool.map(len, ["a", "bb"]),
        pool.map(int, ["1", "2"]),
        pool.map(operator.itemgetter(1), [(1, 2), (3, 4)]),
        pool.map(functools.partial(add, 1), [1, 2]),
        pool.map(Doubler(), [1, 2]),
        pool.map(Doubler().method, [1, 2]),
    ],
    "map of large items": lambda pool: pool.map(len, [bytes(1_000_000)] * 4),
    "map of None": lambda pool: pool.map(print, []) + pool.map(str, [None, None]),
    "map of no iterable": lambda pool: pool.map(square, 5),
    "map of a broken iterable": lambda pool: pool.map(square, broken(3)),
    "map with an error": lambda pool: pool.map(functools.partial(fail_on, bad=2), range(4)),
    "map of a number instead of a function": lambda pool: pool.map(5, [1]),
    "map by keywords": lambda pool: pool.map(func=square, iterable=[1, 2], chunksize=1),
    "map_async": lambda pool: pool.map_async(square, [1, 2]).get(LIMIT_S),
    "map_async by keywords": lambda pool: pool.map_async(
        func=square, iterable=[1], chunksize=None, callback=None, error_callback=None
    ).get(timeout=LIMIT_S),
    "starmap": lambda pool: pool.starmap(add, [(1, 2), (3,)]),
    "starmap of a generator of lists": lambda pool: pool.starmap(add, ([n, n] for n in range(4))),
    "starmap with chunks": lambda pool: pool.starmap(add, zip(range(9), range(9), strict=True), 4),
    "starmap with too many arguments": lambda pool: pool.starmap(square, [(1, 2)]),
    "starmap_async": lambda pool: pool.starmap_async(add, [(1, 2)]).get(LIMIT_S),
    "apply": lambda pool: pool.apply(add, (1,), {"factor": 3}),
    "apply by keywords": lambda pool: pool.apply(func=add, args=[1, 2], kwds={"factor": 2}),
    "apply without arguments": lambda pool: pool.apply(dict),
    "apply with an error": lambda pool: pool.apply(raise_own, (3,)),
    "apply_async": lambda pool: pool.apply_async(add, (1,), {"factor": 3}).get(LIMIT_S),
    "apply_async by keywords": lambda pool: pool.apply_async(
        func=add, args=(1,), kwds={"factor": 2}, callback=None, error_callback=None
    ).get(),
    "imap": lambda pool: list(pool.imap(square, range(9))),
    "imap with chunks": lambda pool: list(pool.imap(square, range(9), 4)),
    "imap of nothing": lambda pool: list(pool.imap(square, [])),
    "imap after its end": lambda pool: [
        outcome(functools.partial(next, results))
        for results in [iter(pool.imap(square, []))]
        for _ in range(2)
    ],
    "imap with an error": lambda pool: taken(
        pool.imap(functools.partial(fail_on, bad=1), range(4))
    ),
    "imap of a broken iterable": lambda pool: taken(itertools.islice(pool.imap(square, [1]), 1)),
    "imap_unordered": lambda pool: sorted(pool.imap_unordered(square, range(9))),
    "imap_unordered with chunks": lambda pool: sorted(pool.imap_unordered(square, range(9), 4)),
    "imap_unordered by speed": lambda pool: list(pool.imap_unordered(nap, [0.6, 0.0])),
    "next with a timeout": lambda pool: next_with_a_timeout(pool),
    "get with a timeout": lambda pool: get_with_a_timeout(pool),
    "a result that is not ready": lambda pool: not_ready(pool),
    "a failed result": lambda pool: failed_result(pool),
    "get again": lambda pool: get_again(pool),
    "callbacks": lambda pool: callbacks(pool),
    "an error of the program": lambda pool: own_error(pool),
    "chunk sizes of zero": lambda pool: [
        outcome(lambda: list(pool.imap(square, [1], 0))),
        outcome(lambda: list(pool.imap_unordered(square, [1], 0))),
    ],
    "pickling": lambda pool: pickle.dumps(pool),
    "calls of several threads": lambda pool: from_threads(pool),
    "join of a running pool": lambda pool: pool.join(),
    "a function that cannot be found": lambda pool: pool.map(threading.Lock().acquire, [1]) and 1,
}


def next_with_a_timeout(pool: Any) -> object:
    results = pool.imap(nap, [1.0, 0.0])
    early = outcome(lambda: results.next(timeout=0.01))
    return early, results.next(LIMIT_S), results.next(timeout=LIMIT_S), taken(results)


def get_with_a_timeout(pool: Any) -> object:
    result = pool.apply_async(nap, (1.0,))
    early = [outcome(lambda: result.get(timeout=0.01)), outcome(lambda: result.get(0))]
    return early, result.wait(0.01), result.get(LIMIT_S), result.wait()


def not_ready(pool: Any) -> object:
    result = pool.map_async(nap, [1.0])
    before = result.ready(), outcome(result.successful)
    result.wait()
    return before, result.ready(), result.successful()


def failed_result(pool: Any) -> object:
    result = pool.map_async(fail_always, [1])
    result.wait(LIMIT_S)
    return result.ready(), result.successful(), outcome(result.get), outcome(result.get)


def get_again(pool: Any) -> object:
    result = pool.map_async(square, [1, 2])
    return result.get(), result.get()


def callbacks(pool: Any) -> object:
    seen: queue.Queue[object] = queue.Queue()

    def both(name: str) -> dict[str, Callable[[object], None]]:
        return {
            "callback": lambda value: seen.put((name, value)),
            "error_callback": lambda error: seen.put((name, type(error), error.args)),
        }

    found = []
    pool.apply_async(add, (1,), **both("apply"))
    found.append(seen.get(timeout=LIMIT_S))
    pool.apply_async(fail_always, (1,), **both("apply"))
    found.append(seen.get(timeout=LIMIT_S))
    pool.map_async(square, [1, 2], **both("map"))
    found.append(seen.get(timeout=LIMIT_S))
    pool.map_async(fail_always, [7], **both("map"))
    found.append(seen.get(timeout=LIMIT_S))
    pool.starmap_async(add, [(1, 2)], **both("star"))
    found.append(seen.get(timeout=LIMIT_S))
    return found


def own_error(pool: Any) -> object:
    try:
        pool.map(raise_own, [3])
    except OwnError as error:
        cause = error.__cause__
        return error.code, error.args, type(cause).__name__, "raise_own" in str(cause)
    return None


def from_threads(pool: Any) -> object:
    found: list[list[int]] = [[] for _ in range(4)]

    def work(index: int) -> None:
        found[index] = pool.map(square, range(index, index + 20), 3)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.parametrize("name", CASES)
def test_calls_give_the_same(pools: tuple[Any, Any], name: str) -> None:
    standard, ours = (outcome(functools.partial(CASES[name], pool)) for pool in pools)
    assert ours == standard


def closed(new: Callable[..., Any]) -> object:
    pool = new(2)
    result = pool.map_async(nap, [0.2, 0.0])
    pool.close()
    pool.close()
    refused = [
        outcome(functools.partial(call, square, [1]))
        for call in (pool.map, pool.map_async, pool.imap, pool.imap_unordered, pool.apply_async)
    ]
    pool.join()
    pool.join()
    return refused, result.ready(), result.get()


def terminated(new: Callable[..., Any]) -> object:
    pool = new(2)
    pool.map_async(nap, [30.0, 30.0], 1)
    began = time.monotonic()
    pool.terminate()
    pool.join()
    pool.terminate()
    pool.close()
    return time.monotonic() - began < 20.0, outcome(lambda: pool.map(square, [1]))


def left_context(new: Callable[..., Any]) -> object:
    with new(2) as pool:
        inside = pool.map(square, [1])
    again = outcome(pool.__enter__)
    return inside, outcome(lambda: pool.map(square, [1])), again


_given: list[object] = []


def remember(*values: object) -> None:
    _given.append(values)


def given(_: int) -> list[object]:
    time.sleep(0.02)  # the other worker takes some
    return _given


def initialized(new: Callable[..., Any]) -> object:
    with new(2, remember, (1, "two")) as pool:
        return pool.map(given, range(8), 1)


def own_pid(_: int) -> int:
    return os.getpid()


def replaced(new: Callable[..., Any]) -> object:
    with new(1, maxtasksperchild=2) as pool:
        one_by_one = pool.map(own_pid, range(6), chunksize=1)
        together = pool.map(own_pid, range(6), chunksize=3)
    by_process = [len(list(group)) for _, group in itertools.groupby(one_by_one)]
    return by_process, len(set(together))


def arguments(new: Callable[..., Any]) -> object:
    return [
        outcome(lambda: new(0)),
        outcome(lambda: new(-1)),
        outcome(lambda: new("two")),
        outcome(lambda: new(1, initializer=5)),
        outcome(lambda: new(1, maxtasksperchild=0)),
    ]


@pytest.mark.parametrize(
    "case", [closed, terminated, left_context, initialized, replaced, arguments]
)
def test_life_of_a_pool_is_the_same(case: Callable[[Callable[..., Any]], object]) -> None:
    standard, ours = case(STANDARD), case(Pool)
    assert ours == standard


@pytest.mark.parametrize(
    "name", sorted(name for name in dir(StandardPool) if not name.startswith("_"))
)
def test_methods_have_the_parameters_of_the_standard_library(name: str) -> None:
    if not callable(getattr(StandardPool, name)) or name == "Process":
        return
    standard = list(inspect.signature(getattr(StandardPool, name)).parameters)
    ours = list(inspect.signature(getattr(Pool, name)).parameters)
    if "kwds" in standard:  # Ray's name comes first; the standard one is a keyword
        assert "kwds" in ours
        standard = ["kwargs" if each == "kwds" else each for each in standard]
    assert ours[: len(standard)] == standard
