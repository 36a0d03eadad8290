"""`ray_dask_get`: the scheduler that Dask calls with a graph and the wanted keys.

It submits ready tasks and waits until any of them ends; `graph` decides which and how many. A task
returns its value, which stays in the object store, and a small `TaskEnd`, which is all that the
scheduler waits for and reads. The first error ends the graph: running tasks are cancelled, and the
caller gets the original error, with the key in its text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import dask
from dask._task_spec import GraphNode, convert_legacy_graph
from dask.callbacks import local_callbacks
from dask.core import flatten
from dask.local import nested_get
from dask.order import order

from syncline.core import api
from syncline.core.refs import AnyRef, ObjectRef
from syncline.core.tracebacks import forget_engine
from syncline.exceptions import RayError, RayTaskError, WorkerTraceback
from syncline.util.dask import callbacks as hooks
from syncline.util.dask import values as forms
from syncline.util.dask.graph import GraphState, Key, State, in_flight_limit
from syncline.util.dask.options import Submitters, submitters
from syncline.util.dask.sharing import owned
from syncline.util.dask.values import Persisted, persisted
from syncline.util.dask.worker import TaskEnd

LATEST_WEIGHT = 0.1
"""Weight of the latest duration in the moving average of task durations."""


class _Scheduler:
    """A Dask scheduler: a callable with its own `persist`, which Dask prefers if it exists."""

    def __init__(
        self, name: str, doc: str, *, num_workers: int | None = None, keeps_references: bool = False
    ) -> None:
        self.__name__ = self.__qualname__ = name
        self.__doc__ = doc
        self._num_workers = num_workers
        self._keeps_references = keeps_references
        if not keeps_references:
            self.persist = self._persist

    def __call__(self, dsk: Any, keys: Any, **keywords: Any) -> Any:
        """Compute a graph.

        Args:
            dsk: A graph or an expression.
            keys: A key or nested lists of keys.

        Returns:
            The values, in tuples nested like `keys`.
        """
        keywords.setdefault("num_workers", self._num_workers)
        if self._keeps_references:
            keywords["ray_persist"] = True
        try:
            return _get(dsk, keys, **keywords)
        except RayError as error:
            forget_engine(error)  # the frames of this module do not explain a task's own error
            raise

    @staticmethod
    def _persist(collections: Sequence[object], **keywords: object) -> list[Any]:
        return list(ray_dask_persist(*collections, traverse=False, **keywords))

    def __repr__(self) -> str:
        return f"<scheduler {self.__name__}>"

    def __reduce__(self) -> str:
        return self.__name__


ray_dask_get = _Scheduler(
    "ray_dask_get",
    """Run a Dask graph as syncline tasks.

    Use `x.compute(scheduler=ray_dask_get)`, or `dask.config.set(scheduler=ray_dask_get)`.

    `compute` accepts: `ray_remote_args`, options of every task; `ray_callbacks`, a list of
    RayDaskCallback; `num_workers`, the largest number of concurrent tasks;
    `rerun_exceptions_locally`, to repeat a failed task in the program, for a debugger.
    """,
)
ray_dask_get_sync = _Scheduler(
    "ray_dask_get_sync",
    "Run a Dask graph like `ray_dask_get`, one task at a time, in Dask's order.",
    num_workers=1,
)
_get_persisted = _Scheduler(
    "_get_persisted", "Return persisted values instead of fetched ones.", keeps_references=True
)


def enable_dask_on_ray(
    shuffle: str | None = "tasks", use_shuffle_optimization: bool | None = True
) -> dask.config.set:
    """Make `ray_dask_get` the scheduler of Dask.

    Used in a `with` statement, the setting lasts until its end, otherwise permanently.

    Args:
        shuffle: Shuffle method of DataFrames; None keeps the current setting.
        use_shuffle_optimization: No effect: current DataFrames optimize themselves.
    """
    del use_shuffle_optimization
    settings: dict[str, Any] = {"scheduler": ray_dask_get}
    if shuffle is not None:
        settings["dataframe.shuffle.method"] = shuffle
    return dask.config.set(settings)


def disable_dask_on_ray() -> dask.config.set:
    """Reset Dask's scheduler and shuffle method to their defaults."""
    return dask.config.set({"scheduler": None, "dataframe.shuffle.method": None})


enable_dask_on_syncline = enable_dask_on_ray
disable_dask_on_syncline = disable_dask_on_ray


def ray_dask_persist(*collections: object, **keywords: object) -> tuple[Any, ...]:
    """Persist collections like `dask.persist`, with partitions in the object store.

    Waits until they are computed. Accepts the arguments of `dask.persist` except `scheduler`.
    Compute collections that derive from the result with this scheduler too.
    """
    return tuple(dask.persist(*collections, **{**keywords, "scheduler": _get_persisted}))


