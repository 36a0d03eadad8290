"""The guard of the dashboard with plain ASGI calls: accepted requests, their permissions, and
headers.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from syncline.dashboard.security import (
    MAX_FAILURES,
    MAY_ACT,
    WINDOW_S,
    FailedTokens,
    Guard,
    Policy,
    allowed_hosts,
    content_policy,
    is_loopback,
    new_token,
)

TOKEN = "t" * 43
HOST = "127.0.0.1:8265"
ORIGIN = f"http://{HOST}"
LOOPBACK = Policy(
    token=TOKEN, port=8265, loopback=True, hosts=frozenset({"127.0.0.1", "localhost", "::1"})
)
NETWORK = Policy(token=TOKEN, port=8265, loopback=False, hosts=frozenset({"127.0.0.1", "10.0.0.5"}))
COOKIE = f"{LOOPBACK.cookie_name}={LOOPBACK.cookie_value}"


@dataclass
class Application:
    """Application that records forwarded requests and answers with `headers` and `body`."""

    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: tuple[bytes, ...] = (b"the page",)
    scopes: list[Mapping[str, Any]] = field(default_factory=list)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scopes.append(scope)
        if scope["type"] == "websocket":
            await send({"type": "websocket.accept"})
            return
        await send({"type": "http.response.start", "status": 200, "headers": self.headers})
        for place, part in enumerate(self.body):
            await send(
                {
                    "type": "http.response.body",
                    "body": part,
                    "more_body": place < len(self.body) - 1,
                }
            )


@dataclass
class Answer:
    """Messages that the guard sent."""

    messages: list[Any]
    scopes: list[Mapping[str, Any]]
    slept: list[float]

    @property
    def status(self) -> int:
        return next(
            message["status"]
            for message in self.messages
            if message["type"] == "http.response.start"
        )

    @property
    def headers(self) -> dict[str, str]:
        start = next(
            message for message in self.messages if message["type"] == "http.response.start"
        )
        return {name.decode().lower(): value.decode() for name, value in start["headers"]}

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages)

    @property
    def may_act(self) -> bool:
        return self.scopes[0][MAY_ACT]

    @property
    def passed(self) -> bool:
        return bool(self.scopes)


def ask(
    path: str = "/",
    *,
    policy: Policy = LOOPBACK,
    kind: str = "http",
    method: str = "GET",
    query: str = "",
    app: Application | None = None,
    failures: FailedTokens | None = None,
    raw_path: bytes | None = None,
    host: str | None = HOST,
    extra: tuple[tuple[str, str], ...] = (),
    **headers: str,
) -> Answer:
    """Return the guard's answer; keyword arguments are headers, with `_` for `-`."""
    app = app or Application()
    given = [
        (name.replace("_", "-").encode(), value.encode("latin-1"))
        for name, value in (*headers.items(), *extra)
    ]
    if host is not None:
        given.append((b"host", host.encode("latin-1")))
    scope = {
        "type": kind,
        "path": path,
        "raw_path": path.encode() if raw_path is None else raw_path,
        "query_string": query.encode(),
        "headers": given,
        "client": ("10.1.1.1", 4000),
    }
    if kind == "http":
        scope["method"] = method
    messages: list[Any] = []
    slept: list[float] = []

    async def send(message: Any) -> None:
        messages.append(message)

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def receive() -> Any:
        raise AssertionError("nothing is to be received")

    asyncio.run(Guard(app, policy, failures=failures, sleep=sleep)(scope, receive, send))
    return Answer(messages, app.scopes, slept)


def test_on_loopback_pages_are_read_without_the_token_and_nothing_may_be_done():
    answer = ask()
    assert (answer.status, answer.may_act) == (200, False)


@pytest.mark.parametrize(
    "path", ["/", "/run/0/a", "/metrics", "/files/0/a/logs/rank-0.log", "/_nicegui/3/static/x.js"]
)
def test_elsewhere_nothing_is_read_without_the_token(path: str):
    answer = ask(path, policy=NETWORK)
    assert (answer.status, answer.passed) == (401, False)
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("policy", [LOOPBACK, NETWORK])
def test_the_token_of_a_program_opens_everything(policy: Policy):
    answer = ask(policy=policy, authorization=f"Bearer {TOKEN}")
    assert (answer.status, answer.may_act) == (200, True)


@pytest.mark.parametrize("policy", [LOOPBACK, NETWORK])
@pytest.mark.parametrize(
    "offered", ["", "wrong", TOKEN[:-1], TOKEN + "t", LOOPBACK.cookie_value, "ü"]
)
def test_a_wrong_token_is_refused_even_where_none_is_needed(policy: Policy, offered: str):
    answer = ask(policy=policy, authorization=f"Bearer {offered}")
    assert (answer.status, answer.passed) == (401, False)
    assert answer.slept == [0.1]


