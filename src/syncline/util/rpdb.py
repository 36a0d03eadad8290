"""`set_trace`: `breakpoint()` under Ray's name; also `util.pdb`. Attach with `syncline debug`."""

from __future__ import annotations

import pdb
import sys

from syncline.core.debugger import WorkerDebugger


def set_trace(breakpoint_uuid: object = None) -> None:
    """Debug the caller: in a worker as `breakpoint()` does, in the program in its terminal.

    `breakpoint_uuid` is ignored.
    """
    frame = sys._getframe().f_back
    debugger = getattr(sys.breakpointhook, "__self__", None)
    if isinstance(debugger, WorkerDebugger):
        debugger.on_breakpoint(frame=frame)
    else:
        pdb.Pdb().set_trace(frame)