def _get(
    dsk: Any,
    keys: object,
    *,
    num_workers: int | None = None,
    ray_remote_args: Mapping[str, object] | None = None,
    ray_callbacks: Any = None,
    ray_persist: bool = False,
    callbacks: Any = None,
    rerun_exceptions_locally: bool | None = None,
    **_ignored: object,
) -> Any:
    """Compute a graph; `_ignored` are arguments of other schedulers."""
    chosen = submitters(dsk, ray_remote_args)
    graph = convert_legacy_graph(dsk if isinstance(dsk, Mapping) else dsk.__dask_graph__())
    wanted = set(flatten(keys)) if isinstance(keys, list) else {keys}
    with local_callbacks(callbacks) as of_dask, hooks.local_ray_callbacks(ray_callbacks) as of_ray:
        execution = _Execution(graph, wanted, chosen, tuple(of_dask), of_ray, num_workers)
        if rerun_exceptions_locally is None:
            rerun_exceptions_locally = dask.config.get("rerun_exceptions_locally", False)
        found = execution.run(rerun_here=rerun_exceptions_locally)
        results = (
            {key: _persisted_value(key, value) for key, value in found.items()}
            if ray_persist
            else dict(zip(found, map(owned, forms.fetch(list(found.values()))), strict=True))
        )
        answer = nested_get(keys, results)
        for finish in execution.ray.ray_finish:
            finish(answer)
        return answer


def _persisted_value(key: Key, value: object) -> Persisted:
    if isinstance(value, forms.Stored):
        return Persisted(key, value.ref)
    return Persisted(key, api.put(forms.fetch([value])[0]))


@dataclass(frozen=True, kw_only=True)
class _RunningTask:
    """A submitted task."""

    key: Key
    value: forms.Stored | forms.Parts
    counts: bool
    """True if the task counts against the limit in flight. Tasks with their own resources do not:
    while they wait for them, they would block the others.
    """


