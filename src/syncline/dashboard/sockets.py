"""What a page may send through its websocket: texts, in one piece.

The pages' framework also takes messages in many binary pieces and keeps these until the last one
has come, however many were announced. Nothing in a page sends such messages.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]

_MESSAGE = "4"
_IN_PIECES = ("5", "6")
_UNSUPPORTED_DATA = 1003


def text_only(receive: Receive) -> Receive:
    """What is received, until something else comes: then the visitor counts as gone."""

    async def checked() -> Message:
        message = await receive()
        if message["type"] != "websocket.receive" or _is_text(message):
            return message
        return {"type": "websocket.disconnect", "code": _UNSUPPORTED_DATA}

    return checked


def _is_text(message: Message) -> bool:
    text = message.get("text")
    return isinstance(text, str) and not (text.startswith(_MESSAGE) and text[1:2] in _IN_PIECES)
