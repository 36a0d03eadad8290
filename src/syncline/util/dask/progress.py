"""A progress bar for Dask graphs: in terminals and notebooks, and silent elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from syncline.util.dask.callbacks import RayDaskCallback


class ProgressBarCallback(RayDaskCallback):
    """Shows how many tasks of the graph are done: `with ProgressBarCallback(): x.compute()`."""

    def __init__(self, console: Console | None = None) -> None:
        """console: where to show it; standard error by default."""
        super().__init__()
        self._console = console
        self._shown: list[_GraphProgress] = []  # the innermost last: a graph may start another

    def _start_state(self, dsk: Any, state: dict[str, Any]) -> None:
        bar = _GraphProgress(self._console or Console(stderr=True), state)
        self._shown.append(bar)
        bar.start()

    def _finish(self, dsk: Any, state: dict[str, Any], failed: bool) -> None:
        if self._shown:  # without a state the graph never began
            self._shown.pop().stop()


class _GraphProgress(Progress):
    """Reads the scheduler's state whenever it draws, so that the scheduler has nothing to do for
    it.
    """

    def __init__(self, console: Console, state: dict[str, Any]) -> None:
        self._state = state
        self._bar = None
        shown = console.is_terminal or console.is_jupyter
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        super().__init__(*columns, console=console, disable=not shown, transient=False)
        self._bar = self.add_task(
            "Dask",
            total=sum(len(state[name]) for name in ("waiting", "ready", "running", "finished")),
        )

    def get_renderables(self) -> Iterable[RenderableType]:
        if self._bar is not None:
            self.tasks[0].completed = len(self._state["finished"])
        yield from super().get_renderables()
