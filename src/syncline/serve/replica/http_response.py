"""HTTP responses as bytes: heads, and the results of plain deployments as bodies. Pure.

The rules for heads are uvicorn's. A header with an invalid name or value is an error of the
handler. The server's own business (`connection`, `transfer-encoding`) is left out of its headers.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import re
import time
from collections import deque
from collections.abc import Callable, Iterable
from decimal import Decimal
from email.utils import formatdate
from enum import Enum
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import PurePath
from typing import Any
from uuid import UUID

from syncline.optional import load
from syncline.serve.wire.frames import RequestHead, encode_status

RawHeaders = Iterable[tuple[bytes, bytes]]

INTERNAL_SERVER_ERROR = b"Internal Server Error"
TEXT = b"text/plain; charset=utf-8"
SERVER = b"syncline"

_BAD_NAME = re.compile(rb'[\x00-\x20\x7f()<>@,;:\[\]={}"\\/?]')
_BAD_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_OMITTED = frozenset({b"connection", b"keep-alive", b"transfer-encoding"})
_MOST_NAMES = 1_000
_MOST_LEVELS = 250

STATUS_BYTES = {status: encode_status(status) for status in range(100, 1000)}
"""The beginning of RESPONSE and START payloads."""


def _status_line(status: int) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return f"HTTP/1.1 {status} {phrase}\r\n".encode()


_STATUS_LINES = {status: _status_line(status) for status in range(200, 1000)}


class _Date:
    """The Date and Server lines, formatted once a second."""

    def __init__(self) -> None:
        self.second = 0
        self.value = b""
        self.lines = b""

    def update(self, second: int) -> None:
        self.second = second
        self.value = formatdate(second, usegmt=True).encode()
        self.lines = b"date: " + self.value + b"\r\nserver: " + SERVER + b"\r\n"


_date = _Date()
_names: dict[bytes, bytes] = {}  # valid names as handlers write them, to lower case


def has_no_body(request: RequestHead, status: int) -> bool:
    """Return True if the response ends with its head."""
    return status in (204, 304) or request.method == "HEAD"


def encode_body_head(request: RequestHead, content_type: bytes, length: int) -> bytes:
    """Return the head of a 200 response with a body of `length` bytes."""
    second = int(time.time())
    if second != _date.second:
        _date.update(second)
    return (
        b"HTTP/1.1 200 OK\r\n%bcontent-length: %d\r\ncontent-type: %b\r\nx-request-id: %b\r\n%b"
        % (
            _date.lines,
            length,
            content_type,
            request.request_id.encode("latin-1", "replace"),
            _ENDS[request.keep_alive, request.http_version == "1.0"],
        )
    )


def encode_head(
    request: RequestHead, status: int, headers: RawHeaders, length: int | None
) -> tuple[bytes, int | None]:
    """Return the head of a response, and its content length if the handler or `length` gives one.

    With `length`, the body is complete: the head gets a content-length unless the handler gives
    one. Without either, the body is chunked (HTTP/1.0: it ends with the connection).

    Raises RuntimeError for an invalid status, header name or header value.
    """
    line = _STATUS_LINES.get(status)
    if line is None:
        raise RuntimeError(f"status {status!r} is not the status of a response: give 200 to 999")
    lines, present, declared = header_lines(headers)
    second = int(time.time())
    if second != _date.second:
        _date.update(second)
    own = [line]
    if b"date" not in present and b"server" not in present:
        own.append(_date.lines)
    elif b"date" not in present:
        own.append(b"date: %b\r\n" % _date.value)
    elif b"server" not in present:
        own.append(b"server: %b\r\n" % SERVER)
    if b"x-request-id" not in present:
        own.append(b"x-request-id: %b\r\n" % request.request_id.encode("latin-1", "replace"))
    is_old = request.http_version == "1.0"
    keep_alive = request.keep_alive
    if status == 204:
        lines = [each for each in lines if not each.startswith(b"content-length:")]
    elif declared is None and length is not None and status != 304:
        declared = length
        own.append(b"content-length: %d\r\n" % length)
    elif declared is None and not has_no_body(request, status):
        keep_alive = keep_alive and not is_old
        if not is_old:
            own.append(b"transfer-encoding: chunked\r\n")
    return b"".join((*own, *lines, _ENDS[keep_alive, is_old])), declared


# The line about the connection, if it is needed, and the empty line.
_ENDS = {
    (True, False): b"\r\n",
    (True, True): b"connection: keep-alive\r\n\r\n",
    (False, False): b"connection: close\r\n\r\n",
    (False, True): b"connection: close\r\n\r\n",
}


def header_lines(headers: RawHeaders) -> tuple[list[bytes], set[bytes], int | None]:
    """Return the lines, the names, and the value of content-length."""
    lines, present, declared = [], set(), None
    for name, value in headers:
        lower = _names.get(name) or _checked_name(name)
        if _BAD_VALUE.search(value):
            raise RuntimeError(
                f"the value of header {name.decode('latin-1')!r} contains a control character: "
                f"{value[:100]!r}"
            )
        if lower in _OMITTED:
            continue
        if lower == b"content-length":
            if declared is not None:
                raise RuntimeError("the response has two content-length headers")
            if not value.isdigit():
                raise RuntimeError(f"content-length {value[:100]!r} is not a number")
            declared = int(value)
        present.add(lower)
        lines.append(b"%b: %b\r\n" % (lower, value))
    return lines, present, declared


def _checked_name(name: bytes) -> bytes:
    if not name or _BAD_NAME.search(name):
        raise RuntimeError(f"{name[:100]!r} is not the name of a header")
    lower = bytes(name).lower()
    if len(_names) < _MOST_NAMES:
        _names[name] = lower
    return lower


# -- results of plain deployments


def encode_result(value: object) -> tuple[bytes, bytes]:
    """Return content type and body of a handler's result that is not a Response.

    Raises TypeError or ValueError for a value that has no form as JSON.
    """
    kind = type(value)
    if kind is dict or kind is list:
        return b"application/json", encode_json(value)
    if value is None:
        return b"text/plain", b""
    if isinstance(value, bytes):
        return b"text/plain", value
    if isinstance(value, str):
        return TEXT, value.encode()
    if hasattr(value, "__next__") or hasattr(value, "__anext__"):
        raise TypeError(
            f"the handler returned a {kind.__name__}, which has no form as JSON: return a "
            f"starlette.responses.StreamingResponse around it"
        )
    return b"application/json", encode_json(value)


def _json_encoder() -> Callable[[Any], bytes]:
    if find_spec("orjson") is None:
        return _plain_json
    orjson = load("orjson", purpose="Fast JSON", install="syncline[serve]")
    dumps = orjson.dumps
    options = orjson.OPT_PASSTHROUGH_DATACLASS

    def encode(value: object) -> bytes:
        try:
            result: bytes = dumps(value, to_jsonable, options)
        except TypeError:  # also integers beyond 64 bits, keys other than strings, lone surrogates
            return _plain_json(value)
        return result

    return encode


def _plain_json(value: object) -> bytes:
    try:
        return _strict.encode(value).encode()
    except UnicodeEncodeError:  # lone surrogates
        return json.dumps(value, separators=(",", ":"), default=to_jsonable).encode()
    except (TypeError, ValueError):  # keys, NaN and infinity that JSON does not have
        return _strict.encode(_strictly_json(value, 0)).encode()


def _strictly_json(value: object, depth: int) -> Any:
    """Return a copy that has only JSON's own types; NaN and infinity become null, as in orjson."""
    if depth > _MOST_LEVELS:
        raise ValueError("the result of the handler is nested too deeply, or contains itself")
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {_key(key): _strictly_json(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strictly_json(item, depth + 1) for item in value]
    return _strictly_json(to_jsonable(value), depth + 1)


def to_jsonable(value: object) -> Any:
    """Return a value that `json` can encode, or contains values to which this applies in turn.

    The rules are those of FastAPI's encoder, and NumPy's arrays and scalars as lists and numbers.
    Raises TypeError for all other values.
    """
    kind = type(value)
    if (kind.__module__ == "numpy" or hasattr(value, "__array__")) and hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    for types, convert in _CONVERSIONS:
        if isinstance(value, types):
            return convert(value)
    return _by_fastapi(value)


def _by_fastapi(value: object) -> Any:
    if hasattr(value, "__next__") or hasattr(value, "__anext__") or hasattr(value, "__await__"):
        raise TypeError(f"the result contains a {type(value).__name__}, which has no form as JSON")
    if find_spec("fastapi") is None:
        raise TypeError(f"a {type(value).__name__} has no form as JSON: return a dict instead")
    encoders = load("fastapi.encoders", purpose="JSON of objects", install="syncline[serve]")
    try:
        return encoders.jsonable_encoder(value)
    except Exception as error:
        raise TypeError(
            f"a {type(value).__name__} has no form as JSON ({error}): return a dict instead"
        ) from error


def _key(key: object) -> Any:
    if key is None or isinstance(key, (str, int, float, bool)):
        return key
    key = to_jsonable(key)
    return key if isinstance(key, (str, int, float, bool)) else str(key)


def _decimal(value: Decimal) -> int | float:
    exponent = value.as_tuple().exponent
    return int(value) if isinstance(exponent, int) and exponent >= 0 else float(value)


_CONVERSIONS: tuple[tuple[tuple[type, ...], Callable[[Any], object]], ...] = (
    ((tuple, set, frozenset, deque), list),
    ((datetime.datetime, datetime.date, datetime.time), lambda value: value.isoformat()),
    ((datetime.timedelta,), lambda value: value.total_seconds()),
    ((bytes, bytearray), lambda value: bytes(value).decode()),
    ((UUID, PurePath), str),
    ((Decimal,), _decimal),
)

_strict = json.JSONEncoder(
    separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=to_jsonable
)
encode_json: Callable[[Any], bytes] = _json_encoder()
"""Return the JSON of a handler's result; raise TypeError or ValueError if it has none."""
