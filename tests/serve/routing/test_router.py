"""The router of one deployment: events in, instructions out."""

import random

import pytest

from syncline.serve.exceptions import (
    BackPressureError,
    DeploymentUnavailableError,
    ReplicaUnavailableError,
)
from syncline.serve.routing.router import (
    AFFINITY_S,
    Call,
    DeploymentRouter,
    Fail,
    Lost,
    Send,
    SendCancel,
    death_error,
)
from syncline.serve.wire.frames import Kind
from syncline.serve.wire.routes import DeploymentId, DeploymentRoute

DEPLOYMENT = DeploymentId("app", "Model")


def route(**options):
    return DeploymentRoute(id=DEPLOYMENT, **{"max_ongoing_requests": 2, **options})


class Caller:
    """A router with its clock, its calls by number, and what it asked for."""

    def __init__(self, *replicas, **options):
        self.router = DeploymentRouter(route(**options), seed=1)
        self.now = 0.0
        self.calls = {}
        for replica in replicas:
            self.router.replica_added(replica, self.now)

    def submit(self, number, **options):
        call = self.calls[number] = Call(DEPLOYMENT, Kind.CALL, (b"",))
        call.call_id = number
        for name, value in options.items():
            setattr(call, name, value)
        return self.shown(self.router.submit(call, self.now))

    def answered(self, replica, number):
        return self.shown(self.router.answered(replica, number, self.now))

    def busy(self, replica, number):
        return self.shown(self.router.busy(replica, number, self.now))

    def free(self, replica):
        return self.shown(self.router.free(replica, self.now))

    def cancelled(self, number):
        return self.shown(self.router.cancelled(self.calls[number]))

    def added(self, replica):
        return self.shown(self.router.replica_added(replica, self.now))

    def removed(self, replica):
        return self.shown(self.router.replica_removed(replica, self.now))

    def lost(self, replica, began=()):
        return self.shown(self.router.replica_lost(replica, began, self.now))

    def tick(self, seconds):
        self.now += seconds
        return self.shown(self.router.tick(self.now))

    @staticmethod
    def shown(instructions):
        return [_shown(each) for each in instructions]


def _shown(instruction):
    number = instruction.call.call_id
    if isinstance(instruction, Fail):
        return number, type(instruction.error)
    if isinstance(instruction, Lost):
        return number, type(death_error(instruction, "SIGKILL"))
    return type(instruction).__name__, number, instruction.replica_id


def sent(number, replica):
    return (Send.__name__, number, replica)


# -- queue and limits


def test_a_call_goes_to_the_replica_with_the_fewest_calls():
    caller = Caller("a", "b")
    first = caller.submit(1)[0][2]
    assert caller.submit(2)[0][2] != first
    caller.answered(first, 1)
    assert caller.submit(3) == [sent(3, first)]


def test_calls_beyond_the_limit_of_all_replicas_wait_in_order():
    caller = Caller("a")
    assert caller.submit(1)
    assert caller.submit(2)
    assert caller.submit(3) == []
    assert caller.submit(4) == []
    assert caller.router.queued == 2
    assert caller.answered("a", 1) == [sent(3, "a")]
    assert caller.answered("a", 2) == [sent(4, "a")]


def test_calls_wait_for_the_first_replica():
    caller = Caller()
    assert caller.submit(1) == []
    assert caller.added("a") == [sent(1, "a")]


def test_a_full_queue_refuses_exactly_the_calls_beyond_its_limit():
    caller = Caller("a", max_ongoing_requests=1, max_queued_requests=2)
    assert [bool(caller.submit(number)) for number in (1, 2, 3)] == [True, False, False]
    [refused] = caller.router.submit(Call(DEPLOYMENT, Kind.CALL, ()), 0.0)
    assert isinstance(refused.error, BackPressureError)
    assert (refused.error.num_queued_requests, refused.error.max_queued_requests) == (2, 2)


def test_a_limit_of_zero_refuses_what_no_replica_can_take_at_once():
    caller = Caller("a", max_ongoing_requests=1, max_queued_requests=0)
    assert caller.submit(1) == [sent(1, "a")]
    assert caller.submit(2) == [(2, BackPressureError)]


def test_an_unavailable_deployment_fails_waiting_and_new_calls():
    caller = Caller()
    caller.submit(1)
    failed = caller.router.update(route(unavailable="the constructor failed"), 0.0)
    assert caller.shown(failed) == [(1, DeploymentUnavailableError)]
    assert caller.submit(2) == [(2, DeploymentUnavailableError)]


def test_a_higher_limit_sends_waiting_calls():
    caller = Caller("a", max_ongoing_requests=1)
    caller.submit(1)
    caller.submit(2)
    assert caller.shown(caller.router.update(route(max_ongoing_requests=2), 0.0)) == [sent(2, "a")]


