"""The asynchronous plan as a state machine: events in, instructions out."""

import heapq

import numpy as np
import pytest

from syncline.rl.plans.asynchronous import AsyncPlan
from syncline.rl.plans.batch_buffer import BatchBuffer
from syncline.rl.plans.messages import (
    FragmentReady,
    Learn,
    Publish,
    RunnerJoined,
    RunnerLost,
    Sample,
    UpdateDone,
)


def plan(batch_steps=100, capacity=2, passes=1, random=None, **options):
    buffer = BatchBuffer(capacity=capacity, passes=passes, random=random)
    return AsyncPlan(batch_steps=batch_steps, buffer=buffer, **options)


def ready(runner, fragment, steps=50, version=0):
    return FragmentReady(runner=runner, fragment=fragment, steps=steps, version=version)


def test_runners_sample_ahead_and_get_the_next_request_before_the_learners_begin():
    made = plan()
    assert made.handle(RunnerJoined(runner=1)) == [Sample(runner=1)] * 2
    assert made.handle(ready(1, 0)) == [Sample(runner=1)]
    assert made.handle(ready(1, 1)) == [
        Sample(runner=1),
        Learn(batch=0, fragments=(0, 1), is_last=True),
    ]


def test_runners_are_held_back_while_batches_wait_and_go_on_afterwards():
    made = plan(capacity=1, requests_per_runner=1)
    made.handle(RunnerJoined(runner=1))
    asked = [made.handle(ready(1, number, steps=100)) for number in range(3)]
    assert [Sample(runner=1) in each for each in asked] == [True, True, False]
    assert made.statistics().held_back == 1
    after = made.handle(UpdateDone(batch=0))
    assert after == [
        Publish(version=1),
        Sample(runner=1),
        Learn(batch=1, fragments=(1,), is_last=True),
    ]


def test_weights_are_published_every_few_updates():
    made = plan(broadcast_interval=3, batch_steps=10)
    made.handle(RunnerJoined(runner=1))
    published = []
    for number in range(7):
        made.handle(ready(1, number, steps=10))
        published += [
            each for each in made.handle(UpdateDone(batch=number)) if isinstance(each, Publish)
        ]
    assert published == [Publish(version=3), Publish(version=6)]


def test_a_runner_in_the_learners_process_samples_and_learns_in_turns():
    made = plan(requests_per_runner=1, sample_while_learning=False)
    assert made.handle(RunnerJoined(runner=0)) == [Sample(runner=0)]
    assert made.handle(ready(0, 0)) == [Sample(runner=0)]
    assert made.handle(ready(0, 1)) == [Learn(batch=0, fragments=(0, 1), is_last=True)]
    assert made.handle(UpdateDone(batch=0)) == [Publish(version=1), Sample(runner=0)]


def test_requests_of_a_lost_runner_are_void():
    made = plan()
    made.handle(RunnerJoined(runner=1))
    made.handle(RunnerJoined(runner=2))
    made.handle(RunnerLost(runner=1))
    assert made.num_runners == 1
    assert made.handle(RunnerJoined(runner=1)) == [Sample(runner=1)] * 2


def test_a_late_fragment_of_a_lost_runner_is_used():
    made = plan(batch_steps=50)
    made.handle(RunnerJoined(runner=1))
    made.handle(RunnerLost(runner=1))
    assert made.handle(ready(1, 0)) == [Learn(batch=0, fragments=(0,), is_last=True)]


def test_staleness_counts_updates():
    made = plan(batch_steps=10)
    made.handle(RunnerJoined(runner=1))
    for number, version in enumerate((0, 0, 1, 1)):
        made.handle(ready(1, number, steps=10, version=version))
        made.handle(UpdateDone(batch=number))
    assert made.statistics().staleness_max == 2
    assert made.statistics().staleness_mean == pytest.approx((0 + 1 + 1 + 2) / 4)


def test_each_batch_of_the_circular_buffer_is_used_as_often_as_configured():
    made = plan(batch_steps=10, capacity=4, passes=3, random=np.random.default_rng(0))
    made.handle(RunnerJoined(runner=1))
    learned, instructions = [], []
    for number in range(8):
        instructions += made.handle(ready(1, number, steps=10))
    while any(isinstance(each, Learn) for each in instructions):
        learn = next(each for each in instructions if isinstance(each, Learn))
        learned.append(learn)
        instructions = made.handle(UpdateDone(batch=learn.batch))
    counts = np.bincount([each.batch for each in learned])
    assert counts.tolist() == [3] * 8
    lasts = {each.batch: each.is_last for each in learned}
    assert all(lasts.values())
    assert [each.batch for each in learned] != sorted(each.batch for each in learned)


@pytest.mark.parametrize("seed", range(20))
def test_simulation_with_deaths_drops_nothing_and_stays_bounded(seed):
    """Many runners of random speed that die and come back; a learner of random speed."""
    random = np.random.default_rng(seed)
    runners, capacity, batch_steps = 200, 3, 500
    made = plan(batch_steps=batch_steps, capacity=capacity)
    clock, queue, number, fragments = 0.0, [], 0, 0
    trained: list[int] = []
    requests = dict.fromkeys(range(1, runners + 1), 0)

    def carry_out(instructions):
        nonlocal number
        for each in instructions:
            number += 1
            if isinstance(each, Sample):
                requests[each.runner] += 1
                at = clock + random.exponential(1.0)
                heapq.heappush(queue, (at, number, "sample", each.runner))
            elif isinstance(each, Learn):
                trained.extend(each.fragments)
                heapq.heappush(queue, (clock + random.exponential(0.2), number, "learn", each))

    for runner in requests:
        carry_out(made.handle(RunnerJoined(runner=runner)))
    dead = set()
    for _ in range(3000):
        clock, _, kind, what = heapq.heappop(queue)
        if kind == "learn":
            carry_out(made.handle(UpdateDone(batch=what.batch)))
        elif requests[what]:
            requests[what] -= 1
            carry_out(made.handle(ready(what, fragments, version=made.updates)))
            fragments += 1
        if random.random() < 0.05:
            runner = int(random.integers(1, runners + 1))
            requests[runner] = 0
            dead.add(runner)
            carry_out(made.handle(RunnerLost(runner=runner)))
        if dead and random.random() < 0.05:
            carry_out(made.handle(RunnerJoined(runner=dead.pop())))
        assert all(count <= 2 for count in requests.values())
        waiting = fragments - len(trained)
        assert waiting * 50 <= (capacity + 1) * batch_steps + 2 * runners * 50
    assert trained == list(range(len(trained)))
    assert made.statistics().updates > 50


def test_a_restored_plan_gives_the_same_instructions():
    def begun(capacity=3):
        return plan(batch_steps=20, capacity=capacity, passes=2, random=np.random.default_rng(1))

    first, restored = begun(), begun()
    first.handle(RunnerJoined(runner=1))
    for number in range(3):
        first.handle(ready(1, number, steps=10))
    restored.set_state(first.get_state())
    restored.handle(RunnerJoined(runner=1))
    first.handle(RunnerLost(runner=1))
    first.handle(RunnerJoined(runner=1))
    for number in range(3, 9):
        assert first.handle(ready(1, number, steps=10)) == restored.handle(
            ready(1, number, steps=10)
        )
    for _ in range(4):
        (batch,) = first.get_state()["learning"]
        assert first.handle(UpdateDone(batch=batch)) == restored.handle(UpdateDone(batch=batch))
