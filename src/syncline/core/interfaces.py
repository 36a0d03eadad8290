"""Network interfaces: which one has an address. Collectives are told by name where to connect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psutil


def interface_of(address: str, interfaces: Mapping[str, Sequence[Any]] | None = None) -> str | None:
    """The name of the interface that has an IP address; None where none has it, as behind a NAT.

    interfaces: As `psutil.net_if_addrs()` gives them; those of this machine by default.
    """
    for name, owned in (psutil.net_if_addrs() if interfaces is None else interfaces).items():
        if any(entry.address.partition("%")[0] == address for entry in owned):
            return name
    return None