def test_a_lower_limit_holds_for_calls_that_run():
    caller = Caller("a", max_ongoing_requests=3)
    for number in (1, 2, 3, 4):
        caller.submit(number)
    caller.router.update(route(max_ongoing_requests=1), 0.0)
    assert caller.answered("a", 1) == []
    assert caller.answered("a", 2) == []
    assert caller.answered("a", 3) == [sent(4, "a")]


# -- replicas that other callers use, too


def test_a_busy_replica_gets_no_call_until_it_is_free():
    caller = Caller("a")
    caller.submit(1)
    assert caller.busy("a", 1) == []
    assert caller.submit(2) == []
    assert caller.free("a") == [sent(1, "a"), sent(2, "a")]


def test_a_call_that_a_busy_replica_returned_goes_to_another_one():
    caller = Caller("a", "b")
    [(_, _, first)] = caller.submit(1)
    other = {"a": "b", "b": "a"}[first]
    assert caller.busy(first, 1) == [sent(1, other)]


# -- cancellation


def test_a_cancelled_call_in_the_queue_is_dropped():
    caller = Caller("a", max_ongoing_requests=1)
    caller.submit(1)
    caller.submit(2)
    assert caller.cancelled(2) == []
    assert caller.answered("a", 1) == []


def test_a_cancelled_call_holds_its_slot_until_the_replica_ends_it():
    caller = Caller("a", max_ongoing_requests=1)
    caller.submit(1)
    caller.submit(2)
    assert caller.cancelled(1) == [(SendCancel.__name__, 1, "a")]
    assert caller.answered("a", 1) == [sent(2, "a")]


# -- replicas that leave


def test_a_removed_replica_finishes_its_calls_and_gets_no_new_ones():
    caller = Caller("a", "b")
    [(_, _, first)] = caller.submit(1)
    other = {"a": "b", "b": "a"}[first]
    caller.removed(first)
    assert [caller.submit(number)[0][2] for number in (2, 3)] == [other, other]
    assert caller.answered(first, 1) == []
    assert caller.router.statistics().replicas == 1


def test_calls_that_had_not_begun_are_sent_again_after_a_death():
    caller = Caller("a")
    caller.submit(1)
    caller.submit(2)
    assert caller.lost("a") == []
    assert caller.added("b") == [sent(1, "b"), sent(2, "b")]


def test_a_call_that_had_begun_fails_unless_it_may_be_repeated():
    caller = Caller("a", max_ongoing_requests=3)
    caller.submit(1)
    caller.submit(2, may_repeat=True)
    caller.submit(3, may_repeat=True, can_resend=False)
    lost = caller.lost("a", began={1, 2, 3})
    assert sorted(lost) == [(1, ReplicaUnavailableError), (3, ReplicaUnavailableError)]
    assert caller.added("b") == [sent(2, "b")]


def test_without_a_ledger_all_calls_count_as_begun():
    caller = Caller("a")
    caller.submit(1)
    assert caller.lost("a", began=None) == [(1, ReplicaUnavailableError)]


def test_a_call_that_ended_two_replicas_is_not_tried_again():
    caller = Caller("a", "b")
    [(_, _, first)] = caller.submit(1, may_repeat=True)
    other = {"a": "b", "b": "a"}[first]
    assert caller.lost(first, began={1}) == [sent(1, other)]
    [lost] = caller.router.replica_lost(other, {1}, 0.0)
    error = death_error(lost, "killed by SIGKILL")
    assert error.is_poison
    assert error.replica_id == other
    assert "2 replicas" in str(error)
    assert "killed by SIGKILL" in str(error)


def test_a_call_of_an_idempotent_deployment_is_tried_again():
    caller = Caller("a", "b", idempotent=True)
    [(_, _, first)] = caller.submit(1)
    assert caller.lost(first, began={1}) == [sent(1, {"a": "b", "b": "a"}[first])]


def test_repeated_calls_go_before_later_ones():
    caller = Caller("a", max_ongoing_requests=2)
    for number in (1, 2, 3):
        caller.submit(number)
    caller.lost("a")
    assert caller.added("b") == [sent(1, "b"), sent(2, "b")]
    assert caller.answered("b", 1) == [sent(3, "b")]


def test_a_deleted_deployment_fails_all_calls():
    caller = Caller("a", max_ongoing_requests=1)
    caller.submit(1)
    caller.submit(2)
    failures = caller.router.closed(DeploymentUnavailableError(DEPLOYMENT, "it was deleted"))
    assert sorted(caller.shown(failures)) == [
        (1, DeploymentUnavailableError),
        (2, DeploymentUnavailableError),
    ]


# -- models and sessions


def test_calls_of_a_model_go_to_the_replica_that_has_it():
    caller = Caller("a", "b", max_ongoing_requests=3)
    [(_, _, holder)] = caller.submit(1, model_id="m")
    assert [caller.submit(number, model_id="m")[0][2] for number in (2, 3)] == [holder, holder]


