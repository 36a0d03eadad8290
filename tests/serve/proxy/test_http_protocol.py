"""Connections of clients: keep-alive, pipelining, bodies, limits, times."""

import pytest

from syncline.serve.proxy.limits import HttpLimits
from syncline.serve.wire.frames import WINDOW_BYTES, Kind
from tests.serve.proxy.fakes import (
    GET,
    Client,
    FakeTransport,
    chunk,
    grant,
    make_table,
    post,
    request_of,
    respond,
    start_stream,
)

MB = 1_000_000


class TestUnaryRequests:
    def test_the_replica_gets_the_head_and_the_client_its_response(self) -> None:
        client = Client()
        client.send(b"GET /a%20b?x=1 HTTP/1.1\r\nHost: example.com\r\nX-Thing: One\r\n\r\n")
        head, body = client.request
        assert head.method == "GET"
        assert head.target == b"/a%20b?x=1"
        assert head.headers == [(b"host", b"example.com"), (b"x-thing", b"One")]
        assert (head.http_version, head.scheme, head.route) == ("1.1", "http", "/")
        assert (head.client, head.server) == (("10.0.0.9", 5555), ("10.0.0.1", 8000))
        assert (head.keep_alive, head.more_body, body) == (True, False, b"")
        respond(client.call)
        assert client.response.body == b"hello"
        assert not client.is_closed

    def test_one_byte_at_a_time_gives_the_same_request(self) -> None:
        request = post(b"0123456789", b"X-Thing: One", path=b"/path?query")
        whole, slow = Client(), Client()
        whole.send(request)
        for position in range(len(request)):
            slow.send(request[position : position + 1])
        for expected, got in zip(whole.request[0], slow.request[0], strict=True):
            if expected != whole.call.request_id:
                assert got == expected
        assert slow.request[1] == b"0123456789"

    def test_connection_serves_many_requests(self) -> None:
        client = Client()
        for number in range(5):
            client.send(GET)
            respond(client.call, b"%d" % number)
        assert [each.body for each in client.responses()] == [b"0", b"1", b"2", b"3", b"4"]

    @pytest.mark.parametrize(
        ("request_", "closes"),
        [
            (GET, False),
            (GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), True),
            (GET.replace(b"\r\n\r\n", b"\r\nConnection: foo, Close\r\n\r\n"), True),
            (b"GET / HTTP/1.0\r\n\r\n", True),
            (b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", False),
        ],
    )
    def test_connection_closes_when_the_client_wants_it(self, request_, closes) -> None:
        client = Client()
        client.send(request_)
        assert request_of(client.call)[0].keep_alive is not closes
        respond(client.call)
        assert client.is_closed is closes

    def test_bytes_after_the_last_request_are_ignored(self) -> None:
        client = Client()
        client.send(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + GET)
        client.send(b"\0garbage")
        respond(client.call)
        assert len(client.link.calls) == 1
        assert client.response.status == 200
        assert client.is_closed

    def test_head_request_has_no_body_in_local_responses(self) -> None:
        client = Client()
        client.send(b"HEAD /-/healthz HTTP/1.1\r\nHost: a\r\n\r\n" + GET)
        respond(client.call)
        first, second = client.responses(heads=(0,))
        assert (first.status, first.headers["content-length"]) == (200, "7")
        assert second.body == b"hello"

    def test_tls_is_the_scheme_https(self) -> None:
        client = Client(transport=FakeTransport(is_tls=True))
        client.send(GET)
        assert client.request[0].scheme == "https"

    def test_empty_lines_before_a_request_are_ignored(self) -> None:
        client = Client()
        client.send(b"\r\n\r\n" + GET)
        respond(client.call)
        assert client.response.status == 200

    def test_url_with_host_is_reduced_to_its_path(self) -> None:
        client = Client()
        client.send(b"GET http://other/path?x=1#frag HTTP/1.1\r\nHost: a\r\n\r\n")
        assert client.request[0].target == b"/path?x=1"

    def test_root_path_is_put_before_targets_and_prefixes(self) -> None:
        client = Client(root_path="/api", table=make_table("/app", root_path="/api"))
        client.send(b"GET /app/x HTTP/1.1\r\nHost: a\r\n\r\n")
        head = client.request[0]
        assert (head.target, head.root_path, head.route) == (b"/api/app/x", "/api/app", "/app")