def test_the_token_in_the_address_becomes_a_cookie_and_leaves_the_address():
    answer = ask(
        "/run/0/a b", raw_path=b"/run/0/a%20b", query=f"token={TOKEN}&q=x%20y", policy=NETWORK
    )
    assert (answer.status, answer.passed) == (303, False)
    assert answer.headers["location"] == f"/run/0/a%20b?q=x+y#key={NETWORK.page_key}"
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"{COOKIE}; ")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert TOKEN not in cookie
    assert NETWORK.page_key not in cookie
    assert answer.headers["referrer-policy"] == "no-referrer"


def test_a_wrong_token_in_the_address_is_refused():
    assert ask(query="token=wrong").status == 401
    assert ask(query=f"token=wrong&token={TOKEN}").status == 401


def test_the_cookie_opens_what_the_token_opens():
    assert ask(policy=NETWORK, cookie=f"a=b; {COOKIE}").may_act
    assert ask(
        policy=NETWORK,
        kind="websocket",
        path="/_nicegui_ws/socket.io/",
        cookie=COOKIE,
        origin=ORIGIN,
    ).may_act


@pytest.mark.parametrize(
    "cookie",
    ["", f"{LOOPBACK.cookie_name}={TOKEN}", f"other={LOOPBACK.cookie_value}", f"{COOKIE}x"],
)
def test_another_cookie_opens_nothing(cookie: str):
    assert ask(policy=NETWORK, cookie=cookie).status == 401
    assert not ask(cookie=cookie).may_act


def test_the_cookie_of_one_port_does_not_open_another():
    other = Policy(token=TOKEN, port=8266, loopback=False, hosts=NETWORK.hosts)
    assert other.cookie_value != NETWORK.cookie_value
    assert ask(policy=other, cookie=f"{other.cookie_name}={NETWORK.cookie_value}").status == 401


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8265",
        "127.0.0.1.evil.example",
        "127.0.0.1:8265@evil",
        "[::1",
        "",
        "localhost:x",
        None,
    ],
)
@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_a_foreign_name_that_leads_here_is_refused(host: str | None, kind: str):
    answer = ask(kind=kind, host=host, authorization=f"Bearer {TOKEN}", origin=f"http://{host}")
    assert not answer.passed
    if kind == "http":
        assert answer.status == 421


def test_two_hosts_are_none():
    assert not ask(extra=(("host", "evil.example"),)).passed


@pytest.mark.parametrize("host", ["127.0.0.1", "LOCALHOST:9999", "[::1]:8265", "[::1]"])
def test_own_names_are_answered_at_any_port_since_tunnels_change_it(host: str):
    assert ask(host=host).passed


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "http://127.0.0.1",
        "http://127.0.0.1:8266",
        "http://localhost:8265",
        "file://",
        "http://[",
        ORIGIN + "/x",
    ],
)
@pytest.mark.parametrize(
    ("kind", "path"), [("http", "/"), ("websocket", "/_nicegui_ws/socket.io/")]
)
def test_another_site_is_refused_whatever_it_has(origin: str, kind: str, path: str):
    assert not ask(path, kind=kind, origin=origin, cookie=COOKIE).passed


def test_a_websocket_needs_to_say_where_it_comes_from_unless_it_brings_the_token():
    path = "/_nicegui_ws/socket.io/"
    assert ask(path, kind="websocket", cookie=COOKIE).messages == [
        {"type": "websocket.close", "code": 1008, "reason": "Websockets need an Origin header."}
    ]
    assert not ask(path, kind="websocket", authorization="Bearer wrong").passed
    assert ask(path, kind="websocket", authorization=f"Bearer {TOKEN}").may_act


def test_a_websocket_from_elsewhere_needs_the_token():
    refused = ask("/_nicegui_ws/socket.io/", kind="websocket", policy=NETWORK, origin=ORIGIN)
    assert not refused.passed
    assert refused.messages[0]["type"] == "websocket.close"


@pytest.mark.parametrize(
    "method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"]
)
def test_nothing_takes_a_method_that_changes_something(method: str):
    assert (
        ask(
            "/_nicegui_ws/socket.io/", method=method, origin=ORIGIN, authorization=f"Bearer {TOKEN}"
        ).status
        == 405
    )
    assert ask("/", method=method, origin=ORIGIN, authorization=f"Bearer {TOKEN}").status == 405


@pytest.mark.parametrize(
    "before", ["/run/0/", "/files/0/a/profiles/", "/files/0/", "/_nicegui/3/static/", "/"]
)
@pytest.mark.parametrize(
    ("path", "raw"),
    [
        ("../../etc/passwd", None),
        ("../x", b"%2e%2e/x"),
        ("..", b"%2E%2e"),
        (".", None),
        ("a/b", b"a%2fb"),
        ("a/../b", b"a%2F..%2Fb"),
        ("a\0b", b"a%00b"),
        ("a\\..\\b", b"a%5c..%5Cb"),
        ("/etc/passwd", None),
        ("/etc/passwd", b"%2fetc%2fpasswd"),
        ("//evil.example", None),
    ],
)
def test_paths_that_could_lead_elsewhere_are_refused(before: str, path: str, raw: bytes | None):
    raw_path = None if raw is None else before.encode() + raw
    answer = ask(before + path, raw_path=raw_path, authorization=f"Bearer {TOKEN}")
    assert (answer.status, answer.passed) == (400, False)


