"""Attacks on the dashboard by other sites, other users of the machine, visitors without the token,
and authors of records. The rules of the guard are tested in `test_dashboard_security`.
"""

import asyncio
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from syncline.dashboard import application, connections, training_figures
from syncline.dashboard.application import RequestTimeoutProtocol
from syncline.dashboard.connections import is_other_user, text_only
from syncline.dashboard.prometheus import MAX_VALUES, RunMetrics
from syncline.dashboard.run_index import RunIndex
from syncline.dashboard.run_query import Query
from syncline.dashboard.security import PAGE_KEY, Guard, Policy
from syncline.dashboard.server import (
    MAX_MESSAGES,
    MAX_TEXT_LENGTH,
    WINDOW_S,
    PlainFormatter,
    RateLimitFilter,
)
from syncline.runs import LocalFiles, RunDirectory, discovery
from syncline.runs import open as open_run
from syncline.runs.run_list import unreadable_summary
from syncline.runs.run_storage import LocalDirectory
from tests.dashboard.visitors import Visitor

TOKEN = "t" * 43
HOST = "127.0.0.1:8265"
POLICY = Policy(token=TOKEN, port=8265, loopback=True, hosts=frozenset({"127.0.0.1"}))
COOKIE = f"{POLICY.cookie_name}={POLICY.cookie_value}"


def status_of(
    path: str = "/",
    *,
    policy: Policy = POLICY,
    guard: Guard | None = None,
    query: str = "",
    **headers: str,
) -> int:
    """Return the guard's status for a GET; 200 if it forwards the request."""
    return answer_of(guard or Guard(guarded_app, policy), path, query, **headers)[0]


def answer_of(
    guard: Guard, path: str = "/", query: str = "", **headers: str
) -> tuple[int, dict[str, str]]:
    given = [
        (name.replace("_", "-").encode(), value.encode())
        for name, value in {"host": HOST, **headers}.items()
    ]
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": given,
    }
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(
        guard({**scope, "client": ("127.0.0.1", 4000), "server": ("127.0.0.1", 8265)}, never, send)
    )
    return sent[0]["status"], {name.decode(): value.decode() for name, value in sent[0]["headers"]}


async def never() -> Any:
    raise AssertionError("nothing is to be received")


async def guarded_app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


# -- other sites


@pytest.mark.parametrize(
    "site", ["cross-site", "same-site"]
)  # another port of this host counts as the same site
@pytest.mark.parametrize(
    ("mode", "dest"),
    [
        ("no-cors", "image"),
        ("cors", "empty"),
        ("navigate", "iframe"),
        ("navigate", "embed"),
        ("websocket", "websocket"),
        ("", ""),
    ],
)
def test_other_sites_have_nothing_loaded(site: str, mode: str, dest: str) -> None:
    assert (
        status_of(sec_fetch_site=site, sec_fetch_mode=mode, sec_fetch_dest=dest, cookie=COOKIE)
        == 403
    )


def test_other_sites_may_lead_to_a_page() -> None:
    assert (
        status_of(
            "/run/0/a",
            sec_fetch_site="cross-site",
            sec_fetch_mode="navigate",
            sec_fetch_dest="document",
        )
        == 200
    )
    assert (
        status_of(
            "/run/0/a", sec_fetch_site="same-origin", sec_fetch_mode="cors", sec_fetch_dest="empty"
        )
        == 200
    )
    assert (
        status_of(
            "/run/0/a", sec_fetch_site="none", sec_fetch_mode="navigate", sec_fetch_dest="document"
        )
        == 200
    )


# -- cookie theft


