"""RLlink: RLlib's messages between simulators and algorithms.

A message is eight digits with its length, and a msgpack map with its `type` (NumPy arrays as the
library msgpack_numpy writes them). Nothing from a simulator is unpickled.
"""

from __future__ import annotations

import socket
from enum import Enum
from typing import Any

from syncline.rl import array_msgpack
from syncline.suggestions import did_you_mean

HEADER_BYTES = 8
LARGEST_MESSAGE_BYTES = 10**HEADER_BYTES - 1
VERSION = "0.0.1"


class RLlink(Enum):
    """Types of messages."""

    PING = "PING"
    """Simulator: answer with PONG."""
    PONG = "PONG"
    EPISODES = "EPISODES"
    """Simulator: `episodes`, states of `SingleAgentEpisode`s that its own policy sampled."""
    EPISODES_AND_GET_STATE = "EPISODES_AND_GET_STATE"
    """Simulator: the same, and wait for the weights after the next update."""
    GET_STATE = "GET_STATE"
    """Simulator: answer with SET_STATE."""
    SET_STATE = "SET_STATE"
    """Algorithm: `state` with the weights of the module below "rl_module"."""
    GET_CONFIG = "GET_CONFIG"
    """Simulator: answer with SET_CONFIG."""
    SET_CONFIG = "SET_CONFIG"
    """Algorithm: `config`, the pickled configuration."""
    START_EPISODE = "START_EPISODE"
    """Simulator: begin the episode `episode_id`; the algorithm acts in it."""
    GET_ACTION = "GET_ACTION"
    """Simulator: answer with the `action` for `observation`."""
    LOG_ACTION = "LOG_ACTION"
    """Simulator: it took `action` for `observation` itself."""
    LOG_RETURNS = "LOG_RETURNS"
    """Simulator: add `reward` to the last action's."""
    END_EPISODE = "END_EPISODE"
    """Simulator: the episode ended with `observation`, in a terminal state unless `truncated`."""
    ERROR = "ERROR"
    """Algorithm: `error` says why a message had no effect."""

    def __str__(self) -> str:
        return self.name


def send_rllink_message(sock_: socket.socket, message: dict[str, Any]) -> None:
    """Send a message.

    Raises:
        ConnectionError: The peer is gone.
        ValueError: The message is too large.
    """
    body = array_msgpack.pack(message)
    if len(body) > LARGEST_MESSAGE_BYTES:
        raise ValueError(
            f"A message of {len(body)} bytes does not fit into RLlink's limit of "
            f"{LARGEST_MESSAGE_BYTES}. Send fewer episodes at once."
        )
    try:
        sock_.sendall(b"%08d" % len(body) + body)
    except OSError as error:
        raise ConnectionError(f"The peer of {sock_} is gone: {error}") from error


def get_rllink_message(sock_: socket.socket) -> tuple[RLlink, dict[str, Any]]:
    """Wait for a message; return its type and the rest.

    Raises:
        ConnectionError: The peer is gone, or sent something else.
    """
    header = _receive(sock_, HEADER_BYTES)
    if not header.isdigit():
        raise ConnectionError(
            f"The peer sent {header!r} in place of a message's length: it does not speak RLlink."
        )
    try:
        message = array_msgpack.unpack(_receive(sock_, int(header)))
    except ValueError as error:
        raise ConnectionError(f"The peer sent a message that is no msgpack: {error}") from error
    name = str(message.pop("type", None)) if isinstance(message, dict) else "None"
    if name not in RLlink.__members__:
        hint = did_you_mean(name, list(RLlink.__members__))
        raise ConnectionError(f"The peer sent a message of the unknown type {name!r}.{hint}")
    return RLlink[name], message


def _receive(sock_: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        try:
            packet = sock_.recv(min(count - len(data), 1 << 20))
        except OSError as error:
            raise ConnectionError(f"The connection broke: {error}") from error
        if not packet:
            raise ConnectionError("The peer closed the connection.")
        data += packet
    return bytes(data)