def test_a_call_waits_a_limited_time_for_the_replica_with_its_model():
    caller = Caller("a", "b", max_ongoing_requests=1)
    [(_, _, holder)] = caller.submit(1, model_id="m")
    other = {"a": "b", "b": "a"}[holder]
    assert caller.submit(2, model_id="m") == []
    assert caller.router.queued == 1
    assert caller.router.next_moment() == AFFINITY_S
    assert caller.tick(AFFINITY_S / 2) == []
    assert caller.tick(AFFINITY_S / 2) == [sent(2, other)]


def test_a_waiting_call_of_a_model_does_not_block_others():
    caller = Caller("a", "b", max_ongoing_requests=1)
    [(_, _, holder)] = caller.submit(1, model_id="m")
    other = {"a": "b", "b": "a"}[holder]
    caller.submit(2, model_id="m")
    assert caller.submit(3) == [sent(3, other)]
    assert caller.answered(holder, 1) == [sent(2, holder)]


def test_calls_of_a_session_stay_with_one_replica_while_it_lives():
    caller = Caller("a", "b", "c", max_ongoing_requests=10)
    [(_, _, chosen)] = caller.submit(1, session_id="s")
    assert {caller.submit(n, session_id="s")[0][2] for n in range(2, 8)} == {chosen}
    caller.removed(chosen)
    assert caller.submit(9, session_id="s")[0][2] != chosen


def test_a_pinned_call_runs_on_its_replica_or_fails():
    caller = Caller("a", "b", max_ongoing_requests=1)
    assert caller.submit(1, pinned="a") == [sent(1, "a")]
    assert caller.submit(2, pinned="a") == []
    assert caller.answered("a", 1) == [sent(2, "a")]
    caller.submit(3, pinned="a")
    assert sorted(caller.lost("a", began={2})) == [
        (2, ReplicaUnavailableError),
        (3, ReplicaUnavailableError),
    ]
    assert caller.submit(4, pinned="a") == [(4, ReplicaUnavailableError)]


# -- properties


def test_many_replicas_get_similar_loads():
    names = [f"r{i}" for i in range(100)]
    caller = Caller(*names, max_ongoing_requests=1000)
    for number in range(5000):
        caller.submit(number)
    loads = caller.router.ongoing().values()
    assert max(loads) - min(loads) <= 12


@pytest.mark.parametrize("seed", range(30))
def test_every_call_ends_exactly_once_whatever_happens(seed):
    """A random walk over submissions, answers, BUSY, deaths, removals and cancellations."""
    generator = random.Random(seed)
    limit = generator.choice([1, 2, 5])
    caller = Caller(
        max_ongoing_requests=limit, max_queued_requests=generator.choice([-1, -1, 0, 3])
    )
    running = {}  # replica -> numbers
    ended = {}  # number -> how
    cancelled = set()
    serial = iter(range(1, 10**6))
    submitted = 0

    def apply(instructions):
        for each in instructions:
            if each[0] == "Send":
                _, number, replica = each
                assert number not in ended
                assert replica in running
                running[replica].append(number)
                assert len(running[replica]) <= limit
            elif each[0] == "SendCancel":
                assert each[1] in running[each[2]]
            else:
                number, error = each
                assert ended.setdefault(number, error) is error

    def end(number, how):
        assert ended.setdefault(number, how) == how

    for _ in range(600):
        replica = generator.choice(list(running) or [""])
        step = generator.randrange(11)
        if step <= 3:
            submitted += 1
            options = generator.choice(
                [{}, {}, {"may_repeat": True}, {"model_id": "m"}, {"session_id": "s"}]
            )
            apply(caller.submit(submitted, **options))
        elif step <= 6 and running.get(replica):
            number = running[replica].pop(generator.randrange(len(running[replica])))
            end(number, "answered")
            apply(caller.answered(replica, number))
        elif step == 7 and running.get(replica):
            apply(caller.busy(replica, running[replica].pop()))
        elif step == 8:
            name = f"r{next(serial)}"
            if len(running) < 4:
                running[name] = []
                apply(caller.added(name))
            else:
                apply(caller.free(replica))
        elif step == 9 and replica:
            if generator.random() < 0.5:
                numbers = running.pop(replica)
                began = {number for number in numbers if generator.random() < 0.5}
                for number in set(numbers) & cancelled:
                    end(number, "answered")
                apply(
                    [
                        each
                        for each in caller.lost(replica, began)
                        if each[0] not in cancelled and each[1] not in cancelled
                    ]
                )
            else:
                apply(caller.removed(replica))
        elif step == 10:
            apply(caller.tick(generator.choice([0.1, 2.0])))
    for replica in list(running):
        apply(caller.free(replica))
    running["last"] = []
    apply(caller.added("last"))
    apply(caller.tick(10.0))
    while any(running.values()):
        for replica, numbers in running.items():
            if numbers:
                number = numbers.pop()
                end(number, "answered")
                apply(caller.answered(replica, number))
    assert caller.router.queued == 0
    assert ended.keys() == set(range(1, submitted + 1))
