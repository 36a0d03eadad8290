"""RLlink: RLlib's messages between simulators and algorithms.

A message consists of its length as eight digits and a msgpack map with its `type`; NumPy arrays are
encoded as by msgpack_numpy. Nothing from a simulator is unpickled.
"""

from __future__ import annotations

import socket
from enum import Enum
from typing import Any, TypeAlias

from syncline.rl import array_msgpack
from syncline.suggestions import did_you_mean

HEADER_BYTES = 8
LARGEST_MESSAGE_BYTES = 10**HEADER_BYTES - 1
VERSION = "0.0.1"

Message: TypeAlias = dict[str, Any]
"""The content of a message, as its encoding gives it."""


class RLlink(Enum):
    """Types of messages."""

    PING = "PING"
    """From the simulator: request PONG."""
    PONG = "PONG"
    EPISODES = "EPISODES"
    """From the simulator: `episodes`, states of `SingleAgentEpisode`s sampled by its own policy."""
    EPISODES_AND_GET_STATE = "EPISODES_AND_GET_STATE"
    """From the simulator: the same, and wait for the weights after the next update."""
    GET_STATE = "GET_STATE"
    """From the simulator: request SET_STATE."""
    SET_STATE = "SET_STATE"
    """From the algorithm: `state` with the weights of the module under "rl_module"."""
    GET_CONFIG = "GET_CONFIG"
    """From the simulator: request SET_CONFIG."""
    SET_CONFIG = "SET_CONFIG"
    """From the algorithm: `config`, the pickled configuration."""
    START_EPISODE = "START_EPISODE"
    """From the simulator: begin the episode `episode_id`, in which the algorithm acts."""
    GET_ACTION = "GET_ACTION"
    """From the simulator: request the `action` for `observation`."""
    LOG_ACTION = "LOG_ACTION"
    """From the simulator: it chose `action` for `observation`."""
    LOG_RETURNS = "LOG_RETURNS"
    """From the simulator: add `reward` to the last action."""
    END_EPISODE = "END_EPISODE"
    """From the simulator: the episode ended with `observation`; terminal unless `truncated`."""
    ERROR = "ERROR"
    """From the algorithm: `error` explains why a message had no effect."""

    def __str__(self) -> str:
        return self.name


def send_rllink_message(sock_: socket.socket, message: Message) -> None:
    """Send a message.

    Raises:
        ConnectionError: The peer has disconnected.
        ValueError: The message is too large.
    """
    body = array_msgpack.pack(message)
    if len(body) > LARGEST_MESSAGE_BYTES:
        raise ValueError(
            f"A message of {len(body)} bytes does not fit into RLlink's limit of "
            f"{LARGEST_MESSAGE_BYTES}. Send fewer episodes per message."
        )
    try:
        sock_.sendall(b"%08d" % len(body) + body)
    except OSError as error:
        raise ConnectionError(f"The peer of {sock_} has disconnected: {error}") from error


def get_rllink_message(sock_: socket.socket) -> tuple[RLlink, Message]:
    """Wait for a message; return its type and its other fields.

    Raises:
        ConnectionError: The peer has disconnected or sent invalid data.
    """
    header = _receive(sock_, HEADER_BYTES)
    if not header.isdigit():
        raise ConnectionError(
            f"The peer sent {header!r} instead of a message length: it does not use RLlink."
        )
    try:
        message = array_msgpack.unpack(_receive(sock_, int(header)))
    except ValueError as error:
        raise ConnectionError(f"The peer sent invalid msgpack: {error}") from error
    name = str(message.pop("type", None)) if isinstance(message, dict) else "None"
    if name not in RLlink.__members__:
        hint = did_you_mean(name, list(RLlink.__members__))
        raise ConnectionError(f"The peer sent a message of unknown type {name!r}.{hint}")
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
