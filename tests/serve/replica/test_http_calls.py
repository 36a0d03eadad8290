"""HTTP requests: plain deployments and ASGI applications, as a proxy sees the answers."""

import asyncio
import contextlib
import dataclasses
import logging
import threading
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from syncline.serve.context import request_context
from syncline.serve.ingress import ingress
from syncline.serve.wire.frames import WINDOW_BYTES, Kind, encode_window
from tests.serve.replica.harness import Response as Answer
from tests.serve.replica.harness import TestCaller, run, staged


def answer(tmp_path, deployment: Any, target: bytes = b"/", body: bytes = b"", **head) -> Answer:
    """Return the answer of a new replica to one request."""
    answers: list[Answer] = []

    async def scenario() -> None:
        async with staged(tmp_path, deployment) as stage:
            caller = await stage.connect()
            answers.append(await caller.http(target, body, **head).response())

    run(scenario)
    return answers[0]


def returning(value: Any) -> Any:
    async def handler(request: Request):
        return value

    return handler


def asgi(*messages: dict[str, Any]) -> Any:
    """Return an ingress whose application sends the messages."""

    async def app(scope, receive, send) -> None:
        if scope["type"] == "lifespan":
            raise NotImplementedError
        for message in messages:
            await send(message)

    return ingress(app)(type("App", (), {}))


def start(status: int = 200, *headers: tuple[bytes, bytes]) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def body(data: bytes, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}


# -- plain deployments


class Point(BaseModel):
    x: int


@dataclasses.dataclass
class Pair:
    left: int
    right: float


@pytest.mark.parametrize(
    ("value", "content_type", "expected"),
    [
        ("héllo", "text/plain; charset=utf-8", "héllo".encode()),
        (b"\x00\xff", "text/plain", b"\x00\xff"),
        (None, "text/plain", b""),
        ({"a": [1, 2.5, None, True]}, "application/json", b'{"a":[1,2.5,null,true]}'),
        ([], "application/json", b"[]"),
        (3, "application/json", b"3"),
        ((1, {2}), "application/json", b"[1,[2]]"),
        (np.float32(0.5), "application/json", b"0.5"),
        ({"a": np.arange(3)}, "application/json", b'{"a":[0,1,2]}'),
        (Point(x=1), "application/json", b'{"x":1}'),
        ([Pair(1, 2.0)], "application/json", b'[{"left":1,"right":2.0}]'),
        (float("nan"), "application/json", b"null"),
    ],
)
def test_results_become_responses(tmp_path, value, content_type, expected):
    response = answer(tmp_path, returning(value))
    assert (response.status, response.body) == (200, expected)
    assert response.headers["content-type"] == content_type
    assert response.headers["content-length"] == str(len(expected))
    assert response.headers["x-request-id"] == "id-1"
    assert response.headers["server"] == "syncline"
    assert response.kinds == [Kind.RESPONSE]


def generator():
    yield 1


@pytest.mark.parametrize("value", [object(), generator(), {"a": generator()}, [{"a": 1j}]])
def test_result_without_form_is_a_500_and_the_reason_is_logged(tmp_path, value, caplog):
    caplog.set_level(logging.ERROR, "syncline.serve")
    holder = [value]
    response = answer(tmp_path, lambda: holder[0])
    assert (response.status, response.body) == (500, b"Internal Server Error")
    assert "id-1" in caplog.text
    assert "TypeError" in caplog.text


def test_exception_is_a_500_without_its_text(tmp_path, caplog):
    caplog.set_level(logging.ERROR, "syncline.serve")

    async def handler(request: Request):
        raise RuntimeError("secret")

    response = answer(tmp_path, handler)
    assert (response.status, response.body) == (500, b"Internal Server Error")
    assert "secret" in caplog.text
    assert "/dispatcher.py" not in caplog.text  # frames of serve are left out


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_handler_cannot_end_the_replica(tmp_path, error):
    async def handler(request: Request):
        if request.url.path == "/exit":
            raise error
        return "fine"

    async def scenario() -> None:
        async with staged(tmp_path, handler) as stage:
            caller = await stage.connect()
            assert (await caller.http(b"/exit").response()).status == 500
            assert (await caller.http(b"/").response()).status == 200

    run(scenario)


