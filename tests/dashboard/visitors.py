"""`Visitor`: opens a page of a dashboard without a browser: requests it, opens its websocket,
presses buttons, answers.
"""

import html
import http.client
import json
import re
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

_EVENT, _PING, _PONG = "42", "2", "3"


class Visitor:
    """An open page. `key`: answer when the server requests the key for actions."""

    def __init__(self, port: int, path: str, key: str = "", **headers: str) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", path, headers=headers)
        page = connection.getresponse().read().decode()
        connection.close()
        self.elements: Mapping[str, Any] = json.loads(
            html.unescape(_found(r"String\.raw`(.*?)`", page))
        )
        asked = page.replace("'", '"')
        self.id = _found(r'"client_id": ?"([^"]+)"', asked)
        next_id = _found(r'"next_message_id": ?(\d+)', asked)
        self._key = key
        asked = (
            f"EIO=4&transport=websocket&client_id={self.id}&tab_id=1&document_id=1"
            f"&next_message_id={next_id}&implicit_handshake=true"
        )
        address = f"ws://127.0.0.1:{port}/_nicegui_ws/socket.io/?{asked}"
        self._stack = ExitStack()
        opened = connect(
            address, origin=Origin(f"http://127.0.0.1:{port}"), additional_headers=headers
        )
        self._socket: ClientConnection = self._stack.enter_context(opened)
        self._socket.recv(timeout=30)
        self._socket.send("40")

    def send(self, event: str, message: Mapping[str, Any]) -> None:
        """An event of the page protocol."""
        self.send_text(_EVENT + json.dumps([event, {"client_id": self.id, **message}]))

    def send_text(self, text: str) -> None:
        """Any decoded JSON."""
        self._socket.send(text)

    def press(self, label: str) -> None:
        """Press the button with this label, also if it is disabled."""
        for number, element in self.elements.items():
            if label in json.dumps(element.get("props", {}), ensure_ascii=False):
                for listener in element.get("events", []):
                    if listener["type"] == "click":
                        self.send(
                            "event",
                            {
                                "id": int(number),
                                "listener_id": listener["listener_id"],
                                "args": ["{}"],
                            },
                        )
                        return
        raise LookupError(f"no button with {label!r} listens")

    def wait_for(self, text: str, timeout_s: float = 30.0) -> str:
        """Return all messages of the server up to the one with `text`; TimeoutError if it does not
        arrive.
        """
        said = ""
        while text not in said:
            message = str(self._socket.recv(timeout=timeout_s))
            said += message
            if message == _PING:
                self._socket.send(_PONG)
            if "slKey()" in message:
                asked = json.loads(message.removeprefix(_EVENT))[1]
                self.send(
                    "javascript_response", {"request_id": asked["request_id"], "result": self._key}
                )
        return said

    def __enter__(self) -> "Visitor":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()


def _found(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.DOTALL)
    assert found is not None, text[:2_000]
    return found[1]
