"""Callbacks of `ray_dask_get` with Ray's names, in addition to Dask's `dask.callbacks.Callback`.

`ray_pretask` and `ray_posttask` run in the worker, around the task, and are pickled; the others run
in the program. Dask's own callbacks run in the program: a `posttask` fetches every value there, so
prefer `ray_posttask`. `ProgressBarCallback` shows the progress of a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple

from dask.callbacks import Callback
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from syncline.util.dask.graph import State
from syncline.util.dask.worker import WorkerCallbacks

Hook = Callable[..., Any] | None


class RayCallbacks(NamedTuple):
    """Hooks of one callback, in the order of its constructor."""

    ray_presubmit: Hook = None
    ray_postsubmit: Hook = None
    ray_pretask: Hook = None
    ray_posttask: Hook = None
    ray_postsubmit_all: Hook = None
    ray_finish: Hook = None


class RayDaskCallback(Callback):
    """Observes graphs that run as syncline tasks.

    Pass functions, or derive a class and define methods of the same names with a leading
    underscore. `deps` are references or values by key.

    - ray_presubmit(task, key, deps): before a task is submitted. A result other than None is the
      value of the task, which then does not run.
    - ray_postsubmit(task, key, deps, object_ref): after a task was submitted.
    - ray_pretask(key, object_refs): in the worker, before the task. Returns the `pre_state`.
    - ray_posttask(key, result, pre_state): in the worker, after the task.
    - ray_postsubmit_all(object_refs, dsk): after the last task was submitted, with references to
      the results.
    - ray_finish(result): at the end, with the results.

    Use it in a `with` statement, with `register()` and `unregister()`, or as
    `compute(ray_callbacks=[...])`.
    """

    ray_active: ClassVar[set[RayCallbacks]] = set()

    def __init__(
        self,
        ray_presubmit: Hook = None,
        ray_postsubmit: Hook = None,
        ray_pretask: Hook = None,
        ray_posttask: Hook = None,
        ray_postsubmit_all: Hook = None,
        ray_finish: Hook = None,
        **dask_hooks: Hook,
    ) -> None:
        """`dask_hooks`: Dask's `start`, `start_state`, `pretask`, `posttask` and `finish`."""
        super().__init__(**dask_hooks)
        given = RayCallbacks(
            ray_presubmit, ray_postsubmit, ray_pretask, ray_posttask, ray_postsubmit_all, ray_finish
        )
        for name, hook in given._asdict().items():
            if hook is not None:
                setattr(self, f"_{name}", hook)

    @property
    def _ray_callback(self) -> RayCallbacks:
        return RayCallbacks(*(getattr(self, f"_{name}", None) for name in RayCallbacks._fields))

    def __enter__(self) -> RayDaskCallback:
        super().__enter__()
        RayDaskCallback.ray_active.add(self._ray_callback)
        return self

    def __exit__(self, *error: object) -> None:
        RayDaskCallback.ray_active.discard(self._ray_callback)
        super().__exit__(*error)

    def __getstate__(self) -> dict[str, Any]:
        # Methods that run in workers are pickled with the callback, but without the `with`
        # statement of the program.
        return {name: value for name, value in self.__dict__.items() if name != "_cm"}

    def register(self) -> None:
        super().register()
        RayDaskCallback.ray_active.add(self._ray_callback)

    def unregister(self) -> None:
        super().unregister()
        RayDaskCallback.ray_active.discard(self._ray_callback)


@contextmanager
def add_ray_callbacks(*callbacks: RayDaskCallback | RayCallbacks) -> Iterator[None]:
    """Activate callbacks for graphs that start in the `with` block, without their Dask hooks."""
    added = {normalized(callback) for callback in callbacks} - RayDaskCallback.ray_active
    RayDaskCallback.ray_active |= added
    try:
        yield
    finally:
        RayDaskCallback.ray_active -= added