def test_request_has_all_parts(tmp_path):
    async def handler(request: Request):
        data = await request.body()
        return {
            "method": request.method,
            "path": request.url.path,
            "root_path": request.scope["root_path"],
            "query": request.query_params["q"],
            "header": request.headers["x-a"],
            "client": request.client.host,
            "body": data.decode(),
        }

    response = answer(
        tmp_path,
        handler,
        b"/app/%C3%A9/x?q=a%20b",
        b"data",
        method="PUT",
        headers=[(b"host", b"test"), (b"x-a", b"1")],
        root_path="/app",
    )
    assert response.body.decode() == (
        '{"method":"PUT","path":"/app/é/x","root_path":"/app","query":"a b","header":"1",'
        '"client":"127.0.0.1","body":"data"}'
    )


def test_sync_method_runs_in_a_thread_with_its_context(tmp_path):
    class Sync:
        def __call__(self, request: Request) -> dict[str, Any]:
            context = request_context.get()
            assert context is not None
            return {"thread": threading.current_thread().name, "id": context.request_id}

    response = answer(tmp_path, Sync, request_id="other")
    assert response.body == b'{"thread":"handler-1","id":"other"}'


def test_response_of_starlette_is_kept_and_its_background_task_runs(tmp_path):
    done = asyncio.Event()

    async def later() -> None:
        done.set()

    async def handler(request: Request):
        response = JSONResponse({"a": 1}, 201, {"x-b": "2"}, background=BackgroundTask(later))
        response.set_cookie("c", "1")
        response.set_cookie("d", "2")
        return response

    response = answer(tmp_path, handler)
    assert (response.status, response.body, response.headers["x-b"]) == (201, b'{"a":1}', "2")
    assert response.raw.count(b"set-cookie: ") == 2
    assert done.is_set()


def test_class_without_call_names_its_methods_in_the_log(tmp_path, caplog):
    class NoCall:
        def other(self):
            return 1

    response = answer(tmp_path, NoCall)
    assert response.status == 500
    assert "no method '__call__'" in caplog.text
    assert "other" in caplog.text


def test_websocket_of_a_plain_deployment_is_refused(tmp_path):
    assert answer(tmp_path, returning(1), scheme="ws").status == 400


# -- heads


def test_head_request_has_the_length_and_no_body(tmp_path):
    response = answer(tmp_path, returning("hello"), method="HEAD")
    assert (response.headers["content-length"], response.body) == ("5", b"")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"keep_alive": False}, "close"),
        ({"http_version": "1.0"}, "keep-alive"),
        ({"http_version": "1.0", "keep_alive": False}, "close"),
    ],
)
def test_connection_header_follows_the_request(tmp_path, fields, expected):
    for deployment in (returning("hello"), asgi(start(), body(b"hello"))):
        response = answer(tmp_path, deployment, **fields)
        assert response.headers.get("connection") == expected


@pytest.mark.parametrize("status", [204, 304])
def test_statuses_without_body_have_none(tmp_path, status):
    headers = (b"content-length", b"5")
    response = answer(tmp_path, asgi(start(status, headers), body(b"hello")))
    assert (response.status, response.body) == (status, b"")
    assert ("content-length" in response.headers) == (status == 304)
    assert "transfer-encoding" not in response.headers


def test_headers_of_the_server_are_not_doubled_and_not_the_handlers_business(tmp_path):
    headers = (
        (b"Server", b"mine"),
        (b"Date", b"today"),
        (b"X-Request-ID", b"my-id"),
        (b"Connection", b"upgrade"),
        (b"Transfer-Encoding", b"gzip"),
    )
    response = answer(tmp_path, asgi(start(200, *headers), body(b"hello")))
    assert response.headers == {
        "server": "mine",
        "date": "today",
        "x-request-id": "my-id",
        "content-length": "5",
    }


@pytest.mark.parametrize(
    "header",
    [
        (b"x-a", b"1\r\nset-cookie: a=b"),
        (b"x-a", b"1\nb"),
        (b"x-a", b"1\x00"),
        (b"x-a\r\nx-b", b"1"),
        (b"x a", b"1"),
        (b"x:a", b"1"),
        (b"", b"1"),
        (b"content-length", b"-1"),
        (b"content-length", b"1, 1"),
    ],
)
def test_invalid_header_is_a_500(tmp_path, header):
    response = answer(tmp_path, asgi(start(200, header), body(b"h")))
    assert (response.status, response.body) == (500, b"Internal Server Error")
    assert b"set-cookie" not in response.raw


