"""Options in headers, request ids, failures of the link as responses, counters."""

import pytest

from syncline.serve.exceptions import (
    BackPressureError,
    DeploymentUnavailableError,
    ReplicaUnavailableError,
)
from syncline.serve.proxy.requests import CLIENT_GONE
from syncline.serve.routing.link import RequestTimeoutError
from syncline.serve.wire.frames import Kind
from tests.serve.proxy.fakes import GET, Client, make_table, post, respond, start_stream


def get(*headers: bytes, method: bytes = b"GET", path: bytes = b"/") -> bytes:
    lines = (b"%b %b HTTP/1.1" % (method, path), b"Host: a", *headers)
    return b"\r\n".join((*lines, b"", b""))


def sent(*headers: bytes, method: bytes = b"GET", **options) -> Client:
    client = Client(**options)
    client.send(get(*headers, method=method))
    return client


class TestRequestIds:
    def test_id_of_the_client_is_taken(self) -> None:
        assert sent(b"X-Request-ID: abc-123").request[0].request_id == "abc-123"

    @pytest.mark.parametrize("id", [b"", b"x" * 129, b"a\tb", b"caf\xc3\xa9", b"\xff"])
    def test_unprintable_or_long_ids_are_replaced(self, id) -> None:
        made = sent(b"X-Request-ID: " + id).request[0].request_id
        assert made != id.decode("latin-1")
        assert made.isalnum()

    def test_made_ids_are_unique(self) -> None:
        client = Client()
        ids = set()
        for _ in range(1000):
            client.send(GET)
            ids.add(client.request[0].request_id)
            respond(client.call)
        assert len(ids) == 1000

    def test_local_responses_carry_the_id(self) -> None:
        client = Client(table=make_table("/app"))
        client.send(get(b"X-Request-ID: mine"))
        assert client.response.headers["x-request-id"] == "mine"


class TestDeadlines:
    def test_option_and_header(self) -> None:
        assert sent().call.deadline is None
        assert sent(request_timeout_s=5.0).call.deadline == 1005.0
        assert sent(request_timeout_s=5.0).request[0].timeout_s == 5.0
        assert (
            sent(b"X-Request-Timeout-Seconds: 2.5", request_timeout_s=5.0).call.deadline == 1002.5
        )

    @pytest.mark.parametrize("value", [b"0", b"-1", b"-0.5"])
    def test_zero_or_less_is_no_limit(self, value) -> None:
        client = sent(b"X-Request-Timeout-Seconds: " + value, request_timeout_s=5.0)
        assert client.call.deadline is None

    @pytest.mark.parametrize("value", [b"soon", b"nan", b"inf", b"1e999", b"1 2"])
    def test_nonsense_leaves_the_option(self, value) -> None:
        client = sent(b"X-Request-Timeout-Seconds: " + value, request_timeout_s=5.0)
        assert client.call.deadline == 1005.0

    def test_timeout_is_408_with_id_and_seconds(self) -> None:
        client = sent(b"X-Request-ID: abc", request_timeout_s=3.0)
        client.call.on_failed(RequestTimeoutError())
        assert client.response.status == 408
        assert client.response.body == b"Request abc timed out after 3.0s."
        assert not client.is_closed


class TestRepetition:
    @pytest.mark.parametrize("method", [b"GET", b"HEAD", b"OPTIONS", b"PUT", b"DELETE"])
    def test_idempotent_methods(self, method) -> None:
        assert sent(method=method).call.may_repeat

    @pytest.mark.parametrize("method", [b"POST", b"PATCH"])
    def test_other_methods_need_a_key_or_an_idempotent_deployment(self, method) -> None:
        assert not sent(method=method).call.may_repeat
        assert sent(b"Idempotency-Key: 7", method=method).call.may_repeat
        assert sent(method=method, table=make_table("/", idempotent=True)).call.may_repeat


class TestModelsAndSessions:
    @pytest.mark.parametrize("name", [b"serve_multiplexed_model_id", b"Serve-Multiplexed-Model-Id"])
    def test_model_id(self, name) -> None:
        client = sent(name + b": model-7")
        assert client.call.model_id == "model-7"
        assert client.request[0].multiplexed_model_id == "model-7"

    def test_session_id(self) -> None:
        assert sent(b"X-Session-Id: s1").call.session_id == "s1"


