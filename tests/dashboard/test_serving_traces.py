"""Slow requests and errors of a serve, from complete and foreign records."""

import pytest

from syncline.dashboard.serving_traces import SlowCall, errors, slow_requests


def slow(**fields):
    return {
        "time": 100.0,
        "request_id": "r1",
        "app": "a",
        "deployment": "Front",
        "replica": "a#Front#0001",
        "method": "GET",
        "route": "/",
        "status": 200,
        "total": 50.0,
        "queue": 1.0,
        "batch_wait": 2.0,
        "handler": 46.0,
        "transfer": 1.0,
        "calls": [],
        **fields,
    }


def error(request_id, deployment, text, app="a"):
    return {"request_id": request_id, "app": app, "deployment": deployment, "error": text}


def test_a_request_with_its_parts_and_calls():
    calls = [
        {"deployment": "Model", "method": "predict", "ms": 40.0, "batch_wait": 5.0, "after": 3.0},
        {"deployment": "Far", "method": "__call__", "ms": 2.0, "batch_wait": 0.0},
    ]
    (found,) = slow_requests([slow(calls=calls)])
    assert (found.what, found.status, found.replica) == ("GET /", 200, "0001")
    assert found.parts == (1.0, 2.0, 46.0, 1.0)
    assert found.calls == (
        SlowCall(name="Model.predict", after=3.0, total=40.0, batch_wait=5.0),
        SlowCall(name="Far.__call__", after=None, total=2.0, batch_wait=0.0),
    )
    assert [str(call) for call in found.calls] == [
        "Model.predict: 40.0 ms after 3.0 ms",
        "Far.__call__: 2.0 ms",
    ]


def test_the_latest_come_first_and_of_one_period_the_slowest():
    lines = [slow(time=t, total=ms) for t, ms in ((1.0, 9.0), (1.0, 8.0), (2.0, 3.0), (2.0, 4.0))]
    assert [each.total for each in slow_requests(lines)] == [4.0, 3.0, 9.0, 8.0]


def test_requests_of_an_application_or_ingress():
    lines = [slow(), slow(app="b"), slow(deployment="Other")]
    assert len(slow_requests(lines)) == 3
    assert len(slow_requests(lines, "a")) == 2
    assert [each.deployment for each in slow_requests(lines, "a", "Other")] == ["Other"]


def test_parts_are_unknown_without_the_replicas():
    line = slow()
    del line["handler"]
    (found,) = slow_requests([line])
    assert found.parts is None
    assert (found.total, found.queue) == (50.0, 1.0)


@pytest.mark.parametrize(
    "fields",
    [
        {"total": "long", "queue": None, "time": [], "status": -1, "request_id": 3},
        {"total": float("nan"), "handler": float("inf")},
        {"total": -5.0, "queue": -1.0},
        {"calls": "none"},
        {"calls": [1, None, {}, {"ms": -3, "batch_wait": 9, "after": -1}] * 100},
    ],
)
def test_foreign_values_are_replaced(fields):
    (found,) = slow_requests([slow(**fields)])
    assert found.total >= 0
    assert found.queue >= 0
    assert len(found.calls) <= 50
    assert all(0 <= call.batch_wait <= call.total for call in found.calls)
    assert all(call.after is None or call.after >= 0 for call in found.calls)


def test_an_error_that_was_passed_on_is_left_out():
    lines = [
        error("r1", "Model", "ValueError: no"),
        error("r1", "Front", "RayTaskError(ValueError): ValueError: no"),
        error("r2", "Front", "RayTaskError(KeyError): 'x'"),  # its origin was not recorded
        error("r3", "Front", "TypeError: other"),
    ]
    assert [each["request_id"] for each in errors(lines, "a")] == ["r3", "r2", "r1"]
    assert errors(lines, "a")[-1]["deployment"] == "Model"


def test_a_deployment_shows_the_errors_that_it_got():
    lines = [
        error("r1", "Model", "ValueError: no"),
        error("r1", "Front", "RayTaskError(ValueError): ValueError: no"),
    ]
    assert [each["deployment"] for each in errors(lines, "a", "Front")] == ["Front"]
    assert errors(lines, "b") == []
