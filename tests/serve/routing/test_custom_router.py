"""Which calls a custom request router is asked about, and what its answers do."""

import random

from syncline.serve.exceptions import BackPressureError
from syncline.serve.routing.custom_router import AskingPolicy, CustomRouter
from syncline.serve.routing.router import Ask, Call, DeploymentRouter, Fail, Send, SendCancel
from syncline.serve.wire.frames import Kind
from syncline.serve.wire.routes import DeploymentId, DeploymentRoute

DEPLOYMENT = DeploymentId("app", "Model")


class Observer:
    def __init__(self):
        self.events = []

    def sent(self, call, replica_id):
        self.events.append(("sent", call.call_id, replica_id))

    def completed(self, call, replica_id):
        self.events.append(("completed", call.call_id, replica_id))

    def lost(self, replica_id):
        self.events.append(("lost", replica_id))


def make(*replicas, policy=None, **route):
    router = CustomRouter(
        DeploymentRoute(id=DEPLOYMENT, **route),
        policy=policy or AskingPolicy(),
        observer=Observer(),
    )
    for replica in replicas:
        assert router.replica_added(replica, 0.0) == []
    return router


def make_call(call_id):
    call = Call(DEPLOYMENT, Kind.CALL, (b"",))
    call.call_id = call_id
    return call


def submit(router, *call_ids, now=0.0):
    calls = [make_call(call_id) for call_id in call_ids]
    return calls, [step for call in calls for step in router.submit(call, now)]


def asked(instructions):
    assert all(isinstance(each, Ask) for each in instructions), instructions
    return [each.call.call_id for each in instructions]


def test_a_call_is_sent_to_the_chosen_replica():
    router = make("a", "b")
    (call,), steps = submit(router, 1)
    assert asked(steps) == [1]
    assert router.chosen(1, [["b"]], 0.0) == [Send(call, "b")]
    assert router.ongoing() == {"a": 0, "b": 1}


def test_the_first_group_with_a_free_slot_gets_the_call_and_in_it_the_idlest_replica():
    router = make("a", "b", "c", max_ongoing_requests=2)
    calls, _ = submit(router, 1, 2, 3, 4)
    assert router.chosen(1, [["a"]], 0.0)[0] == Send(calls[0], "a")
    assert router.chosen(2, [["a"]], 0.0)[0] == Send(calls[1], "a")
    assert router.chosen(3, [["a"], ["b"], ["c"]], 0.0)[0] == Send(calls[2], "b")
    assert router.chosen(4, [["a"], ["b", "c"]], 0.0)[0] == Send(calls[3], "c")


def test_nothing_is_asked_while_all_replicas_are_full():
    router = make("a", max_ongoing_requests=1)
    (first, second), steps = submit(router, 1, 2)
    assert asked(steps) == [1]
    assert router.chosen(1, [["a"]], 0.0) == [Send(first, "a")]
    assert router.queued == 1
    assert asked(router.answered("a", 1, 1.0)) == [2]
    assert router.chosen(2, [["a"]], 1.0) == [Send(second, "a")]


def test_no_more_is_asked_at_a_time_than_there_are_free_slots():
    router = make("a", max_ongoing_requests=2)
    _, steps = submit(router, 1, 2, 3)
    assert asked(steps) == [1, 2]


def test_a_held_call_is_asked_about_again_at_the_next_change():
    router = make("a", "b")
    _, steps = submit(router, 1)
    assert router.chosen(1, [], 0.0) == []
    assert asked(router.replica_added("c", 0.0)) == [1]
    assert router.chosen(1, [], 0.0) == []
    assert asked(router.update(DeploymentRoute(id=DEPLOYMENT), 0.0)) == [1]


def test_a_change_during_the_choice_asks_again_at_once():
    router = make("a")
    submit(router, 1)
    assert router.replica_added("b", 0.0) == []
    assert asked(router.chosen(1, [], 0.0)) == [1]


def test_a_held_call_is_asked_about_again_after_growing_pauses():
    router = make("a", policy=AskingPolicy(initial_backoff_s=1, max_backoff_s=3))
    submit(router, 1)
    now = 0.0
    for pause in (1, 2, 3, 3):
        assert router.chosen(1, [], now) == []
        assert router.next_moment() == now + pause
        assert router.tick(now + pause - 0.5) == []
        now += pause
        assert asked(router.tick(now)) == [1]


def test_later_calls_pass_a_held_one_unless_the_router_is_fifo():
    for is_fifo in (False, True):
        router = make("a", "b", policy=AskingPolicy(is_fifo=is_fifo))
        (_, second), steps = submit(router, 1, 2)
        if is_fifo:
            assert asked(steps) == [1]
            assert router.chosen(1, [], 0.0) == []
        else:
            assert asked(steps) == [1, 2]
            router.chosen(1, [], 0.0)
            assert router.chosen(2, [["a"]], 0.0) == [Send(second, "a")]


def test_a_fifo_router_is_asked_about_the_next_call_when_the_first_is_gone():
    router = make("a", policy=AskingPolicy(is_fifo=True))
    (first, second, _), _ = submit(router, 1, 2, 3)
    assert asked(router.cancelled(first)) == [2]
    assert router.chosen(1, [["a"]], 0.0) == []  # the answer about the cancelled call
    assert router.chosen(2, [["a"]], 0.0)[0] == Send(second, "a")


