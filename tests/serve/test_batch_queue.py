import heapq
import itertools
import random
from collections.abc import Callable

import pytest

from syncline.serve.batch_queue import AdaptiveWait, BatchQueue, FixedWait, WaitPolicy
from syncline.serve.exceptions import RayServeException


def queue(wait_s: float = 0.0, **options) -> BatchQueue:
    return BatchQueue(FixedWait(wait_s), **{"max_batch_size": 3, **options})


def test_full_batch_starts_at_once():
    items = queue(wait_s=10.0)
    for item in "abcd":
        items.add(item, "", 0.0)
    assert items.take(0.0) == (["a", "b", "c"], [])
    assert items.take(0.0) == ([], [])
    assert items.statistics().queued == 1


def test_incomplete_batch_starts_when_its_oldest_item_has_waited():
    items = queue(wait_s=1.0)
    items.add("a", "", 0.0)
    items.add("b", "", 0.9)
    assert items.next_moment() == 1.0
    assert items.take(0.99) == ([], [])
    assert items.take(1.0) == (["a", "b"], [])
    assert items.next_moment() is None


def test_running_batches_are_limited():
    items = queue(max_concurrent_batches=2)
    for item in "abcdefg":
        items.add(item, "", 0.0)
    assert [items.take(0.0)[0] for _ in range(3)] == [["a", "b", "c"], ["d", "e", "f"], []]
    assert items.next_moment() is None
    items.ended(3, 1.0, 1.0)
    assert items.take(1.0)[0] == ["g"]


def test_models_are_never_mixed_and_the_oldest_item_is_first():
    items = queue()
    for item in ("a1", "b1", "a2", "b2"):
        items.add(item, item[0], 0.0 if item == "b1" else 1.0)
    assert items.take(2.0)[0] == ["b1", "b2"]
    items.ended(2, 1.0, 2.0)
    assert items.take(2.0)[0] == ["a1", "a2"]


def test_full_batch_of_one_model_does_not_wait_for_another_model():
    items = queue(wait_s=10.0)
    items.add("a1", "a", 0.0)
    for item in ("b1", "b2", "b3"):
        items.add(item, "b", 1.0)
    assert items.take(1.0)[0] == ["b1", "b2", "b3"]


def test_removed_item_is_in_no_batch():
    items = queue()
    for item in "ab":
        items.add(item, "", 0.0)
    assert items.remove("a")
    assert not items.remove("a")
    assert items.take(0.0)[0] == ["b"]
    assert not items.remove("b")


def test_size_function_limits_the_batch():
    items = queue(wait_s=9.0, max_batch_size=10, size_of=sum)
    for item in (4, 5, 3, 1):
        items.add(item, "", 0.0)
    assert items.take(0.0) == ([4, 5], [])
    items.ended(2, 1.0, 1.0)
    assert items.take(1.0) == ([], [])
    assert items.take(9.0) == ([3, 1], [])


def test_batch_of_exactly_the_maximum_is_full():
    items = queue(wait_s=9.0, max_batch_size=10, size_of=sum)
    for item in (4, 6):
        items.add(item, "", 0.0)
    assert items.take(0.0) == ([4, 6], [])


def test_item_larger_than_the_maximum_fails_alone():
    items = queue(max_batch_size=10, size_of=sum)
    for item in (11, 3):
        items.add(item, "", 0.0)
    batch, failed = items.take(0.0)
    assert batch == [3]
    assert failed[0][0] == 11
    with pytest.raises(RayServeException, match="size 11 is larger than `max_batch_size=10`"):
        raise failed[0][1]
    assert items.statistics().queued == 0


def test_item_for_which_the_size_function_fails_does_not_stop_the_others():
    def size(items: list[int]) -> int:
        if 0 in items:
            raise KeyError("no size")
        return len(items)

    items = queue(size_of=size)
    for item in (1, 0, 2):
        items.add(item, "", 0.0)
    assert items.take(0.0) == ([1], [])
    items.ended(1, 1.0, 1.0)
    batch, failed = items.take(1.0)
    assert batch == [2]
    assert [item for item, _ in failed] == [0]
    assert isinstance(failed[0][1], KeyError)


@pytest.mark.parametrize("size", [None, "3", -1, float("nan"), True])
def test_size_function_has_to_return_a_number(size):
    items = queue(size_of=lambda items: size)
    items.add("a", "", 0.0)
    batch, failed = items.take(0.0)
    assert batch == []
    assert len(failed) == 1


