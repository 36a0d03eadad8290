"""Access control of the dashboard: a guard around the whole application, websockets included.

A request is refused, in this order, for: a Host header other than the dashboard's own names (DNS
rebinding), a path that is not plain, a method or an Origin that the dashboard's pages never send
(other sites may only link to pages), and a wrong or missing token. Accepted requests carry
`MAY_ACT` in their scope; pages offer actions only if it is set.

On loopback, programs of this user may read pages without the token. Other users of the machine, and
clients of any other address, need the token for everything. The printed URL contains the token once
(`?token=`); a redirect moves it into a cookie that scripts cannot read and other sites cannot send.
Programs send `Authorization: Bearer`.

Browsers send cookies to every port of a host, so a server of another user on this machine receives
the cookie of a visitor. The cookie therefore only opens pages. For actions, the redirect hands a
key to the page's script in the fragment of the URL; browsers store it per port, and each action
requests it from the page (`widgets.action`). Cookie and key are derived from the token and do not
reveal it.

Not covered: encryption. The token is transmitted in plain text, so use an SSH tunnel or a proxy
with TLS for anything but loopback.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import logging
import re
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from syncline.dashboard.connections import Address, text_only
from syncline.runs.json_values import Record

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

MAY_ACT = "syncline.may_act"
"""Scope key: True if the request came with the token."""
PAGE_KEY = "syncline.page_key"
"""Scope key: key that the page must present before an action."""
SOCKETS = "/_nicegui_ws/"
"""Path of the pages' websockets."""
STATIC = "/_nicegui/"
FILES = "/files/"
COOKIE_AGE_S = 30 * 86_400
WINDOW_S = 60.0
MAX_FAILURES = 30
"""Maximum wrong tokens from one address within the window; further requests are rejected."""
MAX_DELAY_S = 2.0
MAX_ADDRESSES = 1_000

log = logging.getLogger("syncline.dashboard")