def test_the_queue_limit_counts_calls_without_a_slot():
    router = make("a", max_ongoing_requests=1, max_queued_requests=1)
    _, steps = submit(router, 1, 2)
    assert asked(steps) == [1]
    (third,), (refused,) = submit(router, 3)
    assert isinstance(refused, Fail)
    assert refused.call is third
    assert isinstance(refused.error, BackPressureError)
    assert refused.error.num_queued_requests == 1


def test_a_call_that_must_be_held_in_a_full_queue_is_refused():
    router = make("a", max_ongoing_requests=5, max_queued_requests=1)
    (_, second), steps = submit(router, 1, 2)
    assert asked(steps) == [1, 2]
    assert router.chosen(1, [], 0.0) == []
    (refused,) = router.chosen(2, [], 0.0)
    assert (type(refused), refused.call) == (Fail, second)
    assert router.queued == 1


def test_a_busy_replica_returns_the_call_which_is_asked_about_again_first():
    router = make("a", "b", max_ongoing_requests=1)
    (first, _, third), _ = submit(router, 1, 2, 3)
    router.chosen(1, [["a"]], 0.0)
    router.chosen(2, [["b"]], 0.0)
    assert router.busy("a", 1, 0.0) == []
    assert asked(router.answered("b", 2, 0.0)) == [1]
    assert router.chosen(1, [["a"], ["b"]], 0.0) == [Send(first, "b")]
    assert asked(router.free("a", 0.0)) == [3]
    assert router.chosen(3, [["a"]], 0.0) == [Send(third, "a")]


def test_calls_of_a_dead_replica_are_asked_about_again():
    router = make("a", "b")
    (call,), _ = submit(router, 1)
    router.chosen(1, [["a"]], 0.0)
    assert asked(router.replica_lost("a", (), 0.0)) == [1]
    assert router.chosen(1, [["a"], ["b"]], 0.0) == [Send(call, "b")]
    assert router._observer.events == [("sent", 1, "a"), ("lost", "a"), ("sent", 1, "b")]


def test_an_error_of_the_choice_ends_the_call():
    router = make("a")
    (call,), _ = submit(router, 1)
    error = RuntimeError("no choice")
    assert router.choice_failed(1, error, 0.0) == [Fail(call, error)]
    assert router.queued == 0


def test_a_router_takes_over_the_calls_of_another_class():
    plain = DeploymentRouter(DeploymentRoute(id=DEPLOYMENT, max_ongoing_requests=1))
    plain.replica_added("a", 0.0)
    calls = [make_call(1), make_call(2)]
    for call in calls:
        plain.submit(call, 0.0)
    router = make(max_ongoing_requests=1)
    router.take_over(plain)
    assert router.update(DeploymentRoute(id=DEPLOYMENT, max_ongoing_requests=1), 0.0) == []
    assert asked(router.answered("a", 1, 0.0)) == [2]
    assert router.chosen(2, [["a"]], 0.0) == [Send(calls[1], "a")]


class World:
    """Random events; after each, the promises of the router hold."""

    def __init__(self, seed, *, is_fifo):
        self.random = random.Random(seed)
        self.limit, self.slots = 3, 2
        self.router = make(
            "r0",
            "r1",
            policy=AskingPolicy(is_fifo=is_fifo),
            max_ongoing_requests=self.slots,
            max_queued_requests=self.limit,
        )
        self.now = 0.0
        self.calls = {}
        self.asked, self.running, self.ended = {}, {}, set()

    def execute(self, instructions):
        for step in instructions:
            id = step.call.call_id
            if isinstance(step, Ask):
                assert id not in self.asked
                self.asked[id] = None
            elif isinstance(step, Send):
                assert id not in self.running
                self.running[id] = step.replica_id
            elif isinstance(step, Fail):
                assert id not in self.ended
                self.ended.add(id)
            else:
                assert isinstance(step, SendCancel)

    def step(self):
        router, choose = self.router, self.random
        kind = choose.choice(["submit", "choose", "choose", "answer", "cancel", "tick"])
        if kind == "submit":
            call = make_call(len(self.calls) + 1)
            self.calls[call.call_id] = call
            self.execute(router.submit(call, self.now))
        elif kind == "choose" and self.asked:
            id = choose.choice(list(self.asked))
            del self.asked[id]
            groups = choose.choice([[], [["r0"]], [["r1"]], [["r0", "r1"]], [["r1"], ["r0"]]])
            self.execute(router.chosen(id, groups, self.now))
        elif kind == "answer" and self.running:
            id, replica = choose.choice(list(self.running.items()))
            del self.running[id]
            self.ended.add(id)
            self.execute(router.answered(replica, id, self.now))
        elif kind == "cancel" and self.calls:
            call = choose.choice(list(self.calls.values()))
            if call.call_id not in self.ended and call.call_id not in self.running:
                self.ended.add(call.call_id)
                self.execute(router.cancelled(call))
        elif kind == "tick":
            self.now += 1.0
            self.execute(router.tick(self.now))
        counts = router.ongoing()
        assert max(counts.values()) <= self.slots
        assert sum(counts.values()) == len(self.running)
        free = 2 * self.slots - len(self.running)
        assert router.queued <= self.limit + free + 1
        if router.queued > 0 and free:
            assert self.asked or router.next_moment() is not None, "a call would wait for ever"


def test_no_call_is_lost_or_sent_twice_in_random_walks():
    for seed in range(20):
        world = World(seed, is_fifo=seed % 2 == 0)
        for _ in range(200):
            world.step()
        waiting = world.calls.keys() - world.ended - world.running.keys()
        assert world.router.queued == len(waiting)
