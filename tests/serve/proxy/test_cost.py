"""Cost of a request in the proxy: function calls, and objects that remain."""

import gc
import sys
import weakref

from syncline.serve.proxy.http_protocol import HttpConnection
from syncline.serve.proxy.request_parser import RequestParser
from syncline.serve.proxy.requests import HttpCall
from tests.serve.proxy.fakes import GET, Client, post, respond

MOST_CALLS = 60
"""Python and C functions called for one echo request without the link and the sockets."""


def test_function_calls_of_a_request_stay_within_the_budget() -> None:
    client = Client(request_timeout_s=5.0)
    client.link.on_submit = lambda call: None
    counted = []

    def count(frame, event, argument) -> None:
        if event in ("call", "c_call"):
            counted.append(event)

    def serve() -> None:
        client.send(GET)
        call = client.call
        call.on_frame(20, b"\xc8\0HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

    serve()
    sys.setprofile(count)
    try:
        serve()
    finally:
        sys.setprofile(None)
    assert len(counted) <= MOST_CALLS


def test_requests_are_freed_without_the_garbage_collector() -> None:
    gc.collect()
    gc.disable()
    try:
        client = Client()
        calls: weakref.WeakSet = weakref.WeakSet()
        for _ in range(50):
            for request in (GET, post(b"x" * 100)):
                client.send(request)
                respond(client.call)
                calls.add(client.link.calls.pop())
        client.leave()
        assert len(calls) <= 1  # the last one is the parser's
    finally:
        gc.enable()


def test_connections_are_freed_without_the_garbage_collector() -> None:
    def count() -> int:
        kinds = (HttpConnection, RequestParser)
        return sum(isinstance(each, kinds) for each in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = count()
        for request in (GET, b"NONSENSE\r\n\r\n", post(b"abc")[:-1], b"GET / HT"):
            client = Client()
            client.send(request)
            assert count() == before + 2
            client.link.calls.clear()
            client.leave()
            del client.connection
        assert count() == before
    finally:
        gc.enable()


def test_idle_connection_is_small() -> None:
    client = Client()
    client.send(GET)
    respond(client.call)
    connection = client.connection
    objects = [connection, connection._parser, connection._queue]
    assert sum(map(sys.getsizeof, objects)) < 2500
    assert not any(isinstance(each, HttpCall) for each in gc.get_referents(connection))