class _Execution:
    """The execution of one graph."""

    def __init__(
        self,
        graph: dict[Key, GraphNode],
        wanted: set[Key],
        chosen: Submitters,
        of_dask: tuple[Any, ...],
        of_ray: tuple[hooks.RayCallbacks, ...],
        num_workers: int | None,
    ) -> None:
        self.graph = graph
        self.wanted = wanted
        self.ray = hooks.unpack_ray_callbacks(of_ray)
        self._chosen = chosen
        self._of_dask = of_dask
        self._pretask = [hook[2] for hook in of_dask if hook[2]]
        self._posttask = [hook[3] for hook in of_dask if hook[3]]
        in_workers = hooks.for_workers(of_ray)
        # Stored once instead of sent with every task.
        self._worker_callbacks = None if in_workers is None else api.put(in_workers)
        self._most = num_workers
        self._running: dict[AnyRef, _RunningTask] = {}
        self._seconds_each: float | None = None

    def run(self, *, rerun_here: bool) -> dict[Key, object]:
        """Run all tasks; return the values of the wanted keys in the forms of `values`."""
        started: list[Any] = []
        state: State = {}
        failed = True
        try:
            for hook in self._of_dask:
                if hook[0]:
                    hook[0](self.graph)
                started.append(hook)
            # Callbacks may have changed the graph, as Dask's cache does.
            self._nodes = convert_legacy_graph(self.graph)
            self._graph_state = GraphState(
                self._nodes, self.wanted, self._known(), order(self._nodes).get
            )
            state = self._graph_state.state
            for hook in self._of_dask:
                if hook[1]:
                    hook[1](self.graph, state)
            self._loop(rerun_here)
            failed = False
            return {key: self._graph_state.values[key] for key in self.wanted}
        finally:
            if failed:
                self._cancel()
            for hook in started:
                if hook[4]:
                    hook[4](self.graph, state, failed)

    def _known(self) -> dict[Key, forms.Stored]:
        """Return the persisted values that the graph needs and has no task for."""
        needed = {
            dependency for node in self._nodes.values() for dependency in node.dependencies
        } | self.wanted
        held = {key: persisted(key) for key in needed - self._nodes.keys()}
        return {
            key: forms.Stored(ref=value.ref) for key, value in held.items() if value is not None
        }

    def _loop(self, rerun_here: bool) -> None:
        state = self._graph_state
        all_submitted = not self.ray.ray_postsubmit_all
        cpus = api.cluster_resources().get("CPU", 1.0)
        while not state.is_done:
            limit = self._most or in_flight_limit(cpus, self._seconds_each)
            taken = sum(running.counts for running in self._running.values())
            while state.next_ready() is not None and taken < limit:
                taken += self._start(state.start())
            if not all_submitted and not state.state["waiting"] and state.next_ready() is None:
                all_submitted = True
                self._notify_all_submitted()
            if self._running:
                self._collect(rerun_here)
                self._collect(rerun_here)

    # -- start of a task

    def _start(self, key: Key) -> int:
        """Submit a task, or find its value without one; return its count against the limit."""
        state, node = self._graph_state, self._nodes[key]
        for hook in self._pretask:
            hook(key, self.graph, state.state)
        for dependency in node.dependencies:
            state.values[dependency] = forms.normalized(state.values[dependency])
        depends = {dependency: state.values[dependency] for dependency in node.dependencies}
        seen = (
            {dependency: forms.for_callbacks(value) for dependency, value in depends.items()}
            if self.ray.ray_presubmit or self.ray.ray_postsubmit
            else {}
        )
        for presubmit in self.ray.ray_presubmit:
            given = presubmit(node, key, seen)
            if given is not None:
                self._finish(key, forms.normalized(given), "callback")
                return 0
        free = forms.without_a_task(node, state.values)
        if free is not None:
            self._finish(key, free[0], "alias")
            return 0
        done, running = self._submit(key, node, depends)
        self._running[done] = running
        for postsubmit in self.ray.ray_postsubmit:
            postsubmit(node, key, seen, forms.for_callbacks(running.value))
        return int(running.counts)

    def _submit(
        self, key: Key, node: GraphNode, depends: Mapping[Key, object]
    ) -> tuple[AnyRef, _RunningTask]:
        function, count, has_options = self._chosen.of(key)
        layout: list[tuple[Key, int, type | None]] = []
        arguments: list[object] = []
        for dependency, value in depends.items():
            carried, kind = forms.as_arguments(value)
            layout.append((dependency, len(carried), kind))
            arguments += carried
        references = (
            [argument for argument in arguments if isinstance(argument, ObjectRef)]
            if self._worker_callbacks is not None
            else []
        )
        *refs, done = function.remote(
            node, tuple(layout), count, self._worker_callbacks, references, *arguments
        )
        value = (
            forms.Stored(ref=refs[0]) if count == 1 else forms.Parts(refs=tuple(refs), kind=tuple)
        )
        return done, _RunningTask(key=key, value=value, counts=not has_options)

    # -- end of tasks

    def _collect(self, rerun_here: bool) -> None:
        """Wait until any task ends, and collect all that have ended."""
        ended, rest = api.wait(list(self._running), num_returns=1)
        if rest:
            ended += api.wait(rest, num_returns=len(rest), timeout=0)[0]
        for done in ended:
            running = self._running.pop(done)
            try:
                end: TaskEnd = api.get(done)
            except RayError as error:
                if rerun_here and isinstance(error, RayTaskError):
                    self._rerun(running.key)
                named(error, running.key)
                raise
            self._update_average(end.seconds)
            value = running.value
            if end.kind is not None and isinstance(value, forms.Parts):
                value = replace(value, kind=end.kind)
            self._finish(running.key, value, end.pid)

    def _update_average(self, seconds: float) -> None:
        before = seconds if self._seconds_each is None else self._seconds_each
        self._seconds_each = before + LATEST_WEIGHT * (seconds - before)

    def _finish(self, key: Key, value: object, worker_id: object) -> None:
        self._graph_state.finish(key, value)
        if self._posttask:
            here = forms.fetch([value])[0]
            for hook in self._posttask:
                hook(key, here, self.graph, self._graph_state.state, worker_id)

    def _rerun(self, key: Key) -> None:
        node = self._nodes[key]
        depends = list(node.dependencies)
        node(
            dict(
                zip(
                    depends,
                    forms.fetch([self._graph_state.values[d] for d in depends]),
                    strict=True,
                )
            )
        )

    def _notify_all_submitted(self) -> None:
        by_key = {running.key: running.value for running in self._running.values()}
        values = [self._graph_state.values.get(key, by_key.get(key)) for key in self.wanted]
        for hook in self.ray.ray_postsubmit_all:
            hook([forms.for_callbacks(value) for value in values], self.graph)

    def _cancel(self) -> None:
        for done in self._running:
            api.cancel(done)
        self._running.clear()


def named(error: RayError, key: Key) -> None:
    """Add the key of the task to the error's text."""
    if isinstance(error, RayTaskError):
        before = f"in {error.function_name}("
        error.function_name = f"Dask key {key!r}: {error.function_name}"
        cause = error.__cause__
        if isinstance(cause, WorkerTraceback) and cause.args:
            error.__cause__ = WorkerTraceback(
                str(cause.args[0]).replace(before, f"in {error.function_name}(", 1)
            )
    elif error.args and isinstance(error.args[0], str):
        error.args = (f"{error.args[0]} (Task of the Dask key {key!r}.)", *error.args[1:])