def test_neither_the_cookie_nor_the_key_tells_the_other_or_the_token() -> None:
    assert (
        len({POLICY.token, POLICY.cookie_value, POLICY.page_key, replace(POLICY, port=1).page_key})
        == 4
    )
    assert TOKEN not in repr(POLICY)
    scopes: list[Any] = []

    async def noted(scope: Any, receive: Any, send: Any) -> None:
        scopes.append(scope)
        await guarded_app(scope, receive, send)

    status, headers = answer_of(Guard(noted, POLICY), cookie=COOKIE)
    assert (status, scopes[0][PAGE_KEY]) == (200, POLICY.page_key)
    assert POLICY.page_key not in str(headers)


# -- other users of the machine


def test_other_users_of_the_machine_need_the_token() -> None:
    guard = Guard(guarded_app, POLICY, is_other_user=lambda client, server: True)
    assert status_of(guard=guard) == 401
    assert status_of("/metrics", guard=guard) == 401
    assert (
        status_of("/_nicegui/3/static/nicegui.js", guard=guard) == 200
    )  # a static file of the framework
    assert status_of(guard=guard, cookie=COOKIE) == 200
    assert status_of(guard=guard, authorization=f"Bearer {TOKEN}") == 200


def test_who_connects_is_seen() -> None:
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        try:
            server = socket.create_server((host, 0), family=family)
        except OSError:  # a machine without IPv6
            continue
        with (
            server,
            socket.create_connection(server.getsockname()[:2]),
            server.accept()[0] as accepted,
        ):
            assert not is_other_user(accepted.getpeername()[:2], accepted.getsockname()[:2])


def test_another_users_connection_is_a_strangers_and_so_is_nobodys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  "
        "timeout inode\n"
    )
    line = (
        "   0: 0100007F:{port:04X} 0100007F:2049 {state} 00000000:00000000 00:00000000 "
        "00000000  {user}  0 {inode} 1\n"
    )
    lines = [
        line.format(port=4000, state="01", user=os.getuid() + 1, inode=99),
        line.format(port=4001, state="01", user=os.getuid(), inode=99),
        line.format(port=4002, state="06", user=0, inode=0),  # closed connection
    ]
    (tmp_path / "tcp").write_text(head + "".join(lines))
    monkeypatch.setattr(connections, "TABLES", (tmp_path / "tcp", tmp_path / "tcp6"))
    server = ("127.0.0.1", 0x2049)
    assert is_other_user(("127.0.0.1", 4000), server)
    assert not is_other_user(("127.0.0.1", 4001), server)
    assert not is_other_user(("::ffff:127.0.0.1", 4001), server)
    assert is_other_user(("127.0.0.1", 4002), server)
    assert is_other_user(("127.0.0.1", 4003), server)
    monkeypatch.setattr(connections, "TABLES", (tmp_path / "missing", tmp_path / "tcp6"))
    assert not is_other_user(("127.0.0.1", 4000), server)  # a system without a connection table


def test_the_token_on_the_command_line_of_a_browser_opens_once_and_for_this_user() -> None:
    policy = replace(POLICY, first_token="f" * 43)
    strangers = Guard(guarded_app, policy, is_other_user=lambda client, server: True)
    assert status_of(guard=strangers, query=f"token={'f' * 43}") == 401
    own = Guard(guarded_app, policy)
    assert status_of(guard=own, query=f"token={'f' * 43}") == 303
    assert status_of(guard=own, query=f"token={'f' * 43}") == 401
    assert status_of(guard=own, query=f"token={TOKEN}") == 303


@pytest.mark.parametrize("mask", [0o002, 0o000])
def test_the_directory_of_announcements_is_closed_whatever_the_umask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mask: int
) -> None:
    monkeypatch.setenv("SYNCLINE_TMPDIR", str(tmp_path / "new"))
    before = os.umask(mask)
    try:
        made = discovery.directory()
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in (made, made.parent)] == [0o700, 0o700]


def test_nothing_is_made_behind_a_link_in_a_directory_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYNCLINE_TMPDIR", str(tmp_path))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"syncline-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError):
        discovery.directory()
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert discovery.alive() == []


# -- requests that no page sends


