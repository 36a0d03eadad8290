"""Callbacks of `ray_dask_get`: those of Ray's name, beside Dask's own (`dask.callbacks.Callback`),
which work too.

Driver and worker are told apart: `ray_pretask` and `ray_posttask` run in the worker, around the
task, and travel there by pickle; the others run in the program. Dask's own all run in the program;
one that has a `posttask` brings every value there, so prefer `ray_posttask`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple

from dask.callbacks import Callback

from syncline.util.dask.worker import WorkerCallbacks

Hook = Callable[..., Any] | None


class RayCallbacks(NamedTuple):
    """The hooks of one callback, in the order of its constructor."""

    ray_presubmit: Hook = None
    ray_postsubmit: Hook = None
    ray_pretask: Hook = None
    ray_posttask: Hook = None
    ray_postsubmit_all: Hook = None
    ray_finish: Hook = None


class RayDaskCallback(Callback):
    """Watches graphs that run as syncline tasks. Pass functions, or derive and write methods of the
    same names after an underscore.

    ray_presubmit(task, key, deps): before a task is submitted; what it returns, unless None, is the
    task's value, and the task never runs. ray_postsubmit(task, key, deps, object_ref): after it was
    submitted. `deps` are references or values by key. ray_pretask(key, object_refs): in the worker,
    before the task; what it returns comes back as `pre_state`. ray_posttask(key, result,
    pre_state): in the worker, after the task. ray_postsubmit_all(object_refs, dsk): when the last
    task has been submitted, with references to the results. ray_finish(result): at the end, with
    the results.

    Use it in a `with` statement, by `register()` and `unregister()`, or as
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
        """dask_hooks: `start`, `start_state`, `pretask`, `posttask` and `finish` of Dask."""
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

    def __exit__(self, *error: Any) -> None:
        RayDaskCallback.ray_active.discard(self._ray_callback)
        super().__exit__(*error)

    def __getstate__(self) -> dict[str, Any]:
        # Methods that run in workers take the callback along, but not the program's `with`
        # statement.
        return {name: value for name, value in self.__dict__.items() if name != "_cm"}

    def register(self) -> None:
        super().register()
        RayDaskCallback.ray_active.add(self._ray_callback)

    def unregister(self) -> None:
        super().unregister()
        RayDaskCallback.ray_active.discard(self._ray_callback)


@contextmanager
def add_ray_callbacks(*callbacks: RayDaskCallback | RayCallbacks) -> Iterator[None]:
    """The callbacks watch every graph that starts inside the `with` statement. Dask's own hooks of
    them do not.
    """
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
    """The callbacks of one graph: those given, else the active ones, which graphs that start
    meanwhile do not see then.
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
    """For each hook the functions of all callbacks that have it."""

    ray_presubmit: tuple[Callable[..., Any], ...] = ()
    ray_postsubmit: tuple[Callable[..., Any], ...] = ()
    ray_pretask: tuple[Callable[..., Any], ...] = ()
    ray_posttask: tuple[Callable[..., Any], ...] = ()
    ray_postsubmit_all: tuple[Callable[..., Any], ...] = ()
    ray_finish: tuple[Callable[..., Any], ...] = ()


def unpack_ray_callbacks(callbacks: Iterable[RayCallbacks] | None) -> UnpackedCallbacks:
    """The functions of several callbacks, by hook."""
    listed = list(callbacks or ())
    by_hook = (
        tuple(hook for hook in hooks if hook is not None) for hooks in zip(*listed, strict=True)
    )
    return UnpackedCallbacks(*by_hook)


def for_workers(callbacks: Iterable[RayCallbacks]) -> WorkerCallbacks | None:
    """What has to travel to the workers; None where nothing has."""
    pretask: list[Callable[..., Any]] = []
    posttask: list[tuple[Callable[..., Any], int | None]] = []
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
    """The hooks of a callback. TypeError for what is none."""
    if isinstance(callback, RayDaskCallback):
        return callback._ray_callback
    if isinstance(callback, RayCallbacks):
        return callback
    raise TypeError(
        f"`ray_callbacks` has a {type(callback).__name__} ({callback!r}): give instances of RayDaskCallback"
    )