@contextmanager
def local_ray_callbacks(
    callbacks: Iterable[RayDaskCallback | RayCallbacks] | None = None,
) -> Iterator[tuple[RayCallbacks, ...]]:
    """Yield the callbacks of one graph: the given ones, else the active ones.

    Active callbacks are hidden from graphs that start in the block.
    """
    if callbacks is not None:
        yield tuple(map(normalized, callbacks))
        return
    active, RayDaskCallback.ray_active = RayDaskCallback.ray_active, set()
    try:
        yield tuple(active)
    finally:
        RayDaskCallback.ray_active = active


class UnpackedCallbacks(NamedTuple):
    """For each hook, the functions of all callbacks that define it."""

    ray_presubmit: tuple[Callable[..., object], ...] = ()
    ray_postsubmit: tuple[Callable[..., object], ...] = ()
    ray_pretask: tuple[Callable[..., object], ...] = ()
    ray_posttask: tuple[Callable[..., object], ...] = ()
    ray_postsubmit_all: tuple[Callable[..., object], ...] = ()
    ray_finish: tuple[Callable[..., object], ...] = ()


def unpack_ray_callbacks(callbacks: Iterable[RayCallbacks] | None) -> UnpackedCallbacks:
    """Group the functions of several callbacks by hook."""
    listed = list(callbacks or ())
    by_hook = (
        tuple(hook for hook in hooks if hook is not None) for hooks in zip(*listed, strict=True)
    )
    return UnpackedCallbacks(*by_hook)


def for_workers(callbacks: Iterable[RayCallbacks]) -> WorkerCallbacks | None:
    """Return the callbacks to send to workers; None if there are none."""
    pretask: list[Callable[..., object]] = []
    posttask: list[tuple[Callable[..., object], int | None]] = []
    for callback in callbacks:
        position = None
        if callback.ray_pretask is not None:
            position = len(pretask)
            pretask.append(callback.ray_pretask)
        if callback.ray_posttask is not None:
            posttask.append((callback.ray_posttask, position))
    return (
        WorkerCallbacks(pretask=tuple(pretask), posttask=tuple(posttask))
        if pretask or posttask
        else None
    )


def normalized(callback: RayDaskCallback | RayCallbacks) -> RayCallbacks:
    """Return the hooks of a callback. Raises TypeError for anything else."""
    if isinstance(callback, RayDaskCallback):
        return callback._ray_callback
    if isinstance(callback, RayCallbacks):
        return callback
    raise TypeError(
        f"`ray_callbacks` contains a {type(callback).__name__} ({callback!r}): pass instances of "
        "RayDaskCallback."
    )


class ProgressBarCallback(RayDaskCallback):
    """Shows the number of finished tasks: `with ProgressBarCallback(): x.compute()`.

    Draws in terminals and notebooks, and nothing elsewhere.
    """

    def __init__(self, console: Console | None = None) -> None:
        """`console`: the output; standard error by default."""
        super().__init__()
        self._console = console
        self._bars: list[_GraphProgress] = []  # innermost last: a graph may start another graph

    def _start_state(self, dsk: object, state: State) -> None:
        bar = _GraphProgress(self._console or Console(stderr=True), state)
        self._bars.append(bar)
        bar.start()

    def _finish(self, dsk: object, state: State, failed: bool) -> None:
        if self._bars:  # empty if the graph failed before its state existed
            self._bars.pop().stop()


class _GraphProgress(Progress):
    """Reads the scheduler's state whenever it draws, at no cost for the scheduler."""

    def __init__(self, console: Console, state: State) -> None:
        self._state = state
        self._bar = None
        can_draw = console.is_terminal or console.is_jupyter
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        super().__init__(*columns, console=console, disable=not can_draw, transient=False)
        self._bar = self.add_task(
            "Dask",
            total=sum(len(state[name]) for name in ("waiting", "ready", "running", "finished")),
        )

    def get_renderables(self) -> Iterable[RenderableType]:
        if self._bar is not None:
            self.tasks[0].completed = len(self._state["finished"])
        yield from super().get_renderables()
