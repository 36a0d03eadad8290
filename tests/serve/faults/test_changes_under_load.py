"""Updates, scaling and deletion while requests arrive: no request fails, none runs twice."""

import json
import threading

import pytest

from syncline import serve
from tests.serve.faults.harness import (
    ANSWERED,
    Answer,
    Load,
    Worker,
    check_all_slots_are_free,
    check_effects,
    pids,
    post,
    wait_until,
)

pytestmark = pytest.mark.processes


@pytest.mark.promise
def test_rolling_updates_fail_no_request(port, effects):
    app = Worker.options(num_replicas=2)
    handle = serve.run(app.bind(effects))
    with Load(port, handle=handle) as load:
        for version in (2, 3):
            load.wait_for(20)
            before = pids()
            serve.run(app.bind(effects, version=version))
            assert not pids() & before
            assert json.loads(post(port, f"version{version}").text)["version"] == version
        load.wait_for(20)
    assert load.outcomes().keys() == {ANSWERED}
    check_effects(effects, load.answers)


def test_reconfigure_fails_no_request_and_keeps_the_processes(port, effects):
    app = Worker.options(num_replicas=2, user_config={"n": 0})
    handle = serve.run(app.bind(effects))
    before = pids()
    with Load(port, handle=handle) as load:
        for number in (1, 2):
            load.wait_for(20)
            serve.run(app.options(user_config={"n": number}).bind(effects))
            answers = [json.loads(post(port, f"config{number}-{each}").text) for each in range(6)]
            assert [each["config"] for each in answers] == [{"n": number}] * 6
        load.wait_for(20)
    assert pids() == before
    assert load.outcomes().keys() == {ANSWERED}
    check_effects(effects, load.answers)


@pytest.mark.promise
def test_scaling_down_fails_no_request(port, effects):
    app = Worker.options(num_replicas=4)
    handle = serve.run(app.bind(effects))
    with Load(port, 6, handle=handle) as load:
        load.wait_for(40)
        serve.run(app.options(num_replicas=1).bind(effects))
        wait_until(lambda: len(pids()) == 1)
        load.wait_for(40)
    assert load.outcomes().keys() == {ANSWERED}
    check_effects(effects, load.answers)
    check_all_slots_are_free(handle, effects, Worker.max_ongoing_requests)


def test_lower_limits_under_load_fail_no_request(port, effects):
    app = Worker.options(num_replicas=2)
    handle = serve.run(app.bind(effects))
    with Load(port, handle=handle) as load:
        for limit in (1, 8):
            load.wait_for(20)
            serve.run(app.options(max_ongoing_requests=limit).bind(effects))
        load.wait_for(20)
    assert load.outcomes().keys() == {ANSWERED}
    check_effects(effects, load.answers)
    check_all_slots_are_free(handle, effects, 16)


def test_delete_answers_the_requests_in_flight(port, effects):
    handle = serve.run(Worker.options(num_replicas=2).bind(effects, 0.5))
    answers = {}

    def ask(id):
        if id.startswith("http"):
            answers[id] = post(port, id)
        else:
            handle.run.remote(id).result(timeout_s=30)
            answers[id] = Answer(ANSWERED)

    ids = ["http1", "http2", "http3", "handle1", "handle2", "handle3"]
    threads = [threading.Thread(target=ask, args=(id,)) for id in ids]
    for thread in threads:
        thread.start()
    wait_until(lambda: set(ids) <= set(effects.ids("begin")))
    serve.delete("default")
    for thread in threads:
        thread.join()
    assert {id: each.outcome for id, each in answers.items()} == dict.fromkeys(ids, ANSWERED)
    check_effects(effects, answers)
    assert post(port, "late").outcome == "404"


def test_delete_under_load_answers_every_client(port, effects):
    handle = serve.run(Worker.options(num_replicas=2).bind(effects))
    with Load(port, handle=handle) as load:
        load.wait_for(40)
        serve.delete("default")
        load.wait_for(5, "404")
        load.wait_for(5, "DeploymentUnavailableError")
    # Requests that waited for a replica or came later were refused; none was cut off.
    assert load.outcomes().keys() <= {ANSWERED, "404", "503", "DeploymentUnavailableError"}
    check_effects(effects, load.answers)
    assert set(effects.ids("begin")) == set(effects.ids("end"))
    assert set(effects.ids("end")) == load.having(ANSWERED).keys()