@pytest.mark.parametrize("status", [99, 100, 101, 1000, "200", None])
def test_impossible_status_is_a_500(tmp_path, status):
    assert answer(tmp_path, asgi(start(status), body(b""))).status == 500


# -- streams


def test_stream_is_chunked_and_ends(tmp_path):
    async def chunks():
        for word in ("a", "", "bc"):
            yield word

    async def handler(request: Request):
        return StreamingResponse(chunks(), media_type="text/event-stream")

    response = answer(tmp_path, handler)
    assert response.body == b"abc"
    assert response.headers["transfer-encoding"] == "chunked"
    assert response.kinds[0] == Kind.START
    assert response.kinds[-1] == Kind.END
    assert response.pieces == [b"1\r\na\r\n", b"2\r\nbc\r\n", b"0\r\n\r\n"]


def test_stream_to_an_http_1_0_client_ends_with_the_connection(tmp_path):
    response = answer(tmp_path, asgi(start(), body(b"ab", True), body(b"cd")), http_version="1.0")
    assert response.headers["connection"] == "close"
    assert response.pieces == [b"ab", b"cd"]


def test_stream_with_a_content_length_is_not_chunked(tmp_path):
    head = start(200, (b"content-length", b"4"))
    response = answer(tmp_path, asgi(head, body(b"ab", True), body(b"cd")))
    assert response.pieces == [b"ab", b"cd"]
    assert "transfer-encoding" not in response.headers


def test_head_of_a_stream_has_no_pieces(tmp_path):
    response = answer(tmp_path, asgi(start(), body(b"ab", True), body(b"cd")), method="HEAD")
    assert (response.body, response.is_complete) == (b"", True)


@pytest.mark.parametrize(
    "messages",
    [
        (start(200, (b"content-length", b"3")), body(b"abcd")),
        (start(200, (b"content-length", b"9")), body(b"abcd")),
        (start(200, (b"content-length", b"3")), body(b"ab", True), body(b"cd")),
        (start(200, (b"content-length", b"9")), body(b"ab", True), body(b"cd")),
        (start(), body(b"ab", True)),
    ],
)
def test_wrong_length_and_missing_end_break_the_response_off(tmp_path, messages):
    response = answer(tmp_path, asgi(*messages))
    assert not response.is_complete
    assert response.kinds[-1] == Kind.ABORT


@pytest.mark.parametrize(
    "messages", [(), (start(),), (body(b""),), (start(), start()), (start(), {"type": "other"})]
)
def test_wrong_order_of_events_is_a_500(tmp_path, messages):
    assert answer(tmp_path, asgi(*messages)).status == 500


def test_exception_within_a_stream_breaks_it_off(tmp_path):
    async def chunks():
        yield b"a"
        raise RuntimeError("later")

    async def handler(request: Request):
        return StreamingResponse(chunks())

    response = answer(tmp_path, handler)
    assert (response.status, response.is_complete) == (200, False)


def test_head_leaves_before_a_late_first_piece(tmp_path):
    go = asyncio.Event()

    async def app(scope, receive, send) -> None:
        if scope["type"] == "http":
            await send(start())
            await go.wait()
            await send(body(b"late"))

    async def scenario() -> None:
        async with staged(tmp_path, ingress(app)(type("App", (), {}))) as stage:
            call = (await stage.connect()).http()
            assert (await call.next())[0] == Kind.START
            go.set()
            assert (await call.response()).body == b"late"

    run(scenario)


def test_stream_stops_at_the_window_and_goes_on_with_a_grant(tmp_path):
    sent: list[int] = []

    async def chunks():
        for i in range(100):
            sent.append(i)
            yield bytes(10_000)

    async def handler(request: Request):
        return StreamingResponse(chunks())

    async def scenario() -> None:
        async with staged(tmp_path, handler) as stage:
            caller = await stage.connect()
            call = caller.http()
            other = caller.http(b"/?other")
            received = 0
            while received < WINDOW_BYTES:
                kind, payload = await call.next()
                received += len(payload) if kind == Kind.CHUNK else 0
            await asyncio.sleep(0.02)
            assert call.frames.empty()
            assert len(sent) < 60
            assert (await other.response()).is_complete  # nobody else is stopped
            call.send(Kind.WINDOW, encode_window(2_000_000))
            response = await call.response()
            assert len(response.body) == 1_000_000

    run(scenario)


