"""`HttpRequestStage`: a POST request for each row of a batch, concurrently, with a rate limit and
retries.

Payloads are JSON; with a value of bytes, or `{"content": …}`, they are forms (multipart) for
sessions of aiohttp.
"""

from __future__ import annotations

import asyncio
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.llm.config import HttpRequestProcessorConfig
from syncline.data.llm.stages import with_columns
from syncline.optional import load
from syncline.records import dataclass

_RETRIED = frozenset({408, 429, 502, 503, 504})
_TIMEOUT_S = 300.0
_JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class _Response:
    """Answer of the standard library, with the interface of aiohttp's."""

    status: int
    reason: str
    body: bytes

    async def json(self) -> Any:
        """Return the document."""
        return json.loads(self.body)


class _Session:
    """Sends requests with the standard library, in threads."""

    async def __aenter__(self) -> _Session:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    def post(self, url: str, *, headers: Mapping[str, Any], data: str) -> _Call:
        """Return the call, to be entered."""
        request = urllib.request.Request(
            url,
            data=data.encode(),
            headers={name: str(value) for name, value in headers.items()},
            method="POST",
        )
        return _Call(request)


class _Call:
    """A request that is sent when its block is entered."""

    def __init__(self, request: urllib.request.Request) -> None:
        self._request = request

    async def __aenter__(self) -> _Response:
        return await asyncio.to_thread(self._send)

    async def __aexit__(self, *_: object) -> None:
        return None

    def _send(self) -> _Response:
        try:
            with urllib.request.urlopen(self._request, timeout=_TIMEOUT_S) as answer:
                return _Response(answer.status, answer.reason, answer.read())
        except urllib.error.HTTPError as error:
            return _Response(error.code, str(error.reason), error.read())


class HttpRequestStage:
    """Adds the column `http_response` for the column `payload`.

    Args:
        config: The processor's configuration.
    """

    def __init__(self, config: HttpRequestProcessorConfig) -> None:
        self._config = config

    def __call__(self, table: pa.Table) -> pa.Table:
        """Send the requests of a batch, and wait for all answers."""
        rows = blocks.row_list(table)
        missing = [row for row in rows if "payload" not in row]
        if missing:
            raise ValueError(
                "a row has no `payload`: let `preprocess` return it; the row has "
                f"{', '.join(map(repr, missing[0])) or 'no columns'}"
            )
        answers = asyncio.run(self._all([row["payload"] for row in rows]))
        return with_columns(table, {"http_response": answers})

    async def _all(self, payloads: list[Any]) -> list[Any]:
        make_session = self._config.session_factory or _Session
        async with make_session() as session:
            start = time.monotonic()
            sent = []
            for number, payload in enumerate(payloads, start=1):
                if self._config.qps is not None:
                    early_s = start + number / self._config.qps - time.monotonic()
                    await asyncio.sleep(max(0.0, early_s))
                sent.append(asyncio.create_task(self._answer(session, payload)))
            return list(await asyncio.gather(*sent))

    async def _answer(self, session: Any, payload: Any) -> Any:
        """Return the document of one answer.

        Raises:
            RuntimeError: There is none after all retries.
        """
        problem = ""
        for attempt in range(self._config.max_retries + 1):
            if attempt:
                wait_s = self._config.base_retry_wait_time_in_s * 2 ** (attempt - 1)
                await asyncio.sleep(wait_s)
            try:
                body, headers = self._body(payload)
                async with session.post(self._config.url, headers=headers, data=body) as answer:
                    if answer.status not in _RETRIED:
                        return await answer.json()
                    problem = f"status {answer.status} ({answer.reason})"
            except (OSError, asyncio.TimeoutError) as error:
                problem = f"{type(error).__name__}: {error}"
        raise RuntimeError(
            f"{self._config.url} gave no answer to {str(payload)[:200]} in "
            f"{self._config.max_retries + 1} attempts: {problem}. Raise `max_retries`, or lower "
            "`qps`."
        )

    def _body(self, payload: Any) -> tuple[Any, dict[str, Any]]:
        headers = dict(self._config.headers or {})
        if self._config.session_factory is not None and _is_form(payload):
            # The session is aiohttp's.
            form = load("aiohttp", purpose="a form as payload", install="aiohttp").FormData()
            for name, value in payload.items():
                _add_field(form, name, value)
            given = {key: each for key, each in headers.items() if key.lower() != "content-type"}
            return form, given
        return json.dumps(payload, default=_plain), {**_JSON, **headers}


def _is_form(payload: Any) -> bool:
    return isinstance(payload, dict) and any(
        isinstance(value, bytes) or (isinstance(value, dict) and "content" in value)
        for value in payload.values()
    )


def _add_field(form: Any, name: str, value: Any) -> None:
    if isinstance(value, dict) and "content" in value:
        form.add_field(
            name,
            value["content"],
            filename=value.get("filename") or name,
            content_type=value.get("content_type"),
        )
    elif isinstance(value, bytes):
        form.add_field(name, value, filename=name)
    else:
        form.add_field(name, value if isinstance(value, str) else json.dumps(value, default=_plain))


def _plain(value: object) -> object:
    """Return a value of numpy as JSON's."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"{value!r} has no form in JSON")
