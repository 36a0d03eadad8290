"""`set_trace` of Ray's debugger for an editor, which is refused: `breakpoint()` is the way here."""

from __future__ import annotations

from typing import NoReturn


def set_trace(breakpoint_uuid: object = None) -> NoReturn:
    """Raise NotImplementedError that says what to use."""
    raise NotImplementedError(
        "Workers have no port for a graphical debugger. Write `breakpoint()` and attach with "
        "`syncline debug`; or call `debugpy.listen(0)` and `debugpy.wait_for_client()` in the task "
        "or actor yourself, and attach the editor to the printed port."
    )