class TestPipelining:
    def test_responses_come_in_the_order_of_the_requests(self) -> None:
        client = Client()
        client.send(b"".join(GET.replace(b"/", b"/%d" % number, 1) for number in range(10)))
        for number in range(10):
            assert len(client.link.calls) == number + 1  # one at a time
            assert client.request[0].target == b"/%d" % number
            respond(client.call, b"%d" % number)
        assert [each.body for each in client.responses()] == [b"%d" % n for n in range(10)]

    def test_local_responses_wait_for_their_turn(self) -> None:
        client = Client(table=make_table("/app"))
        app = b"GET /app HTTP/1.1\r\nHost: a\r\n\r\n"
        missing = b"GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n"
        client.send(app + missing + missing + app)
        assert not client.transport.written
        respond(client.call)
        respond(client.call)
        assert [each.status for each in client.responses()] == [200, 404, 404, 200]

    def test_error_in_the_middle_is_answered_after_what_came_before(self) -> None:
        client = Client()
        client.send(GET + b"NONSENSE\r\n\r\n" + GET)
        assert not client.transport.written
        respond(client.call)
        assert [each.status for each in client.responses()] == [200, 400]
        assert client.is_closed
        assert len(client.link.calls) == 1

    def test_many_requests_stop_the_reading_and_all_are_answered(self) -> None:
        client = Client(HttpLimits(pipelined=4))
        client.send(GET * 2000)
        assert not client.transport.reads
        for number in range(2000):
            assert len(client.link.calls) == number + 1
            respond(client.call)
        assert len(client.responses()) == 2000
        assert client.transport.reads

    def test_many_local_responses_do_not_nest(self) -> None:
        client = Client(table=make_table("/app"))
        app = b"GET /app HTTP/1.1\r\nHost: a\r\n\r\n"
        client.send(app + b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n" * 3000 + app)
        respond(client.call)
        assert len(client.responses()) == 3001
        respond(client.call)
        assert client.responses()[-1].status == 200

    def test_queued_bodies_are_limited(self) -> None:
        client = Client(HttpLimits(whole_body_bytes=1000))
        client.send(GET + post(b"x" * 900))
        assert client.transport.reads
        client.send(post(b"y" * 900))
        assert not client.transport.reads
        respond(client.call)
        assert client.transport.reads
        assert client.request[1] == b"x" * 900

    def test_long_body_waits_for_its_turn(self) -> None:
        client = Client(HttpLimits(whole_body_bytes=1000))
        request = post(b"x" * 5000)
        client.send(GET + request[:3000])
        assert not client.transport.reads
        respond(client.call)
        head, body = client.request
        assert head.more_body
        assert client.transport.reads
        client.send(request[3000:])
        assert body + client.link.body(client.call) == b"x" * 5000


class TestRequestBodies:
    def test_body_is_read_whole_before_the_request_is_sent(self) -> None:
        client = Client()
        request = post(b"x" * MB)
        client.send(request[:500_000])
        assert not client.link.calls
        client.send(request[500_000:])
        head, body = client.request
        assert body == b"x" * MB
        assert not head.more_body

    @pytest.mark.parametrize("size", [1, 5, 100_000])
    def test_chunked_body(self, size) -> None:
        client = Client()
        data = bytes(range(256)) * 1000
        client.send(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        for start in range(0, 20 * size, size):
            piece = data[start : start + size]
            client.send(b"%x\r\n%b\r\n" % (len(piece), piece) if piece else b"")
        client.send(b"0\r\n\r\n")
        assert client.request[1] == data[: 20 * size]

    def test_trailers_are_dropped(self) -> None:
        client = Client()
        client.send(
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"2\r\nab\r\n0\r\nX-Request-ID: evil\r\nHost: b\r\n\r\n" + GET
        )
        head, body = client.request
        assert body == b"ab"
        assert [name for name, _ in head.headers] == [b"host", b"transfer-encoding"]
        respond(client.call)
        respond(client.call)
        assert [each.status for each in client.responses()] == [200, 200]

    def test_long_body_streams_under_the_window(self) -> None:
        client = Client()
        data = bytes(range(256)) * 10_000
        request = post(data)
        sent = 0
        while client.transport.reads:
            client.send(request[sent : sent + 65_536])
            sent += 65_536
        head, start = client.request
        assert head.more_body
        assert len(start) >= MB
        assert len(client.link.body(client.call)) == WINDOW_BYTES
        while sent < len(request):
            grant(client.call, 100_000)
            while client.transport.reads and sent < len(request):
                client.send(request[sent : sent + 65_536])
                sent += 65_536
        grant(client.call, WINDOW_BYTES)
        assert start + client.link.body(client.call) == data
        assert client.link.frames[-1] == (client.call, Kind.BODY, b"")
        respond(client.call)
        assert client.response.status == 200
        assert not client.is_closed

    def test_sent_pieces_go_to_another_replica_if_the_first_one_is_busy(self) -> None:
        client = Client(HttpLimits(whole_body_bytes=1000))
        request = post(b"x" * 10_000)
        client.send(request[:5000])
        client.send(request[5000:7000])
        first = client.link.body(client.call)
        assert len(first) == 2000
        client.call.replica_id = ""  # BUSY: the router took the call back
        client.send(request[7000:8000])
        assert client.link.body(client.call) == first
        client.link.frames.clear()
        client.link.start(client.call, "app#Echo#2")
        assert client.call.can_resend
        assert len(client.link.body(client.call)) == 3000
        client.send(request[8000:])
        assert client.request[1] + client.link.body(client.call) == b"x" * 10_000
        assert client.link.frames[-1].payload == b""

    def test_after_the_first_grant_the_body_cannot_be_sent_again(self) -> None:
        client = Client(HttpLimits(whole_body_bytes=1000))
        request = post(b"x" * 10_000)
        client.send(request[:5000])
        client.send(request[5000:6000])
        assert client.call.can_resend
        grant(client.call, 1000)
        assert not client.call.can_resend

    def test_queued_request_with_a_long_body_is_not_read(self) -> None:
        client = Client(HttpLimits(whole_body_bytes=1000))
        client.link.on_submit = lambda call: None  # no replica is free
        request = post(b"x" * 10_000)
        client.send(request[:5000])
        assert not client.transport.reads
        client.link.start(client.call)
        assert client.transport.reads
        client.send(request[5000:])
        assert client.request[1] + client.link.body(client.call) == b"x" * 10_000

    def test_response_before_the_end_of_the_body(self) -> None:
        client = Client(HttpLimits(whole_body_bytes=1000))
        request = post(b"x" * 2500)
        client.send(request[:2000])
        respond(client.call, status=413)
        client.send(request[2000:] + GET)  # the rest is dropped, the connection goes on
        respond(client.call)
        assert [each.status for each in client.responses()] == [413, 200]

    def test_endless_body_after_the_response_closes_the_connection(self) -> None:
        client = Client(HttpLimits(whole_body_bytes=1000))
        client.send(post(b"x" * 50_000)[:3000])
        respond(client.call)
        assert not client.is_closed
        client.send(b"x" * 1001)
        assert client.is_closed

    def test_unknown_path_with_a_long_body_is_answered_at_once(self) -> None:
        client = Client(HttpLimits(whole_body_bytes=1000), table=make_table("/app"))
        client.send(post(b"x" * 5000)[:3000])
        assert client.response.status == 404
        assert client.response.headers["connection"] == "close"
        assert client.is_closed

    def test_unknown_path_with_a_short_body_keeps_the_connection(self) -> None:
        client = Client(table=make_table("/app"))
        client.send(post(b"x" * 500))
        assert client.response.status == 404
        assert not client.is_closed


class TestExpectContinue:
    REQUEST = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"

    def test_client_is_told_to_continue(self) -> None:
        client = Client()
        client.send(self.REQUEST)
        assert client.transport.written == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.send(b"abc")
        respond(client.call)
        assert [each.status for each in client.responses()] == [100, 200]

    def test_too_long_body_is_refused_instead(self) -> None:
        client = Client(HttpLimits(body_bytes=2))
        client.send(self.REQUEST)
        assert client.response.status == 413

    def test_unknown_path_is_refused_instead(self) -> None:
        client = Client(table=make_table("/app"))
        client.send(self.REQUEST)
        assert client.response.status == 404
        assert client.is_closed

    def test_http_1_0_client_gets_none(self) -> None:
        client = Client()
        client.send(self.REQUEST.replace(b"1.1", b"1.0"))
        assert not client.transport.written

    def test_pipelined_request_is_told_when_its_turn_comes(self) -> None:
        client = Client()
        client.send(GET + self.REQUEST)
        assert not client.transport.written
        respond(client.call)
        assert [each.status for each in client.responses()] == [200, 100]
        client.send(b"abc")
        assert client.request[1] == b"abc"


class TestStreamedResponses:
    def test_chunks_go_to_the_client_as_they_come(self) -> None:
        client = Client()
        client.send(GET)
        start_stream(client.call)
        chunk(client.call, b"one")
        assert client.transport.written.endswith(b"3\r\none\r\n")
        chunk(client.call, b"two")
        client.call.on_frame(Kind.CHUNK, b"0\r\n\r\n")
        client.call.on_frame(Kind.END, b"")
        assert client.response.body == b"onetwo"
        assert not client.is_closed

    def test_replica_gets_grants_for_what_the_client_accepts(self) -> None:
        client = Client()
        client.send(GET)
        start_stream(client.call)
        for _ in range(8):
            client.call.on_frame(Kind.CHUNK, b"x" * 32_768)
        assert client.link.granted() == 8 * 32_768

    def test_slow_reader_gets_no_grants(self) -> None:
        client = Client()
        client.send(GET)
        start_stream(client.call)
        client.connection.pause_writing()
        for _ in range(8):
            client.call.on_frame(Kind.CHUNK, b"x" * 32_768)
        assert client.link.granted() == 0
        client.connection.resume_writing()
        assert client.link.granted() == 8 * 32_768

    def test_next_request_waits_for_a_slow_reader(self) -> None:
        client = Client()
        client.send(GET)
        client.connection.pause_writing()
        respond(client.call)
        client.send(GET)
        assert len(client.link.calls) == 1
        client.connection.resume_writing()
        assert len(client.link.calls) == 2

    def test_abort_closes_the_connection(self) -> None:
        client = Client()
        client.send(GET)
        start_stream(client.call)
        chunk(client.call, b"one")
        client.call.on_frame(Kind.ABORT, b"")
        assert client.is_closed
        assert not client.transport.written.endswith(b"0\r\n\r\n")

    def test_abort_resets_the_connection_of_an_old_client(self) -> None:
        client = Client()
        client.send(b"GET / HTTP/1.0\r\n\r\n")
        start_stream(client.call, headers=b"connection: close\r\n")
        client.call.on_frame(Kind.ABORT, b"")
        assert client.transport.is_aborted

    def test_response_without_a_length_ends_the_connection_of_an_old_client(self) -> None:
        client = Client()
        client.send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        start_stream(client.call, headers=b"connection: close\r\n")
        client.call.on_frame(Kind.END, b"")
        assert client.is_closed

    def test_death_of_the_replica_breaks_the_stream(self) -> None:
        client = Client()
        client.send(GET)
        start_stream(client.call)
        assert not client.call.can_resend
        client.call.on_failed(ConnectionError())
        assert client.is_closed
        assert b" 502 " not in client.transport.written


class TestClientGone:
    def test_request_is_cancelled(self) -> None:
        client = Client()
        client.send(GET)
        client.leave()
        assert client.link.cancelled == [client.call]
        assert client.server.connection_count == 0
        client.call.on_frame(Kind.RESPONSE, b"\xc8\0late")
        assert not client.transport.written

    def test_request_goes_on_if_the_client_asked_for_it(self) -> None:
        client = Client()
        client.send(GET.replace(b"\r\n\r\n", b"\r\nX-Request-Disconnect-Disabled: ?1\r\n\r\n"))
        client.leave()
        assert not client.link.cancelled
        start_stream(client.call)
        client.call.on_frame(Kind.CHUNK, b"x" * 1000)
        assert client.link.granted() == 1000
        client.call.on_frame(Kind.END, b"")
        assert client.call.is_done

    def test_incomplete_request_is_not_sent(self) -> None:
        client = Client()
        client.send(post(b"abc")[:-1])
        client.leave()
        assert not client.link.calls
        assert not client.link.cancelled

    def test_streamed_body_is_cancelled(self) -> None:
        client = Client(HttpLimits(whole_body_bytes=1000))
        client.send(post(b"x" * 5000, b"X-Request-Disconnect-Disabled: ?1")[:3000])
        client.leave()
        assert client.link.cancelled == [client.call]

    def test_pipelined_requests_are_dropped(self) -> None:
        client = Client()
        client.send(GET * 3)
        client.leave()
        assert len(client.link.calls) == 1


class TestTimes:
    LIMITS = HttpLimits(head_s=10, body_s=30, keep_alive_s=90, linger_s=3, stalled_s=300)

    def test_slow_head(self) -> None:
        client = Client(self.LIMITS)
        client.send(b"GET / HT")
        for _ in range(9):
            client.pass_time(1)
        assert not client.transport.written
        client.pass_time(2)
        assert client.response.status == 408
        assert client.is_closed

    def test_bytes_of_a_head_do_not_extend_its_time(self) -> None:
        client = Client(self.LIMITS)
        client.send(b"GET / HTTP/1.1\r\nX: ")
        for _ in range(20):
            if not client.is_closed:
                client.send(b"x")
            client.pass_time(1)
        assert client.response.status == 408

    def test_slow_body(self) -> None:
        client = Client(self.LIMITS)
        client.send(post(b"abc")[:-2])
        client.pass_time(29)
        client.send(b"b")
        client.pass_time(29)
        assert not client.transport.written
        client.pass_time(2)
        assert client.response.status == 408
        assert client.is_closed

    def test_slow_streamed_body_is_cancelled(self) -> None:
        client = Client(HttpLimits(body_s=30, whole_body_bytes=1000))
        client.send(post(b"x" * 5000)[:3000])
        client.pass_time(32)
        assert client.link.cancelled == [client.call]
        assert client.response.status == 408

    def test_body_that_the_replica_does_not_read_is_not_slow(self) -> None:
        client = Client(HttpLimits(body_s=30, whole_body_bytes=1000))
        client.send(post(b"x" * MB)[:900_000])
        assert not client.transport.reads
        client.pass_time(500)
        assert not client.transport.written

    def test_idle_connection_closes_without_a_response(self) -> None:
        client = Client(self.LIMITS)
        client.send(GET)
        client.pass_time(500)  # the replica may take its time
        assert not client.is_closed
        respond(client.call)
        client.pass_time(89)
        assert not client.is_closed
        client.pass_time(2)
        assert client.is_closed
        assert len(client.responses()) == 1

    def test_connection_without_a_request_closes(self) -> None:
        client = Client(self.LIMITS)
        client.pass_time(89)
        assert not client.is_closed
        client.pass_time(2)
        assert client.is_closed
        assert not client.transport.written

    def test_pipelined_heads_have_each_their_time(self) -> None:
        client = Client(self.LIMITS)
        client.send(GET[:-1])
        for _ in range(30):
            client.pass_time(1)
            client.send(GET[-1:] + GET[:-1])
            respond(client.call)
        assert all(each.status == 200 for each in client.responses())
        assert not client.is_closed

    def test_refused_connection_closes_after_the_client_had_time_to_read(self) -> None:
        client = Client(self.LIMITS)
        client.send(b"NONSENSE\r\n\r\n")
        assert client.transport.has_written_eof
        assert not client.transport.is_closed
        client.send(b"more")
        client.pass_time(8)
        assert client.transport.is_aborted

    def test_client_that_reads_nothing_is_cut_off(self) -> None:
        client = Client(self.LIMITS)
        client.send(GET)
        client.connection.pause_writing()
        respond(client.call)
        client.transport.unsent = 5
        client.pass_time(380)
        assert not client.transport.is_aborted
        client.pass_time(60)
        assert client.transport.is_aborted

    def test_two_stalls_of_the_same_size_are_not_one(self) -> None:
        client = Client(self.LIMITS)
        for _ in range(10):
            client.send(GET)
            respond(client.call)
            client.transport.unsent = 5
            client.pass_time(100)
            client.transport.unsent = 0
            client.send(GET)
            client.pass_time(400)
            respond(client.call)
        assert not client.transport.is_aborted

    def test_client_that_reads_slowly_is_not_cut_off(self) -> None:
        client = Client(self.LIMITS)
        client.send(GET)
        client.connection.pause_writing()
        respond(client.call)
        for unsent in range(100, 1, -1):
            client.transport.unsent = unsent
            client.pass_time(60)
        assert not client.transport.is_aborted


class TestDrain:
    def test_idle_connections_close_and_others_after_their_response(self) -> None:
        idle, busy = Client(), Client()
        busy.send(GET)
        for client in (idle, busy):
            client.server.drain()
        assert idle.is_closed
        assert not busy.is_closed
        respond(busy.call)
        assert busy.is_closed
        assert busy.response.status == 200

    def test_responses_announce_the_end(self) -> None:
        client = Client()
        client.send(GET[:-1])
        client.server.drain()
        assert not client.is_closed
        client.send(GET[-1:])
        assert client.request[0].keep_alive is False
        respond(client.call)
        assert client.response.headers["connection"] == "close"


class TestWebSockets:
    HANDSHAKE = (
        b"GET /chat HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\n"
        b"Upgrade: websocket\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )

    def accept(self, client: Client) -> None:
        client.call.on_frame(Kind.START, b"\x65\0HTTP/1.1 101 Switching Protocols\r\n\r\n")

    def test_bytes_go_both_ways_after_the_handshake(self) -> None:
        client = Client()
        client.send(self.HANDSHAKE)
        head, body = client.request
        assert (head.scheme, head.more_body, body) == ("ws", False, b"")
        self.accept(client)
        client.send(b"\x81\x05hello")
        assert client.link.body(client.call) == b"\x81\x05hello"
        client.call.on_frame(Kind.CHUNK, b"\x81\x02yo")
        assert client.transport.written.endswith(b"\x81\x02yo")
        client.call.on_frame(Kind.END, b"")
        assert client.is_closed

    def test_early_bytes_wait_for_the_handshake(self) -> None:
        client = Client()
        client.send(self.HANDSHAKE + b"early")
        assert client.link.body(client.call) == b""
        assert not client.transport.reads
        self.accept(client)
        assert client.link.body(client.call) == b"early"
        assert client.transport.reads

    def test_window_stops_the_client(self) -> None:
        client = Client()
        client.send(self.HANDSHAKE)
        self.accept(client)
        client.send(b"x" * WINDOW_BYTES)
        assert not client.transport.reads
        grant(client.call, 1000)
        assert client.transport.reads

    def test_refused_handshake_is_a_response_and_the_end(self) -> None:
        client = Client()
        client.send(self.HANDSHAKE + b"early")
        respond(client.call, status=403)
        assert client.response.status == 403
        assert client.is_closed

    def test_client_that_leaves_cancels(self) -> None:
        client = Client()
        client.send(self.HANDSHAKE)
        self.accept(client)
        client.leave()
        assert client.link.cancelled == [client.call]
        assert client.call.status == 101

    def test_handshake_behind_another_request(self) -> None:
        client = Client()
        client.send(GET + self.HANDSHAKE + b"early")
        respond(client.call)
        assert client.request[0].scheme == "ws"
        self.accept(client)
        assert client.link.body(client.call) == b"early"

    def test_idle_websocket_stays_open(self) -> None:
        client = Client()
        client.send(self.HANDSHAKE)
        self.accept(client)
        client.pass_time(1000)
        assert not client.is_closed

    def test_websocket_has_no_deadline_unless_the_client_sets_one(self) -> None:
        client = Client(request_timeout_s=5.0)
        client.send(self.HANDSHAKE)
        assert client.call.deadline is None
        client = Client(request_timeout_s=5.0)
        client.send(self.HANDSHAKE[:-2] + b"X-Request-Timeout-Seconds: 3\r\n\r\n")
        assert client.call.deadline == 1003.0

    def test_websocket_to_an_unknown_path(self) -> None:
        client = Client(table=make_table("/app"))
        client.send(self.HANDSHAKE)
        assert client.response.status == 404
        assert client.is_closed


class TestOtherUpgrades:
    H2C = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAM\r\n"

    def test_h2c_is_ignored(self) -> None:
        client = Client()
        client.send(b"GET /x HTTP/1.1\r\nHost: a\r\n" + self.H2C + b"\r\n" + GET)
        assert client.request[0].target == b"/x"
        respond(client.call)
        assert client.request[0].target == b"/"
        respond(client.call)
        assert [each.status for each in client.responses()] == [200, 200]

    @pytest.mark.parametrize("step", [1, 7, 10_000])
    def test_body_of_a_request_with_h2c_is_its_body(self, step) -> None:
        client = Client()
        body = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
        request = (
            b"POST /x HTTP/1.1\r\nHost: a\r\n"
            + self.H2C
            + b"Content-Length: %d\r\n\r\n" % len(body)
            + body
        )
        for start in range(0, len(request), step):
            client.send(request[start : start + step])
        head, got = client.request
        assert (head.method, head.target, got) == ("POST", b"/x", body)
        respond(client.call)
        assert len(client.link.calls) == 1
        client.send(GET)
        assert len(client.link.calls) == 2

    def test_websocket_with_post_is_an_ordinary_request(self) -> None:
        client = Client()
        client.send(post(b"abc", b"Connection: upgrade", b"Upgrade: websocket"))
        head, body = client.request
        assert (head.scheme, body) == ("http", b"abc")