def test_random_walk_ends_each_item_once_in_order():
    chance = random.Random(5)
    for _ in range(60):
        limit, concurrent = chance.randint(1, 5), chance.randint(1, 3)
        sized = chance.random() < 0.5
        policy: WaitPolicy = chance.choice([FixedWait(chance.random()), AdaptiveWait()])
        items: BatchQueue[tuple[int, int]] = BatchQueue(
            policy,
            max_batch_size=limit,
            max_concurrent_batches=concurrent,
            size_of=(lambda batch: sum(size for _, size in batch)) if sized else None,
        )
        now, ids = 0.0, itertools.count()
        waiting: dict[tuple[int, int], int] = {}
        running: list[int] = []
        ended: list[tuple[int, int]] = []
        for _ in range(400):
            now += chance.random() * 0.2
            step = chance.random()
            if step < 0.5:
                item = (next(ids), chance.choice([1, 1, 2, 9]) if sized else 1)
                key = chance.randrange(2)
                waiting[item] = key
                items.add(item, key, now)
            elif step < 0.6 and waiting:
                item = chance.choice(list(waiting))
                assert items.remove(item)
                del waiting[item]
                ended.append(item)
            elif running and step < 0.9:
                items.ended(running.pop(), 0.1, now)
            while True:
                batch, failed = items.take(now)
                for item, _ in failed:
                    assert item[1] > limit
                    del waiting[item]
                    ended.append(item)
                if not batch:
                    break
                assert len(running) < concurrent
                running.append(len(batch))
                keys = {waiting[item] for item in batch}
                assert len(keys) == 1
                assert sum(size for _, size in batch) <= limit
                key = keys.pop()
                assert batch == [each for each, k in waiting.items() if k == key][: len(batch)]
                for item in batch:
                    del waiting[item]
                    ended.append(item)
            moment = items.next_moment()
            assert moment is None or moment > now
            if waiting and len(running) < concurrent:  # nothing is forgotten
                assert moment is not None
        assert len(ended) == len(set(ended))
        assert items.statistics().queued == len(waiting)


# -- adaptive waiting, in a simulation of callers that send again after each result

Seconds = Callable[[random.Random], float]
TIMER_S = 0.001


def simulated_rate(
    policy: WaitPolicy, callers: int, fixed_s: float, item_s: float, pause: Seconds
) -> float:
    """Return results per second; a batch takes `fixed_s + item_s * size`."""
    chance = random.Random(1)
    items: BatchQueue[tuple[int, float]] = BatchQueue(policy, max_batch_size=16)
    order = itertools.count()
    events: list[tuple] = []
    done, duration_s, timer = 0, 2.0, 0

    def push(at: float, kind: str, value: object) -> None:
        heapq.heappush(events, (at, next(order), kind, value))

    for caller in range(callers):
        push(pause(chance), "arrival", caller)
    while events:
        now, _, kind, value = heapq.heappop(events)
        if now > duration_s:
            break
        if kind == "arrival":
            items.add((value, now), "", now)
        elif kind == "end":
            items.ended(len(value[0]), value[1], now)
            done += len(value[0])
            for caller, _ in value[0]:
                push(now + pause(chance), "arrival", caller)
        elif value != timer:
            continue
        timer += 1
        while batch := items.take(now)[0]:
            seconds = fixed_s + item_s * len(batch) * (1 + 0.1 * chance.random())
            push(now + seconds, "end", (batch, seconds))
        if (moment := items.next_moment()) is not None:
            push(now + max(moment - now, TIMER_S), "timer", timer)
    return done / duration_s


@pytest.mark.parametrize("callers", [1, 16, 64])
@pytest.mark.parametrize(
    ("fixed_s", "item_s"), [(0.0016, 0.00002), (0.0005, 0.0003), (0.02, 0.001), (0.00005, 0.001)]
)
@pytest.mark.parametrize("pause_s", [0.0002, 0.001, 0.01])
def test_adaptive_wait_is_within_ten_percent_of_the_best_fixed_wait(
    callers, fixed_s, item_s, pause_s
):
    def pause(chance: random.Random) -> float:
        return pause_s / 2 + chance.expovariate(2 / pause_s)

    best = max(
        simulated_rate(FixedWait(wait_s), callers, fixed_s, item_s, pause)
        for wait_s in (0, 0.001, 0.002, 0.005, 0.01, 0.02)
    )
    assert simulated_rate(AdaptiveWait(), callers, fixed_s, item_s, pause) > 0.9 * best


def test_adaptive_wait_does_not_wait_for_a_single_caller():
    policy = AdaptiveWait()
    items: BatchQueue[int] = BatchQueue(policy, max_batch_size=8)
    for round in range(5):
        items.add(round, "", round)
        assert items.take(round)[0] == [round]
        items.ended(1, 0.5, round + 0.5)


def test_adaptive_wait_gives_callers_up_that_do_not_come_back():
    items: BatchQueue[int] = BatchQueue(AdaptiveWait(), max_batch_size=8)
    for item in range(8):
        items.add(item, "", 0.0)
    assert len(items.take(0.0)[0]) == 8
    items.ended(8, 0.1, 0.1)
    items.add(8, "", 0.101)
    assert items.take(0.101)[0] == []
    moment = items.next_moment()
    assert moment is not None
    assert moment < 0.25
    assert items.take(moment)[0] == [8]