@pytest.mark.parametrize(
    "message",
    [
        {"bytes": b"4"},
        {"text": '452-["event",{"_placeholder":true,"num":0}]'},
        {"text": "461-[1]"},
        {"text": None, "bytes": b""},
    ],
)
def test_messages_in_binary_pieces_end_the_connection(message: dict[str, Any]) -> None:
    async def receive() -> Any:
        return {"type": "websocket.receive", **message}

    assert asyncio.run(text_only(receive)())["type"] == "websocket.disconnect"


@pytest.mark.parametrize("text", ["2", "40", '42["event",{}]', "41", '430["ack"]'])
def test_what_pages_send_gets_through(text: str) -> None:
    async def receive() -> Any:
        return {"type": "websocket.receive", "text": text}

    assert asyncio.run(text_only(receive)())["text"] == text


class Connection:
    """Connection and event loop of the server's protocol."""

    def __init__(self) -> None:
        self.is_closed = False
        self.later: list[Any] = []
        protocol = RequestTimeoutProtocol.__new__(RequestTimeoutProtocol)
        protocol.loop = self  # type: ignore[assignment]
        protocol.transport = self  # type: ignore[assignment]
        protocol.cycle = None  # type: ignore[assignment]
        self.protocol: RequestTimeoutProtocol = protocol
        protocol._watch()

    def call_later(self, delay_s: float, call: Any) -> None:
        assert delay_s == application.REQUEST_S
        self.later.append(call)

    def pass_time(self) -> None:
        for call in [self.later.pop() for _ in self.later[:]]:
            call()

    def is_closing(self) -> bool:
        return self.is_closed

    def get_protocol(self) -> Any:
        return self.protocol

    def close(self) -> None:
        self.is_closed = True


class Cycle:
    """A request with its response."""

    def __init__(self) -> None:
        self.response_complete = False


def test_who_connects_and_asks_nothing_is_sent_away() -> None:
    connection = Connection()
    connection.pass_time()
    assert connection.is_closed


def test_an_answer_may_take_long_and_then_the_next_request_may_not() -> None:
    connection = Connection()
    connection.protocol.cycle = Cycle()  # type: ignore[assignment]
    for _ in range(100):
        connection.pass_time()
    assert not connection.is_closed
    connection.protocol.cycle.response_complete = True
    connection.pass_time()
    assert connection.is_closed


def test_websockets_stay() -> None:
    connection = Connection()
    connection.get_protocol = lambda: None  # type: ignore[method-assign]
    connection.pass_time()
    assert not connection.is_closed


# -- messages


def test_messages_have_nothing_that_a_terminal_obeys() -> None:
    record = logging.LogRecord(
        "x", logging.ERROR, "", 0, "a \x1b]0;title\x07\x1b[31m\u202e\x9b\r%s", ("b\nc",), None
    )
    assert (
        PlainFormatter("%(message)s").format(record)
        == "a \ufffd]0;title\ufffd\ufffd[31m\ufffd\ufffd\ufffdb\nc"
    )
    record = logging.LogRecord("x", logging.ERROR, "", 0, "x" * 1_000_000, (), None)
    assert len(PlainFormatter("%(message)s").format(record)) < 2 * MAX_TEXT_LENGTH


def test_of_many_messages_a_few_are_printed() -> None:
    now = [0.0]
    sparing = RateLimitFilter(clock=lambda: now[0])

    def records(count: int) -> list[logging.LogRecord]:
        return [
            record
            for record in [
                logging.LogRecord("x", 40, "", 0, "%s", ("m",), None) for _ in range(count)
            ]
            if sparing.filter(record)
        ]

    assert len(records(1_000)) == MAX_MESSAGES
    now[0] += WINDOW_S
    assert (
        records(1)[0].getMessage() == f"m\n({1_000 - MAX_MESSAGES} earlier messages were dropped)"
    )
    assert records(1)[0].getMessage() == "m"


