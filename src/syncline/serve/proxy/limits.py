"""`HttpLimits`: sizes and times that a client's connection may use. `Stall`: a slow reader."""

from __future__ import annotations

from syncline.records import dataclass
from syncline.serve.config import HTTPOptions

_CHECKED_EVERY_S = 30.0
"""Seconds after which two checks belong to different stalls."""


@dataclass(frozen=True, kw_only=True)
class HttpLimits:
    """Limits of HTTP connections. A status in a docstring answers requests beyond the limit."""

    head_bytes: int = 65_536
    """Request line and headers; 431."""
    header_lines: int = 100
    """Headers of a request; 431."""
    target_bytes: int = 16_384
    """Path with query string; 414."""
    body_bytes: int = 1 << 30
    """Request body, announced or chunked; 413."""
    whole_body_bytes: int = 1_000_000
    """Bodies up to this size are read whole before the request is sent; longer ones stream."""
    head_s: float = 10.0
    """Seconds from the first byte of a head to its last; 408."""
    body_s: float = 30.0
    """Seconds without a byte of an unfinished body; 408."""
    keep_alive_s: float = 90.0
    """Seconds that a connection without requests stays open."""
    stalled_s: float = 300.0
    """Seconds that a client may accept no byte of an answer; then the connection is closed."""
    linger_s: float = 3.0
    """Seconds that input is still read after a refusal, so that the client can read the answer."""
    connections: int = 10_000
    """Open connections of a proxy; beyond, the operating system queues them."""
    pipelined: int = 64
    """Requests of a connection that wait behind another one; beyond, reading pauses."""

    def __post_init__(self) -> None:
        """Check the values; raise ValueError for one that is not positive."""
        for name, value in vars(self).items():
            if value <= 0:
                raise ValueError(f"{name}={value} must be larger than 0")

    @classmethod
    def of(cls, options: HTTPOptions) -> HttpLimits:
        """Return the limits that a program chose."""
        return cls(
            head_bytes=options.max_header_bytes,
            target_bytes=options.max_target_bytes,
            body_bytes=options.max_body_bytes,
            head_s=options.header_timeout_s,
            body_s=options.body_timeout_s,
            keep_alive_s=options.keep_alive_timeout_s,
            connections=options.max_connections,
        )


class Stall:
    """Measures how long a client has accepted no bytes."""

    __slots__ = ("_checked", "_since", "_unsent")

    def __init__(self) -> None:
        self._unsent = -1
        self._since = 0.0
        self._checked = 0.0

    def has_lasted(self, unsent: int, now: float, limit_s: float) -> bool:
        """Return True if the number of unsent bytes is the same since `limit_s` seconds.

        A call that comes late begins a new measurement.
        """
        if unsent != self._unsent or now > self._checked + _CHECKED_EVERY_S:
            self._unsent, self._since = unsent, now
        self._checked = now
        return now >= self._since + limit_s