class TestFailures:
    def fail(self, error: Exception, **options) -> Client:
        client = sent(b"X-Request-ID: abc", **options)
        client.call.on_failed(error)
        return client

    @pytest.mark.parametrize("status", [503, 429])
    def test_back_pressure(self, status) -> None:
        response = self.fail(BackPressureError(10, 10, status, 1.2)).response
        assert response.status == status
        assert response.headers["retry-after"] == "2"
        assert b"num_queued_requests=10" in response.body

    def test_back_pressure_without_a_time(self) -> None:
        assert "retry-after" not in self.fail(BackPressureError(1, 1)).response.headers

    def test_unavailable_application(self) -> None:
        error = DeploymentUnavailableError("app#Model", "the constructor failed\n" + "secret" * 99)
        response = self.fail(error).response
        assert response.status == 503
        assert b"the constructor failed" in response.body
        assert b"secret" not in response.body

    def test_death_of_the_replica(self) -> None:
        text = "replica X died (SIGKILL) while it handled this request"
        client = self.fail(ReplicaUnavailableError(text))
        response = client.response
        assert response.status == 502
        assert response.headers["retry-after"] == "1"
        assert response.body == f"Request abc failed: {text}".encode()
        assert not client.is_closed

    def test_request_that_kills_replicas(self) -> None:
        response = self.fail(ReplicaUnavailableError("two died", is_poison=True)).response
        assert response.status == 500
        assert "retry-after" not in response.headers

    def test_request_that_kills_replicas_is_reported(self) -> None:
        client = sent(b"X-Request-ID: abc")
        reported = []
        client.server.on_poison = lambda *facts: reported.append(facts)
        client.call.on_failed(ReplicaUnavailableError("x", replica_id="r2", is_poison=True))
        assert reported == [(client.call.deployment, "abc", "r2")]

    def test_other_errors_show_no_text(self) -> None:
        response = self.fail(RuntimeError("secret")).response
        assert (response.status, response.body) == (500, b"Internal Server Error")

    def test_error_frame_is_500(self) -> None:
        client = sent()
        client.call.on_frame(Kind.ERROR, b"packed")
        assert client.response.body == b"Internal Server Error"

    def test_failure_while_the_body_arrives_closes_the_connection(self) -> None:
        client = Client()
        client.send(post(b"x" * 2_000_000)[:1_500_000])
        client.call.on_failed(BackPressureError(1, 1))
        assert client.response.status == 503
        assert client.response.headers["connection"] == "close"
        assert client.is_closed

    def test_synchronous_failure(self) -> None:
        client = Client()
        client.link.on_submit = lambda call: call.on_failed(BackPressureError(1, 1))
        client.send(GET * 3)
        assert [each.status for each in client.responses()] == [503, 503, 503]


class TestLocalPaths:
    def test_routes(self) -> None:
        client = Client(table=make_table("/", "/app"))
        client.send(get(path=b"/-/routes"))
        assert client.response.body == b'{"/": "root", "/app": "app"}'
        assert client.response.headers["content-type"] == "application/json"

    def test_health(self) -> None:
        client = Client()
        client.send(get(path=b"/-/healthz"))
        assert (client.response.status, client.response.body) == (200, b"success")

    def test_health_while_starting_and_draining(self) -> None:
        starting, draining = Client(table=make_table(is_ready=False)), Client()
        draining.server.is_draining = True
        for client in (starting, draining):
            client.send(get(path=b"/-/healthz"))
            assert client.response.status == 503

    def test_request_while_starting(self) -> None:
        client = Client(table=make_table(is_ready=False))
        client.send(GET)
        assert client.response.status == 503
        assert client.response.headers["retry-after"] == "1"

    def test_unknown_path(self) -> None:
        client = Client(table=make_table("/app"))
        client.send(get(path=b"/x?y=1"))
        assert client.response.status == 404
        assert client.response.body == (
            b"Path '/x' not found. Ping http://.../-/routes for available routes."
        )


class TestStatistics:
    def test_requests_are_counted_by_route_method_and_status(self) -> None:
        client = Client(table=make_table("/app"))
        client.send(get(path=b"/app/1"))
        respond(client.call)
        client.send(get(path=b"/app/2", method=b"POST"))
        respond(client.call, status=500)
        client.send(get(path=b"/nowhere"))
        unrouted, app = client.server.statistics().routes
        assert (app.app, app.route, app.requests, app.errors) == ("app", "/app", 2, 1)
        assert app.by_method_and_status == {("GET", 200): 1, ("POST", 500): 1}
        assert unrouted.by_status == {404: 1}
        assert 0 < app.p50_s <= app.p99_s < 1

    def test_client_that_left_is_counted(self) -> None:
        client = Client()
        client.send(GET)
        assert client.server.statistics().ongoing_requests == 1
        client.leave()
        statistics = client.server.statistics()
        assert statistics.routes[1].by_status == {CLIENT_GONE: 1}
        assert (statistics.connections, statistics.ongoing_requests) == (0, 0)

    def test_observer_gets_each_request_once(self) -> None:
        client = Client()
        seen = []
        client.server.on_request_done = lambda call, status, seconds: seen.append(
            (call.request_id, call.method, call.target, call.route.prefix, status)
        )
        client.send(get(b"X-Request-ID: a"))
        start_stream(client.call)
        assert not seen
        client.call.on_frame(Kind.END, b"")
        client.leave()
        assert seen == [("a", "GET", b"/", "/", 200)]
        assert client.call.started <= client.call.sent

    def test_observer_that_fails_does_not_harm_the_request(self, caplog) -> None:
        client = Client()
        client.server.on_request_done = lambda call, status, seconds: [][status]
        client.send(GET)
        respond(client.call)
        assert client.response.status == 200
        assert "could not be recorded" in caplog.text

    def test_refused_requests_are_counted(self) -> None:
        client = Client()
        client.send(b"NONSENSE\r\n\r\n")
        statistics = client.server.statistics()
        assert statistics.refused_requests == 1
        assert statistics.routes[0].by_status == {400: 1}