# -- records that make something go wrong


def test_one_run_that_cannot_be_summed_up_hides_no_other(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with RunDirectory(LocalFiles(tmp_path / name)) as run:
            run.write_run(name, {})
            run.write_outcome("finished")

    def summarize(place: Any) -> Any:
        if place.name == "a":
            raise ZeroDivisionError("an error that nobody thought of")
        return open_run(place).summary

    run_index = RunIndex([LocalDirectory(tmp_path)], summarize=summarize)
    run_index.refresh()
    rows = {row.directory: row.summary for row in run_index.select_fresh(Query()).rows}
    assert {name: summary.state for name, summary in rows.items() if summary is not None} == {
        "a": "unreadable",
        "b": "finished",
    }


def test_the_longer_a_summary_takes_the_longer_it_is_good() -> None:
    now = [0.0]
    storage = LocalDirectory("/runs")
    run_index = RunIndex(
        [storage],
        clock=lambda: now[0],
        names=lambda place: [("a", 1.0)],
        summarize=lambda place: open_summary(),
    )
    run_index.refresh()
    row = run_index.select_fresh(Query()).rows[0]
    assert replace(row, cost_s=0.0).is_due(now[0] + 2.0)
    assert not replace(row, cost_s=3.0).is_due(now[0] + 50.0)
    assert replace(row, cost_s=3.0).is_due(now[0] + 70.0)


def open_summary() -> Any:
    return replace(unreadable_summary(LocalDirectory("/runs/a"), ""), state="running")


def test_runs_of_one_name_and_metrics_of_one_label_are_no_two_series(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with RunDirectory(LocalFiles(tmp_path / name)) as run:
            run.write_run("the same", {})
            run.report(0, 0, {"x" * 200 + end: 1.0 for end in "12"} | {"\x01": 1.0, "\x02": 2.0})
    run_index = RunIndex([LocalDirectory(tmp_path)])
    run_index.refresh()
    run_index.select_fresh(Query())
    series = [
        line.rpartition(" ")[0]
        for line in RunMetrics(run_index).text()[0].decode().splitlines()
        if not line.startswith("#")
    ]
    assert sorted(series) == sorted(set(series))
    assert sum(line.startswith('syncline_run_reports{run="a"') for line in series) == 1


def test_a_run_that_is_larger_than_any_is_not_kept_for_prometheus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("large", "usual"):
        with RunDirectory(LocalFiles(tmp_path / name)) as run:
            run.write_run(name, {})
            run.event("started")
    with (tmp_path / "large" / "events.jsonl").open("a") as file:
        file.write(json.dumps({"event": "x", "time": 1, "many": [0] * (MAX_VALUES // 2)}) + "\n")
        file.write(json.dumps({"event": "x", "time": 1, "many": [0] * (MAX_VALUES // 2)}) + "\n")
    run_index = RunIndex(
        [LocalDirectory(tmp_path)], summarize=lambda place: replace(open_summary(), name=place.name)
    )
    run_index.refresh()
    run_index.select_fresh(Query())
    metrics = RunMetrics(run_index)
    for _ in range(2):
        assert set(
            re.findall(r'syncline_run_reports\{run="(\w+)"', metrics.text()[0].decode())
        ) == {"usual"}


def test_a_page_shows_so_much_of_a_run_and_no_more(tmp_path: Path) -> None:
    with RunDirectory(LocalFiles(tmp_path / "a")) as run:
        run.write_run("a", {})
        for number in range(training_figures.MAX_MARKS + 50):
            run.event("attempt", number=number, workers=[{"rank": 0}])
            run.event("checkpoint", name="c", report=number)
        workers = [
            {"rank": rank, "hostname": "h" * 500, "gpu_ids": ["0"]}
            for rank in range(training_figures.MAX_WORKERS + 10)
        ]
        run.event("attempt", workers=[{"rank": 0, "gpu_ids": list(range(1_000))}, *workers[1:]])
    opened = open_run(tmp_path / "a")
    assert len(training_figures.worker_rows(opened)) == training_figures.MAX_WORKERS
    assert (
        max(len(row.host) + len(row.device) for row in training_figures.worker_rows(opened)) <= 400
    )
    assert len(training_figures.restart_marks(opened, "time")) <= training_figures.MAX_MARKS
    reported = training_figures.event_views(opened, 10)
    assert (len(reported), reported[-1].number) == (10, len(opened.events) - 1)
    assert training_figures.goodput(opened) is None


# -- the command itself


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple["subprocess.Popen[str]", int, str]]:
    """Process, port and token of a dashboard that shows a running run."""
    with RunDirectory(LocalFiles(tmp_path / "runs" / "a")) as run:
        run.write_run("a", {})
        run.event("attempt", number=1, workers=[{"rank": 0}])
    described = json.loads((tmp_path / "runs" / "a" / "run.json").read_text())
    described["environment"]["hostname"] = "another"  # where nobody can see that it has ended
    (tmp_path / "runs" / "a" / "run.json").write_text(json.dumps(described))
    process = subprocess.Popen(
        [sys.executable, "-m", "syncline", "dashboard", str(tmp_path / "runs"), "--port", "0"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "SYNCLINE_TMPDIR": str(tmp_path)},
    )
    try:
        assert process.stdout is not None
        found = re.search(r":(\d+)/\?token=(\S+)", process.stdout.readline())
        assert found is not None
        yield process, int(found[1]), found[2]
    finally:
        process.kill()
        process.communicate()


@pytest.mark.processes
def test_the_cookie_alone_presses_no_button(
    running: tuple["subprocess.Popen[str]", int, str],
) -> None:
    """Another server on this host has the cookie from the browser that visited it, and sends
    whatever origin it likes.
    """
    _, port, token = running
    policy = Policy(token=token, port=port, loopback=True, hosts=frozenset())
    cookie = f"{policy.cookie_name}={policy.cookie_value}"
    with Visitor(port, "/run/0/a", cookie=cookie) as thief:
        thief.press("Stack traces")
        assert "Collecting stack traces" not in thief.wait_for("does not have the key")
    with Visitor(port, "/run/0/a", key=policy.cookie_value, cookie=cookie) as thief:
        thief.press("Stack traces")
        assert "Collecting stack traces" not in thief.wait_for("does not have the key")
    with Visitor(port, "/run/0/a", key=policy.page_key, cookie=cookie) as visitor:
        visitor.press("Stack traces")
        visitor.wait_for("is not reachable")  # The server tried to reach the run.


@pytest.mark.processes
def test_without_the_token_no_button_listens(
    running: tuple["subprocess.Popen[str]", int, str],
) -> None:
    with Visitor(running[1], "/run/0/a") as reader, pytest.raises(LookupError):
        reader.press("Stack traces")


@pytest.mark.processes
def test_what_a_page_says_is_not_printed_and_odd_events_change_nothing(
    running: tuple["subprocess.Popen[str]", int, str],
) -> None:
    process, port, _ = running
    with Visitor(port, "/run/0/a") as reader:
        reader.send("log", {"level": "error", "message": "\x1b[31mrun this: curl evil.example"})
        for number in range(100):
            reader.send(
                "event", {"id": number, "listener_id": "x", "args": ['{"pagination": 5}', "["]}
            )
            reader.send_text('42["event",[]]')
    with Visitor(port, "/run/0/a") as reader:
        reader.send_text('4599999-["event",{}]')
        with pytest.raises(ConnectionClosed):
            reader.wait_for("this never comes")
    with Visitor(port, "/") as reader:
        assert reader.elements
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=60)[0]
    assert "evil.example" not in said
    assert "\x1b" not in said
    assert said.count("Traceback") <= 3 * MAX_MESSAGES