def test_a_redirect_never_leads_to_another_host():
    for path in ("//evil.example/x", "/\\evil.example"):
        assert ask(path, query=f"token={TOKEN}").status == 400


def test_what_proxies_say_is_not_passed_on():
    answer = ask(
        x_forwarded_prefix="/'><script>",
        x_forwarded_for="127.0.0.1",
        forwarded="for=1",
        accept="text/html",
    )
    assert [name for name, _ in answer.scopes[0]["headers"]] == [b"accept", b"host"]


def test_wrong_tokens_are_answered_ever_later_and_then_not_at_all():
    now = [0.0]
    failures = FailedTokens(lambda: now[0])
    delays = [failures.failed("a") for _ in range(MAX_FAILURES)]
    assert delays[:4] == [0.1, 0.2, 0.4, 0.8]
    assert max(delays) == delays[-1] == 2.0
    assert failures.failed("a") is None
    assert failures.failed("b") == 0.1
    now[0] = WINDOW_S + 1
    assert failures.failed("a") == 0.1


def test_too_many_wrong_tokens_do_not_lock_out_who_has_the_right_one():
    failures = FailedTokens(lambda: 0.0)
    for _ in range(MAX_FAILURES + 1):
        failures.failed("10.1.1.1")
    assert ask(failures=failures, authorization="Bearer wrong").status == 429
    assert ask(failures=failures, authorization=f"Bearer {TOKEN}").status == 200


def test_a_wrong_token_is_logged_without_the_token(caplog: pytest.LogCaptureFixture):
    ask(authorization="Bearer almost-the-token")
    assert "10.1.1.1" in caplog.text
    assert "almost" not in caplog.text


@pytest.mark.parametrize("path", ["/", "/files/0/a/logs/rank-0.log", "/metrics", "/nothing"])
def test_every_answer_says_how_it_may_be_used(path: str):
    for answer in (ask(path), ask(path, policy=NETWORK)):
        headers = answer.headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == (
            "SAMEORIGIN" if path.startswith("/files/") else "DENY"
        )
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "default-src 'none'" in headers["content-security-policy"]


def test_files_of_the_library_may_be_kept_and_others_may_not():
    app = Application(headers=[(b"cache-control", b"public, max-age=9")])
    assert ask("/_nicegui/3/static/x.js", app=app).headers["cache-control"] == "public, max-age=9"
    assert ask("/", app=app).headers["cache-control"] == "no-store"


def test_no_other_site_is_told_that_it_may_read():
    app = Application(
        headers=[
            (b"access-control-allow-origin", b"*"),
            (b"Access-Control-Allow-Credentials", b"true"),
        ]
    )
    assert not [
        name
        for name in ask("/_nicegui_ws/socket.io/", app=app).headers
        if name.startswith("access-control")
    ]


def test_a_file_keeps_the_policy_that_it_comes_with():
    app = Application(headers=[(b"content-security-policy", b"sandbox")])
    assert ask("/files/0/a/profiles/x.svg", app=app).headers["content-security-policy"] == "sandbox"


def test_scripts_of_a_page_have_a_word_that_nobody_can_know_before():
    headers = [(b"x-nicegui-content", b"page"), (b"content-length", b"40")]
    app = Application(
        headers=headers, body=(b"<script>1</scri", b'pt><script type="module">2</script>')
    )
    answers = [ask(app=app), ask(app=app)]
    nonces = {
        answer.headers["content-security-policy"].partition("'nonce-")[2].partition("'")[0]
        for answer in answers
    }
    assert len(nonces) == 2
    for answer in answers:
        assert answer.body.count(b"<script nonce=") == 2
        assert int(answer.headers["content-length"]) == len(answer.body)
        assert "unsafe-inline' 'nonce" not in answer.headers["content-security-policy"]


def test_scripts_of_what_is_no_page_get_no_such_word():
    answer = ask(
        app=Application(headers=[(b"content-type", b"text/html")], body=(b"<script>1</script>",))
    )
    assert answer.body == b"<script>1</script>"
    assert "nonce" not in answer.headers["content-security-policy"]


def test_a_host_cannot_write_into_the_policy():
    assert "evil" not in content_policy("x; script-src evil", "n")


def test_listening_on_all_addresses_allows_those_of_this_machine():
    assert allowed_hosts("0.0.0.0", ["10.0.0.5", "fe80::1%eth0", "Box"], []) >= {
        "10.0.0.5",
        "fe80::1",
        "box",
        "127.0.0.1",
    }
    assert "10.0.0.5" not in allowed_hosts("127.0.0.1", ["10.0.0.5"], [])
    assert "proxy.example" in allowed_hosts("127.0.0.1", [], ["Proxy.example"])


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
    ],
)
def test_loopback_is_told_from_the_rest(host: str, loopback: bool):
    assert is_loopback(host) is loopback


def test_tokens_cannot_be_guessed():
    assert len({new_token() for _ in range(100)}) == 100
    assert all(len(new_token()) >= 43 for _ in range(10))
