"""Responses that the proxy writes itself: refusals, timeouts, and the paths below `/-/`."""

from __future__ import annotations

from email.utils import formatdate
from http import HTTPStatus
from typing import NamedTuple

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
SERVER_NAME = b"syncline"


class LocalResponse(NamedTuple):
    """A response of the proxy."""

    status: int
    text: str
    content_type: str = "text/plain; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()


def encode(
    response: LocalResponse,
    *,
    request_id: str = "",
    is_head: bool = False,
    keep_alive: bool = True,
    is_old: bool = False,
) -> bytes:
    """Return the bytes of a response; `is_head` leaves out its body, `is_old` is HTTP/1.0."""
    body = response.text.encode()
    try:
        phrase = HTTPStatus(response.status).phrase
    except ValueError:
        phrase = ""
    lines = [
        f"HTTP/1.1 {response.status} {phrase}",
        f"date: {formatdate(usegmt=True)}",
        f"server: {SERVER_NAME.decode()}",
        f"content-type: {response.content_type}",
        f"content-length: {len(body)}",
    ]
    lines += [f"{name}: {value}" for name, value in response.headers]
    if request_id:
        lines.append(f"x-request-id: {request_id}")
    if not keep_alive:
        lines.append("connection: close")
    elif is_old:
        lines.append("connection: keep-alive")
    head = "\r\n".join((*lines, "", "")).encode("latin-1", "replace")
    return head if is_head else head + body
