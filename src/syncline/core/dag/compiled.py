"""`CompiledDAG`: a graph with a checked input, as `experimental_compile` returns it.

Ray starts a loop in each actor that passes values through channels. Here each execution submits the
graph's calls, whose values pass through the object store, so there are no limits on the number of
executions or the size of values, and the actors accept other calls meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from syncline.core.lifecycle import ensure_engine
from syncline.exceptions import RayChannelError
from syncline.records import dataclass


@dataclass(frozen=True, kw_only=True)
class GraphInput:
    """Arguments that an execution needs."""

    positional: int
    """Number of positional arguments."""
    names: tuple[str, ...]
    """Keyword arguments."""

    def check(self, args: Sequence[object], kwargs: Iterable[str]) -> None:
        """Raise ValueError if an execution gets other arguments."""
        if len(args) != self.positional:
            raise ValueError(
                f"the graph needs {self.positional} positional arguments, but got {len(args)}: "
                f"pass one for each index of the InputNode that the graph uses"
            )
        missing = [name for name in self.names if name not in kwargs]
        if missing:
            raise ValueError(
                f"the graph needs the keyword argument {missing[0]!r}, which the graph reads from "
                f"its InputNode: pass `{missing[0]}=...`"
            )


class CompiledDAG:
    """A graph that is executed many times: `execute`, or `execute_async` in an event loop."""

    def __init__(
        self,
        run: Callable[..., object],
        graph_input: GraphInput,
        actor_ids: Sequence[int],
        *,
        uses_asyncio: bool,
    ) -> None:
        self._run = run
        self._input = graph_input
        self._actor_ids = actor_ids
        self._uses_asyncio = uses_asyncio
        self._is_ended = False

    @property
    def is_teardown(self) -> bool:
        """True after `teardown`."""
        return self._is_ended

    def execute(self, *args: object, **kwargs: object) -> Any:
        """Submit the calls; return the reference of the output, or a list for several outputs.

        Raises ValueError for other arguments than the graph needs, and with `enable_asyncio=True`;
        RayChannelError after `teardown`.
        """
        if self._uses_asyncio:
            raise ValueError(
                "the graph was compiled with `enable_asyncio=True`: use `await execute_async(...)`"
            )
        return self._checked_run(args, kwargs)

    async def execute_async(self, *args: object, **kwargs: object) -> Any:
        """Submit the calls; return an awaitable of the output, or a list of them.

        Raises as `execute` does, but ValueError without `enable_asyncio=True`.
        """
        if not self._uses_asyncio:
            raise ValueError(
                "the graph was compiled without `enable_asyncio=True`: use `execute(...)`, or "
                "compile it with that argument"
            )
        return self._checked_run(args, kwargs)

    def _checked_run(self, args: Sequence[object], kwargs: dict[str, object]) -> Any:
        if self._is_ended:
            raise RayChannelError("the graph was torn down: compile a new one from new nodes")
        self._input.check(args, kwargs)
        return self._run(*args, **kwargs)

    def teardown(self, kill_actors: bool = False) -> None:
        """End the graph; with `kill_actors`, also its actors. May be called again."""
        if self._is_ended:
            return
        self._is_ended = True
        if kill_actors:
            for actor_id in self._actor_ids:
                ensure_engine().kill(actor_id, no_restart=True)
