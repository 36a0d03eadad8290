"""Finding the cluster and connecting to it, and what the program is told where that fails."""

from __future__ import annotations

import importlib.util
import logging
import socket
import threading
from typing import Any

from syncline.core import engines, refs
from syncline.core.config import ClusterConfig

if importlib.util.find_spec("ray") is None:
    raise ModuleNotFoundError(
        "a cluster needs Ray, which is not installed here: run `pip install \"syncline[cluster]\"`, on every node of the cluster too; "
        "or leave out `address` (and unset SYNCLINE_ADDRESS) to run on this machine.",
        name="ray",
    )
