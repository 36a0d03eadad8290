"""End of event loops that run in threads."""

from __future__ import annotations

import asyncio


async def cancel_all() -> None:
    """Cancel the other tasks of the running loop, wait for them, and close its async generators."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
