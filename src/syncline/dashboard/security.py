"""Who may ask the dashboard for what: a guard around the whole application, its websockets
included.

A request is refused, in this order, for: a Host that is not one of ours (a foreign name that leads
to this address: DNS rebinding), a path that is not plain, a method or an Origin that no page of
ours sends (requests from other sites, which may only lead to a page), and a wrong or missing token.
What is let through carries `MAY_ACT` in its scope: pages offer actions only then.

On loopback, this user's programs may read pages without the token; other users of the machine, and
whoever comes to any other address, need it for everything. The token comes once in the address that
is printed (`?token=`), is taken out of it by a redirect, and lives on in a cookie that scripts
cannot read and other sites cannot send; programs send `Authorization: Bearer`.

Cookies go to every port of a host: a server of somebody else on the same machine gets ours from the
browser of who visits it. So the cookie opens pages, and that is all. The redirect also hands a key
to the page's script, behind the `#` of the address; browsers keep it for each port by itself, and
each action asks the page for it (`look.action`). Neither gives the token away: both are derived
from it.

Not covered: encryption. The token crosses the network as it is: anything but loopback belongs
behind an SSH tunnel or a proxy with TLS.
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
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from syncline.dashboard.peers import Address
from syncline.dashboard.sockets import text_only

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

MAY_ACT = "syncline.may_act"
"""Key in a request's scope: whether it came with the token."""
PAGE_KEY = "syncline.page_key"
"""Key in a request's scope: what its page must know before it acts."""
SOCKETS = "/_nicegui_ws/"
"""Where the pages' own traffic goes."""
STATIC = "/_nicegui/"
FILES = "/files/"
COOKIE_AGE_S = 30 * 86_400
WINDOW_S = 60.0
MOST_FAILURES = 30
"""Wrong tokens from one address within the window; who sends more is not even listened to."""
LONGEST_DELAY_S = 2.0
MOST_ADDRESSES = 1_000

log = logging.getLogger("syncline.dashboard")

