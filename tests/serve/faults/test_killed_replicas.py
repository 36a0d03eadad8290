"""Replicas that are killed under load: every client gets an answer, and nothing runs twice."""

import json
import os
import signal
import threading

import psutil
import pytest

from syncline import serve
from tests.serve.faults.harness import (
    ANSWERED,
    DIED,
    Answer,
    Load,
    Worker,
    check_effects,
    pids,
    post,
    replicas,
    wait_until,
)

pytestmark = pytest.mark.processes


def check_death_texts(load):
    """Check that the errors name the cause, and that HTTP clients may try again."""
    for id, answer in load.having(*DIED).items():
        assert "SIGKILL" in answer.text, answer
        assert "cannot be repeated safely" in answer.text, answer
        if id.startswith("http"):
            assert answer.retry_after is not None


@pytest.mark.promise
def test_killed_replica_fails_only_the_requests_that_it_had_begun(port, effects):
    handle = serve.run(Worker.options(num_replicas=3).bind(effects))
    with Load(port, 6, handle=handle) as load:
        load.wait_for(50)
        victim = min(pids())
        wait_until(lambda: stops_in_a_request(victim, effects))
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: len(pids()) == 3 and victim not in pids())
        load.wait_for(50)
    assert load.outcomes().keys() <= {ANSWERED, *DIED}
    check_effects(effects, load.answers)
    # Exactly the requests that the victim had begun and not answered failed.
    ended = {each.id for each in effects.read() if each.event == "end"}
    unfinished = {each.id for each in effects.read() if each.event == "begin"} - ended
    assert unfinished <= load.having(*DIED).keys()
    assert len(load.having(*DIED)) <= Worker.max_ongoing_requests
    assert load.having(*DIED)
    check_death_texts(load)


def stops_in_a_request(pid, effects):
    """Stop a replica; return True if it has begun a request and not ended it, else continue it."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    last = {each.id: each.event for each in effects.read() if each.pid == pid}
    if "begin" in last.values():
        return True
    os.kill(pid, signal.SIGCONT)
    return False


def test_requests_that_a_killed_replica_had_not_begun_run_elsewhere(port, effects):
    handle = serve.run(Worker.options(num_replicas=2).bind(effects, 0.0))
    victim = min(pids())
    done = {}

    def ask(id):
        done[id] = post(port, id) if id.startswith("http") else _call(handle, id)
        return json.loads(done[id].text)["pid"]

    for caller in ("http", "handle"):  # both are connected to it
        wait_until(lambda caller=caller: ask(f"{caller}-first{len(done)}") == victim)
    first = len(done)
    os.kill(victim, signal.SIGSTOP)  # requests are sent to it, and it begins none
    ids = [*(f"http{n}" for n in range(8)), *(f"handle{n}" for n in range(8))]
    threads = [threading.Thread(target=ask, args=(id,)) for id in ids]
    for thread in threads:
        thread.start()
    # The free replica answers its share; the others are in the socket of the stopped one.
    wait_until(lambda: len(effects.ids("end")) >= first + 4)
    threading.Event().wait(0.2)
    assert len(done) < first + len(ids)
    os.kill(victim, signal.SIGKILL)
    for thread in threads:
        thread.join()
    assert {id: each.outcome for id, each in done.items()} == dict.fromkeys(done, ANSWERED)
    assert done.keys() >= set(ids)
    check_effects(effects, done)
    assert {each.pid for each in effects.read() if each.id in ids}.isdisjoint({victim})


def _call(handle, id):
    return Answer(ANSWERED, json.dumps(handle.run.remote(id).result(timeout_s=30)))


@pytest.mark.promise
def test_all_replicas_killed_at_once_are_replaced_while_requests_wait(port, effects):
    handle = serve.run(Worker.options(num_replicas=2).bind(effects))
    with Load(port, 4, handle=handle) as load:
        for _ in range(2):
            load.wait_for(30)
            before = pids()
            for pid in before:
                os.kill(pid, signal.SIGKILL)
            wait_until(lambda before=before: len(pids()) == 2 and not pids() & before)
            load.wait_for(30)
    assert load.outcomes().keys() <= {ANSWERED, *DIED}
    assert len(load.having(*DIED)) <= 4 * Worker.max_ongoing_requests
    check_effects(effects, load.answers)
    check_death_texts(load)


def test_poison_request_is_isolated_after_two_kills(port, effects):
    app = Worker.options(num_replicas=3, idempotent=True).bind(effects)
    handle = serve.run(app)
    with Load(port, 2, handle=handle) as load:
        load.wait_for(20)
        answer = post(port, "poison")
        with pytest.raises(serve.exceptions.ReplicaUnavailableError, match="not tried again"):
            handle.run.remote("poison-handle").result(timeout_s=30)
        load.wait_for(20)
        wait_until(lambda: len(replicas()) == 3)
    assert answer.outcome == "500"
    assert "not tried again" in answer.text
    begun = effects.ids("begin")
    assert begun.count("poison") == 2
    # The others ran again where they had begun, because the deployment is idempotent; a request
    # that was on both killed replicas is taken for poison as well.
    others = load.outcomes()
    assert others[ANSWERED] >= 40
    assert sum(others.values()) - others[ANSWERED] <= 2 * Worker.max_ongoing_requests


def test_poison_request_that_may_not_be_repeated_kills_one_replica(port, effects):
    serve.run(Worker.options(num_replicas=2).bind(effects))
    with Load(port, 2) as load:
        load.wait_for(20)
        answer = post(port, "poison")
        load.wait_for(20)
        wait_until(lambda: len(replicas()) == 2)
    assert answer.outcome == "502"
    assert effects.ids("begin").count("poison") == 1
    assert load.outcomes().keys() <= {ANSWERED, "502"}
    check_effects(effects, load.answers)
