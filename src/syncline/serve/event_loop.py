"""The event loops of serve's processes: uvloop's, or asyncio's where uvloop is not installed."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec

from syncline.optional import load


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop."""
    if find_spec("uvloop") is None:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = load(
        "uvloop", purpose="The event loop of serve", install="syncline[serve]"
    ).new_event_loop()
    return loop