@pytest.mark.parametrize("is_chunked", [False, True])
def test_large_body_is_sent_in_pieces_under_the_window(tmp_path, is_chunked):
    data = bytes(range(256)) * 20_000
    ends = (body(data, True), body(b"")) if is_chunked else (body(data),)
    response = answer(tmp_path, asgi(start(), *ends))
    assert response.body == data
    assert response.kinds[0] == Kind.START
    assert max(len(piece) for piece in response.pieces) < WINDOW_BYTES


def test_large_result_is_sent_in_pieces(tmp_path):
    response = answer(tmp_path, lambda: b"x" * 3_000_000)
    assert response.body == b"x" * 3_000_000
    assert response.headers["content-type"] == "text/plain"
    assert len(response.pieces) > 10


# -- request bodies


async def echo(request: Request):
    pieces = [len(piece) async for piece in request.stream() if piece]
    return {"pieces": pieces}


def test_body_in_frames_is_read_piece_by_piece(tmp_path):
    async def scenario() -> None:
        async with staged(tmp_path, echo) as stage:
            call = (await stage.connect()).http(b"/", b"abc", method="POST", more_body=True)
            call.send(Kind.BODY, b"de")
            call.send(Kind.BODY, b"f")
            call.send(Kind.BODY)
            assert (await call.response()).body == b'{"pieces":[3,2,1]}'

    run(scenario)


