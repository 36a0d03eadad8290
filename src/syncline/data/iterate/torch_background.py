"""Torch batches in a program that has not imported torch: its import, which takes a second, runs on
a thread while the pass begins.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING

from syncline.data.columnar.block import Block
from syncline.optional import load, require, without_collections

if TYPE_CHECKING:
    from syncline.data.iterate.torch import Batch, Delivery, TorchConversion

_PURPOSE = {"purpose": "iter_torch_batches", "install": "torch"}


class BackgroundConversion:
    """`TorchConversion` with default arguments, which exists once torch is imported.

    Raises:
        ImportError: torch is not installed.
    """

    def __init__(self) -> None:
        require("torch", **_PURPOSE)
        self._conversion: TorchConversion | None = None
        _import_on_thread()

    def convert(self, table: Block) -> Delivery:
        """Convert a block, see `TorchConversion`."""
        if self._conversion is None:
            module = load("syncline.data.iterate.torch", library="torch", **_PURPOSE)
            self._conversion = module.torch_conversion()
        return self._conversion.convert(table)

    def receive(self, delivery: Delivery) -> Batch:
        """Return the batch."""
        assert self._conversion is not None
        return self._conversion.receive(delivery)


_importing: threading.Thread | None = None


def is_imported() -> bool:
    """Return True if torch is imported, or another thread imports it."""
    return "torch" in sys.modules


def _import_on_thread() -> None:
    global _importing
    # Not a daemon: the interpreter must not exit within the import.
    _importing = threading.Thread(target=_import, name="syncline-import-torch")
    _importing.start()


def _import() -> None:
    try:
        with without_collections():
            load("syncline.data.iterate.torch", library="torch", **_PURPOSE)
    except Exception:
        pass  # `convert` repeats the import and raises


def _finish_import() -> None:
    """Wait for the import before a fork: the child would wait forever for its lock."""
    if _importing is not None and _importing is not threading.current_thread():
        _importing.join()


os.register_at_fork(before=_finish_import)