_TOKEN_HELP = (
    "Open the address that `syncline dashboard` printed when it started: it has the token in it."
)
_UNPLAIN = re.compile(rb"%2f|%5c|%00|\\|//", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What the guard goes by."""

    token: str = field(repr=False)
    """Opens everything."""
    first_token: str | None = field(default=None, repr=False)
    """Does so once, for a program of this user: command lines, such as that of the browser that is
    started, are there for all to see.
    """
    port: int
    """Where the dashboard listens; names its cookie, so that two dashboards on a machine do not
    take each other's.
    """
    loopback: bool
    """Whether it can be reached from this machine alone."""
    hosts: frozenset[str]
    """Names and addresses by which it may be asked for, in lower case, without a port."""

    @property
    def cookie_name(self) -> str:
        """Of the cookie that stands for the token."""
        return f"syncline_dashboard_{self.port}"

    @property
    def cookie_value(self) -> str:
        """Derived from the token: it opens this dashboard's pages, and does not give the token
        away.
        """
        return self._derived("cookie")

    @property
    def page_key(self) -> str:
        """Derived from the token, too: what a page must know to act. Never sent in a header or to a
        server.
        """
        return self._derived("page")

    def _derived(self, what: str) -> str:
        return hmac.new(
            self.token.encode(), f"dashboard {what} {self.port}".encode(), hashlib.sha256
        ).hexdigest()


def new_token() -> str:
    """A token that cannot be guessed: 256 random bits."""
    return secrets.token_urlsafe(32)


def is_loopback(host: str) -> bool:
    """Whether who listens on `host` is reached from this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class FailedTokens:
    """How often addresses came with a wrong token lately, and how long they wait for the answer."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def failed(self, address: str) -> float | None:
        """One more failure: seconds to wait before it is answered, or None if there were too
        many.
        """
        now = self._clock()
        failures = self._failures.setdefault(address, deque(maxlen=MOST_FAILURES + 1))
        self._failures.move_to_end(address)
        while len(self._failures) > MOST_ADDRESSES:
            self._failures.popitem(last=False)
        while failures and failures[0] < now - WINDOW_S:
            failures.popleft()
        failures.append(now)
        return (
            None
            if len(failures) > MOST_FAILURES
            else min(0.1 * 2 ** (len(failures) - 1), LONGEST_DELAY_S)
        )


@dataclass(frozen=True)
class Refusal:
    """An answer instead of the application's."""

    status: int
    text: str


class Guard:
    """The application behind its guard; an ASGI application itself.

    Args:
        app: What is guarded. policy: What it goes by. failures: Remembers wrong tokens. sleep:
        Waits some seconds. is_stranger: Whether the connection between two ends, (host, port) each,
        is another user's; see `peers`.
    """

    def __init__(
        self,
        app: App,
        policy: Policy,
        *,
        failures: FailedTokens | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        is_stranger: Callable[[Address | None, Address | None], bool] = lambda client, server: (
            False
        ),
    ) -> None:
        self.app = app
        self._policy = policy
        self._failures = failures or FailedTokens()
        self._sleep = sleep
        self._is_stranger = is_stranger
        self._first_token = policy.first_token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or pass it on with what it may do."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = Incoming(scope)
        refusal = self._foreign(scope, headers)
        if refusal is not None:
            await _answer(scope, send, refusal.status, refusal.text)
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
            await self._welcome(scope, send)
            return
        may_act = offered is not None or self._has_cookie(headers)
        if not may_act and not self._may_read(scope):
            await _answer(scope, send, 401, f"This dashboard needs its token. {_TOKEN_HELP}")
            return
        # Nobody stands between the browser and us whom we know to trust: what such headers say is
        # the visitor's word.
        kept = [
            (name, value)
            for name, value in scope["headers"]
            if not name.lower().startswith((b"x-forwarded-", b"forwarded"))
        ]
        known = {MAY_ACT: may_act, PAGE_KEY: self._policy.page_key}
        await self.app(
            {**scope, "headers": kept, **known},
            text_only(receive),
            Outgoing(scope, headers.host, send),
        )

    def _may_read(self, scope: Scope) -> bool:
        """Whether pages are there for this visitor without the token; the library's own files are
        the same everywhere.
        """
        if not self._policy.loopback:
            return False
        return scope["path"].startswith(STATIC) or not self._is_stranger(
            scope.get("client"), scope.get("server")
        )

    def _foreign(self, scope: Scope, headers: Incoming) -> Refusal | None:
        """Why no page of ours can have sent this."""
        if headers.host_name not in self._policy.hosts:
            return Refusal(
                421,
                f"This dashboard does not go by the name {headers.host_name[:100]!r}. Use the address that it printed, "
                "or start it with --allow-host for the name of a proxy.",
            )
        if not plain_path(scope):
            return Refusal(
                400, "Paths here have no '..', no empty parts, and no slashes inside names."
            )
        if scope.get("method", "GET") not in ("GET", "HEAD"):
            return Refusal(405, "Nothing here takes this method.")
        if headers.is_foreign or (headers.origin is not None and not headers.same_origin):
            return Refusal(403, "This request comes from another site.")
        is_program = headers.bearer is not None and self._is_token(headers.bearer)
        if scope["type"] == "websocket" and headers.origin is None and not is_program:
            return Refusal(403, "This request does not say from which site it comes.")
        return None

    def _is_token(self, offered: str) -> bool:
        return hmac.compare_digest(offered.encode("utf-8", "replace"), self._policy.token.encode())

    def _is_first(self, offered: str, scope: Scope) -> bool:
        if self._first_token is None or not hmac.compare_digest(
            offered.encode("utf-8", "replace"), self._first_token.encode()
        ):
            return False
        if self._is_stranger(scope.get("client"), scope.get("server")):
            return False
        self._first_token = None
        return True

    def _has_cookie(self, headers: Incoming) -> bool:
        wanted = self._policy.cookie_value.encode()
        return any(
            hmac.compare_digest(value.encode("utf-8", "replace"), wanted)
            for value in headers.cookies(self._policy.cookie_name)
        )

    async def _refuse_token(self, scope: Scope, send: Send) -> None:
        address = str((scope.get("client") or ("somewhere",))[0])
        delay_s = self._failures.failed(address)
        if delay_s is None:
            await _answer(scope, send, 429, "Too many wrong tokens: wait a minute.")
            return
        log.warning("a wrong token came from %s", address)
        await self._sleep(delay_s)
        await _answer(scope, send, 401, f"This is not the token of this dashboard. {_TOKEN_HELP}")

    async def _welcome(self, scope: Scope, send: Send) -> None:
        """The token was in the address: put it in a cookie, and go to the same address without
        it.
        """
        rest = [(name, value) for name, value in _query(scope) if name != "token"]
        path = scope.get("raw_path") or scope["path"].encode()
        location = (
            path
            + (b"?" + urlencode(rest).encode() if rest else b"")
            + b"#key="
            + self._policy.page_key.encode()
        )
        cookie = f"{self._policy.cookie_name}={self._policy.cookie_value}; Path=/; Max-Age={COOKIE_AGE_S}; HttpOnly; SameSite=Strict"
        await _answer(
            scope, send, 303, "", [(b"location", location), (b"set-cookie", cookie.encode())]
        )


class Incoming:
    """The headers of a request that the guard looks at."""

    def __init__(self, scope: Scope) -> None:
        self._values: dict[bytes, list[str]] = {}
        for name, value in scope["headers"]:
            self._values.setdefault(name.lower(), []).append(value.decode("latin-1"))
        self.host = self._only(b"host") or ""
        """As sent, with its port."""
        self.origin = ",".join(self._values[b"origin"]) if b"origin" in self._values else None

    def _only(self, name: bytes) -> str | None:
        """The value of a header that is there once."""
        values = self._values.get(name, [])
        return values[0].strip() if len(values) == 1 else None

    @property
    def host_name(self) -> str:
        """The host without its port, in lower case; empty where it makes no sense."""
        return _host_name(self.host)

    @property
    def same_origin(self) -> bool:
        """Whether the Origin is the host that is asked, port and all."""
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
        """Whether the browser says that another site, or another port of this host, sends this
        other than by leading to a page of ours.
        """
        leads_to_page = (self._only(b"sec-fetch-mode"), self._only(b"sec-fetch-dest")) == (
            "navigate",
            "document",
        )
        return self._only(b"sec-fetch-site") in ("cross-site", "same-site") and not leads_to_page

    @property
    def bearer(self) -> str | None:
        """The token in `Authorization: Bearer`."""
        scheme, _, token = (self._only(b"authorization") or "").partition(" ")
        return token.strip() if scheme.lower() == "bearer" else None

    def cookies(self, name: str) -> list[str]:
        """Values of the cookies of that name."""
        pairs = (
            pair.partition("=")
            for header in self._values.get(b"cookie", [])
            for pair in header.split(";")
        )
        return [value.strip() for found, _, value in pairs if found.strip() == name]


class Outgoing:
    """Sends the application's answer with the headers that every answer has.

    Pages get a word of their own for each answer that allows the scripts in them (the nonce of a
    content security policy): what anybody else managed to write into a page does not know it, and
    does not run.
    """

    def __init__(self, scope: Scope, host: str, send: Send) -> None:
        self._send = send
        self._path: str = scope["path"]
        self._host = host
        self._nonce = secrets.token_urlsafe(16)
        self._started: Message | None = None  # of a page, held back until its body is known
        self._body = b""

    async def __call__(self, message: Message) -> None:
        """One message of the application to the server."""
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
        # Nothing but the template has these letters: foreign text in a page has its angle brackets
        # escaped.
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
    """What every answer says: no framing, no guessing of types, no caching but of the library's
    files, and what a page may load.
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
    """The content security policy of a page with that nonce, or of an answer that is no page.

    The pages' framework compiles its templates and the server's messages in the browser, hence
    'unsafe-eval'; its styles are inline.
    """
    if nonce is None:
        return "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    name = host if re.fullmatch(r"[A-Za-z0-9.\-:\[\]]+", host) else ""
    return (
        f"default-src 'none'; script-src 'self' 'nonce-{nonce}' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
        f"img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self' ws://{name} wss://{name}; frame-src 'self'; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    )


def plain_path(scope: Scope) -> bool:
    """Whether a path is what it looks like: nothing in it leads up, is empty, or hides a slash or
    the end of a text.
    """
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
    """By which names a dashboard that listens on `host` may be asked for.

    Args:
        host: What it listens on. addresses: Of this machine's network interfaces, and its names:
        what counts where it listens on all of them. names: Whatever else the user allows.
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


def _query(scope: Mapping[str, Any]) -> list[tuple[str, str]]:
    query: bytes = scope.get("query_string", b"")
    try:
        return parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=100)
    except ValueError:
        return []


def _token_in_query(scope: Scope) -> str | None:
    """The token in the address of a page; other addresses have none."""
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