def test_reading_a_body_grants_more_of_it(tmp_path):
    async def scenario() -> None:
        async with staged(tmp_path, echo) as stage:
            call = (await stage.connect()).http(b"/", method="POST", more_body=True)
            for _ in range(4):
                call.send(Kind.BODY, bytes(WINDOW_BYTES // 4))
            granted = 0
            while granted < WINDOW_BYTES:
                kind, payload = await call.next()
                assert kind == Kind.WINDOW
                granted += int.from_bytes(payload, "little")
            assert granted == WINDOW_BYTES
            call.send(Kind.BODY)
            assert (await call.end())[-1][0] == Kind.RESPONSE

    run(scenario)


def test_unread_body_grants_nothing(tmp_path):
    async def scenario() -> None:
        async with staged(tmp_path, returning("early")) as stage:
            call = (await stage.connect()).http(b"/", method="POST", more_body=True)
            call.send(Kind.BODY, bytes(WINDOW_BYTES))
            assert (await call.response()).kinds == [Kind.RESPONSE]

    run(scenario)


# -- cancellation and deadlines


class Slow:
    """Waits until it is cancelled."""

    seen: list[str] = []

    async def __call__(self, request: Request):
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            Slow.seen.append("cancelled")
            raise


def test_cancelled_request_cancels_its_handler(tmp_path):
    Slow.seen.clear()

    async def scenario() -> None:
        async with staged(tmp_path, Slow) as stage:
            call = (await stage.connect()).http()
            await started(stage)
            call.send(Kind.CANCEL)
            assert (await call.response()).status == 499
            assert stage.replica.dispatcher.statistics().admission.ongoing == 0

    run(scenario)
    assert Slow.seen == ["cancelled"]


async def started(stage: Any, count: int = 1) -> None:
    while stage.replica.dispatcher.statistics().admission.ongoing < count:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.005)


def test_request_that_is_cancelled_before_its_first_step_is_answered(tmp_path):
    async def scenario() -> None:
        async with staged(tmp_path, Slow) as stage:
            call = (await stage.connect()).http()
            call.send(Kind.CANCEL)
            assert (await call.response()).status == 499

    run(scenario)


def test_lost_caller_cancels_its_requests(tmp_path):
    Slow.seen.clear()

    async def scenario() -> None:
        async with staged(tmp_path, Slow) as stage:
            caller = await stage.connect()
            caller.http()
            caller.http()
            await started(stage, 2)
            caller.connection.close()
            while stage.replica.dispatcher.callers:
                await asyncio.sleep(0.001)
            assert stage.replica.dispatcher.statistics().admission.ongoing == 0

    run(scenario)
    assert Slow.seen == ["cancelled"] * 2


def test_deadline_cancels_the_handler(tmp_path):
    Slow.seen.clear()
    response = answer(tmp_path, Slow, timeout_s=0.02)
    assert response.status == 408
    assert Slow.seen == ["cancelled"]


def test_application_sees_the_disconnect(tmp_path):
    seen: list[Any] = []

    async def app(scope, receive, send) -> None:
        if scope["type"] != "http":
            return
        await receive()
        with contextlib.suppress(asyncio.CancelledError):
            seen.append((await receive())["type"])
        seen.append((await receive())["type"])
        try:
            await send(start())
        except OSError:
            seen.append("OSError")

    async def scenario() -> None:
        async with staged(tmp_path, ingress(app)(type("App", (), {}))) as stage:
            call = (await stage.connect()).http()
            await started(stage)
            call.send(Kind.CANCEL)
            await call.end()

    run(scenario)
    assert seen[-2:] == ["http.disconnect", "OSError"]


def test_cancelled_stream_closes_its_generator(tmp_path):
    closed = asyncio.Event()

    async def chunks():
        try:
            while True:
                yield bytes(100_000)
        finally:
            closed.set()

    async def handler(request: Request):
        return StreamingResponse(chunks())

    async def scenario() -> None:
        async with staged(tmp_path, handler) as stage:
            call = (await stage.connect()).http()
            await call.next()
            call.send(Kind.CANCEL)
            assert (await call.end(grant=False))[-1][0] == Kind.ABORT
            await asyncio.wait_for(closed.wait(), 60)

    run(scenario)


# -- applications


def test_starlette_application_with_lifespan_and_state(tmp_path):
    events: list[str] = []

    @contextlib.asynccontextmanager
    async def lifespan(app):
        events.append("startup")
        yield {"model": "m"}
        events.append("shutdown")

    async def home(request: Request):
        request.state.own = 1
        return PlainTextResponse(request.state.model + str(hasattr(request.state, "other")))

    def build():
        return Starlette(routes=[Route("/", home)], lifespan=lifespan)

    response = answer(tmp_path, ingress(build)(type("App", (), {})))
    assert (response.status, response.body) == (200, b"mFalse")
    assert events == ["startup", "shutdown"]


def test_exception_in_starlette_is_logged_once_and_a_500(tmp_path, caplog):
    async def home(request: Request):
        raise RuntimeError("secret")

    def build():
        return Starlette(routes=[Route("/", home)])

    response = answer(tmp_path, ingress(build)(type("App", (), {})))
    assert (response.status, response.body) == (500, b"Internal Server Error")
    assert caplog.text.count("RuntimeError: secret") == 1


def test_raw_response_class_of_an_application_is_called(tmp_path):
    class Custom(Response):
        async def __call__(self, scope, receive, send) -> None:
            await send(start(299))
            await send(body(b"custom"))

    response = answer(tmp_path, lambda: Custom())
    assert (response.status, response.body) == (299, b"custom")


def test_client_that_leaves_while_the_body_is_read_is_no_error_of_the_application(tmp_path):
    seen: list[str] = []

    async def handler(request: Request):
        try:
            await request.body()
        except (ClientDisconnect, asyncio.CancelledError) as error:
            seen.append(type(error).__name__)
            raise

    async def scenario() -> None:
        async with staged(tmp_path, handler) as stage:
            call = (await stage.connect()).http(b"/", b"ab", more_body=True)
            await started(stage)
            call.send(Kind.CANCEL)
            assert (await call.response()).status == 499
            assert stage.replica.dispatcher.statistics().failed == 0

    run(scenario)
    assert len(seen) == 1


def test_many_requests_of_one_connection_keep_their_answers_apart(tmp_path):
    async def handler(request: Request):
        await asyncio.sleep(0.001 * (int(request.query_params["n"]) % 3))
        return request.query_params["n"]

    async def scenario() -> None:
        async with staged(tmp_path, handler, options={"max_ongoing_requests": 100}) as stage:
            caller: TestCaller = await stage.connect()
            calls = [caller.http(b"/?n=%d" % n) for n in range(100)]
            for n, call in enumerate(calls):
                assert (await call.response()).body == b"%d" % n

    run(scenario)