_TOKEN_HELP = "Open the URL with the token that `syncline dashboard` printed at start."
_UNPLAIN = re.compile(rb"%2f|%5c|%00|\\|//", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Settings of the guard."""

    token: str = field(repr=False)
    """Access token."""
    first_token: str | None = field(default=None, repr=False)
    """Token that this user's programs can use once. Used for the browser that is started, because
    other users can read its command line.
    """
    port: int
    """Port of the dashboard; part of the cookie name, so that two dashboards on a machine do not
    share a cookie.
    """
    loopback: bool
    """True if the dashboard is reachable from this machine only."""
    hosts: frozenset[str]
    """Accepted host names and addresses in lower case, without ports."""

    @property
    def cookie_name(self) -> str:
        """Name of the cookie."""
        return f"syncline_dashboard_{self.port}"

    @property
    def cookie_value(self) -> str:
        """Value of the cookie, derived from the token."""
        return self._derived("cookie")

    @property
    def page_key(self) -> str:
        """Key of the pages for actions, derived from the token. Never sent in a header."""
        return self._derived("page")

    def _derived(self, what: str) -> str:
        return hmac.new(
            self.token.encode(), f"dashboard {what} {self.port}".encode(), hashlib.sha256
        ).hexdigest()


def new_token() -> str:
    """Return a random token of 256 bits."""
    return secrets.token_urlsafe(32)


def is_loopback(host: str) -> bool:
    """Return True if a server that listens on `host` is reachable from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class FailedTokens:
    """Counter of recent wrong tokens per address, with growing delays."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def failed(self, address: str) -> float | None:
        """Count a failure; return the seconds to wait before the answer, or None if there were too
        many.
        """
        now = self._clock()
        failures = self._failures.setdefault(address, deque(maxlen=MAX_FAILURES + 1))
        self._failures.move_to_end(address)
        while len(self._failures) > MAX_ADDRESSES:
            self._failures.popitem(last=False)
        while failures and failures[0] < now - WINDOW_S:
            failures.popleft()
        failures.append(now)
        return (
            None
            if len(failures) > MAX_FAILURES
            else min(0.1 * 2 ** (len(failures) - 1), MAX_DELAY_S)
        )


class Guard:
    """ASGI application that guards another one.

    Args:
        app: Application to guard.
        policy: Settings.
        failures: Counter of wrong tokens.
        sleep: Waits for some seconds.
        is_other_user: Returns True if the connection between two (host, port) addresses belongs to
            another user; see `connections`.
    """

    def __init__(
        self,
        app: App,
        policy: Policy,
        *,
        failures: FailedTokens | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        is_other_user: Callable[[Address | None, Address | None], bool] = lambda client, server: (
            False
        ),
    ) -> None:
        self.app = app
        self._policy = policy
        self._failures = failures or FailedTokens()
        self._sleep = sleep
        self._is_other_user = is_other_user
        self._first_token = policy.first_token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or forward it with its permissions."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = RequestHeaders(scope)
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await _answer(scope, send, *refusal)
            return
        given = _token_in_query(scope)
        offered = headers.bearer if given is None else given
        if (
            offered is not None
            and not self._is_token(offered)
            and not self._is_first(offered, scope)
        ):
            await self._refuse_token(scope, send)
            return
        if given is not None:
            await self._set_cookie(scope, send)
            return
        may_act = offered is not None or self._has_cookie(headers)
        if not may_act and not self._may_read(scope):
            await _answer(scope, send, 401, f"This dashboard needs its token. {_TOKEN_HELP}")
            return
        # Remove the headers of proxies: no proxy is trusted, so a visitor may have set them.
        kept = [
            (name, value)
            for name, value in scope["headers"]
            if not name.lower().startswith((b"x-forwarded-", b"forwarded"))
        ]
        known = {MAY_ACT: may_act, PAGE_KEY: self._policy.page_key}
        await self.app(
            {**scope, "headers": kept, **known},
            text_only(receive),
            SecuredSender(scope, headers.host, send),
        )

    def _may_read(self, scope: Scope) -> bool:
        """Return True if this visitor may read pages without the token. The framework's static
        files are public.
        """
        if not self._policy.loopback:
            return False
        return scope["path"].startswith(STATIC) or not self._is_other_user(
            scope.get("client"), scope.get("server")
        )

    def _refusal(self, scope: Scope, headers: RequestHeaders) -> tuple[int, str] | None:
        """Return (status, text) if no page of this dashboard can have sent the request."""
        if headers.host_name not in self._policy.hosts:
            return 421, (
                f"This dashboard does not answer to the name {headers.host_name[:100]!r}. Use the "
                "printed URL, or start it with --allow-host for the name of a proxy."
            )
        if not plain_path(scope):
            return 400, "Invalid path: '..', empty parts and encoded slashes are not allowed."
        if scope.get("method", "GET") not in ("GET", "HEAD"):
            return 405, "Method not allowed."
        if headers.is_foreign or (headers.origin is not None and not headers.same_origin):
            return 403, "Cross-site requests are not allowed."
        is_program = headers.bearer is not None and self._is_token(headers.bearer)
        if scope["type"] == "websocket" and headers.origin is None and not is_program:
            return 403, "Websockets need an Origin header."
        return None

    def _is_token(self, offered: str) -> bool:
        return hmac.compare_digest(offered.encode("utf-8", "replace"), self._policy.token.encode())

    def _is_first(self, offered: str, scope: Scope) -> bool:
        if self._first_token is None or not hmac.compare_digest(
            offered.encode("utf-8", "replace"), self._first_token.encode()
        ):
            return False
        if self._is_other_user(scope.get("client"), scope.get("server")):
            return False
        self._first_token = None
        return True

    def _has_cookie(self, headers: RequestHeaders) -> bool:
        wanted = self._policy.cookie_value.encode()
        return any(
            hmac.compare_digest(value.encode("utf-8", "replace"), wanted)
            for value in headers.cookies(self._policy.cookie_name)
        )

    async def _refuse_token(self, scope: Scope, send: Send) -> None:
        address = str((scope.get("client") or ("somewhere",))[0])
        delay_s = self._failures.failed(address)
        if delay_s is None:
            await _answer(scope, send, 429, "Too many wrong tokens: wait one minute.")
            return
        log.warning("Wrong token from %s", address)
        await self._sleep(delay_s)
        await _answer(scope, send, 401, f"Wrong token. {_TOKEN_HELP}")

    async def _set_cookie(self, scope: Scope, send: Send) -> None:
        """Set the cookie and redirect to the same URL without the token."""
        rest = [(name, value) for name, value in _query(scope) if name != "token"]
        path = scope.get("raw_path") or scope["path"].encode()
        location = (
            path
            + (b"?" + urlencode(rest).encode() if rest else b"")
            + b"#key="
            + self._policy.page_key.encode()
        )
        cookie = (
            f"{self._policy.cookie_name}={self._policy.cookie_value}; Path=/; "
            f"Max-Age={COOKIE_AGE_S}; HttpOnly; SameSite=Strict"
        )
        await _answer(
            scope, send, 303, "", [(b"location", location), (b"set-cookie", cookie.encode())]
        )


class RequestHeaders:
    """Headers of a request."""

    def __init__(self, scope: Scope) -> None:
        self._values: dict[bytes, list[str]] = {}
        for name, value in scope["headers"]:
            self._values.setdefault(name.lower(), []).append(value.decode("latin-1"))
        self.host = self._only(b"host") or ""
        """Host header with its port."""
        self.origin = ",".join(self._values[b"origin"]) if b"origin" in self._values else None

    def _only(self, name: bytes) -> str | None:
        """Return the value of a header that occurs exactly once."""
        values = self._values.get(name, [])
        return values[0].strip() if len(values) == 1 else None

    @property
    def host_name(self) -> str:
        """Host without port, in lower case; empty if invalid."""
        return _host_name(self.host)

    @property
    def same_origin(self) -> bool:
        """True if the Origin equals the requested host and port."""
        try:
            parts = urlsplit(self.origin or "")
        except ValueError:
            return False
        return (
            parts.scheme in ("http", "https")
            and bool(parts.netloc)
            and parts.netloc.lower() == self.host.lower()
            and not parts.path
        )

    @property
    def is_foreign(self) -> bool:
        """True if the browser marks the request as coming from another site or port and it does not
        navigate to a page.
        """
        leads_to_page = (self._only(b"sec-fetch-mode"), self._only(b"sec-fetch-dest")) == (
            "navigate",
            "document",
        )
        return self._only(b"sec-fetch-site") in ("cross-site", "same-site") and not leads_to_page

    @property
    def bearer(self) -> str | None:
        """Token in `Authorization: Bearer`."""
        scheme, _, token = (self._only(b"authorization") or "").partition(" ")
        return token.strip() if scheme.lower() == "bearer" else None

    def cookies(self, name: str) -> list[str]:
        """Return the values of the cookies with a name."""
        pairs = (
            pair.partition("=")
            for header in self._values.get(b"cookie", [])
            for pair in header.split(";")
        )
        return [value.strip() for found, _, value in pairs if found.strip() == name]


class SecuredSender:
    """Sender that adds the security headers to every answer.

    Each page gets a fresh nonce in its content security policy and in its script tags. Scripts that
    foreign text smuggles into a page do not have the nonce and do not run.
    """

    def __init__(self, scope: Scope, host: str, send: Send) -> None:
        self._send = send
        self._path: str = scope["path"]
        self._host = host
        self._nonce = secrets.token_urlsafe(16)
        self._started: Message | None = None  # of a page; delayed until its body is complete
        self._body = b""

    async def __call__(self, message: Message) -> None:
        """Forward one message of the application to the server."""
        if message["type"] == "http.response.start":
            headers: Headers = list(message.get("headers", []))
            is_page = any(name.lower() == b"x-nicegui-content" for name, _ in headers)
            message = {**message, "headers": self._with_policy(headers, is_page)}
            if is_page:
                self._started = message
                return
        elif message["type"] == "http.response.body" and self._started is not None:
            self._body += message.get("body", b"")
            if not message.get("more_body", False):
                await self._send_page(self._started)
            return
        await self._send(message)

    async def _send_page(self, started: Message) -> None:
        # Only the template contains these characters: angle brackets in foreign text are escaped.
        body = self._body.replace(b"<script", f'<script nonce="{self._nonce}"'.encode())
        headers = [
            (name, value) for name, value in started["headers"] if name.lower() != b"content-length"
        ]
        await self._send(
            {**started, "headers": [*headers, (b"content-length", str(len(body)).encode())]}
        )
        await self._send({"type": "http.response.body", "body": body})

    def _with_policy(self, headers: Headers, is_page: bool) -> Headers:
        kept = [
            (name, value)
            for name, value in headers
            if not name.lower().startswith(b"access-control-")
        ]
        present = {name.lower() for name, _ in kept}
        wanted = dict(standard_headers(self._path, self._host, self._nonce if is_page else None))
        if not self._path.startswith(STATIC):
            kept = [(name, value) for name, value in kept if name.lower() != b"cache-control"]
            present.discard(b"cache-control")
        return kept + [(name, value) for name, value in wanted.items() if name not in present]


def standard_headers(path: str, host: str, nonce: str | None) -> Headers:
    """Return the headers of every answer: no framing, no content sniffing, no caching except of the
    framework's files, and the content security policy.
    """
    framing = b"SAMEORIGIN" if path.startswith(FILES) else b"DENY"
    return [
        (b"content-security-policy", content_policy(host, nonce).encode("latin-1", "replace")),
        (b"x-frame-options", framing),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        (b"cross-origin-opener-policy", b"same-origin-allow-popups"),
        (b"cross-origin-resource-policy", b"same-origin"),
        (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
        (b"cache-control", b"no-store"),
    ]


def content_policy(host: str, nonce: str | None) -> str:
    """Return the content security policy of a page with a nonce, or of another answer.

    The framework compiles templates in the browser, which needs 'unsafe-eval', and uses inline
    styles.
    """
    if nonce is None:
        return "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    name = host if re.fullmatch(r"[A-Za-z0-9.\-:\[\]]+", host) else ""
    return (
        f"default-src 'none'; script-src 'self' 'nonce-{nonce}' 'unsafe-eval'; "
        "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; media-src 'self'; "
        "font-src 'self' data:; "
        f"connect-src 'self' ws://{name} wss://{name}; frame-src 'self'; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    )


def plain_path(scope: Scope) -> bool:
    """Return True if a path has no '..', no empty part, and no hidden slash or NUL."""
    raw: bytes = scope.get("raw_path") or b""
    path: str = scope["path"]
    if (
        _UNPLAIN.search(raw.partition(b"?")[0])
        or "\0" in path
        or "//" in path
        or "\\" in path
        or not path.startswith("/")
    ):
        return False
    return not any(part in (".", "..") for part in path.split("/"))


def allowed_hosts(host: str, addresses: Iterable[str], names: Iterable[str]) -> frozenset[str]:
    """Return the host names that the dashboard accepts.

    Args:
        host: Address or name that it listens on.
        addresses: Addresses and names of this machine; used if it listens on all interfaces.
        names: Additional names.
    """
    known = {"localhost", "127.0.0.1", "::1", *names}
    known |= set(addresses) if host in ("0.0.0.0", "::", "") else {host}
    return frozenset(name.lower().strip("[]").partition("%")[0] for name in known if name)


def _host_name(host: str) -> str:
    if host.startswith("["):
        name, closing, rest = host[1:].partition("]")
        return name.lower() if closing and (not rest or rest[0] == ":") else ""
    name, colon, port = host.partition(":")
    return name.lower() if not colon or port.isdigit() else ""


def _query(scope: Record) -> list[tuple[str, str]]:
    query: bytes = scope.get("query_string", b"")
    try:
        return parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=100)
    except ValueError:
        return []


def _token_in_query(scope: Scope) -> str | None:
    """Return the token in the URL of a page; None for other URLs."""
    if (
        scope["type"] != "http"
        or scope["method"] != "GET"
        or scope["path"].startswith((SOCKETS, STATIC))
    ):
        return None
    return next((value for name, value in _query(scope) if name == "token"), None)


async def _answer(
    scope: Scope, send: Send, status: int, text: str, headers: Headers | None = None
) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": text[:100]})
        return
    body = text.encode()
    sent: Headers = [
        *standard_headers(scope["path"], "", None),
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        *([(b"www-authenticate", b"Bearer")] if status == 401 else []),
        *(headers or []),
    ]
    await send({"type": "http.response.start", "status": status, "headers": sent})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
