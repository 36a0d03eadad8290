"""`SynclineBackend`: joblib's calls on a `Pool`. Large arguments are stored once for all calls."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from joblib._parallel_backends import (
    AutoBatchingMixin,
    FallbackToBackend,
    ParallelBackendBase,
    SequentialBackend,
)

from syncline.core import api
from syncline.core.refs import AnyRef
from syncline.util.multiprocessing import AsyncResult, Pool

SHARED_BYTES = 1_000_000
"""Arrays and tables of this size are stored once, instead of being sent with each call."""
REMEMBERED = 16
"""Stored arguments that are remembered; calls that were submitted keep theirs."""


class SynclineBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]  # no hints
    """A backend for `joblib.register_parallel_backend`.

    Args:
        ray_remote_args: Options of the actors of the pool, such as `{"num_cpus": 1}`.
    """

    supports_retrieve_callback = True
    supports_return_generator = False

    def __init__(
        self, ray_remote_args: Mapping[str, object] | None = None, **joblib_arguments: object
    ) -> None:
        super().__init__(**joblib_arguments)
        self._ray_remote_args = ray_remote_args
        self._pool: Pool | None = None
        self._shared: dict[int, tuple[Any, AnyRef]] = {}

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Return the number of workers for `n_jobs`: at most the CPUs of the engine."""
        if n_jobs == 0:
            raise ValueError("`n_jobs=0` is no number of workers: pass 1 or more, or -1 for all.")
        if n_jobs is None:
            return 1
        api.ensure_engine()
        cpus = max(1, int(api.cluster_resources().get("CPU", 0)))
        return max(1, cpus + 1 + n_jobs) if n_jobs < 0 else min(n_jobs, cpus)

    def configure(
        self,
        n_jobs: int = 1,
        parallel: Any = None,
        prefer: str | None = None,
        require: str | None = None,
        ray_remote_args: Mapping[str, Any] | None = None,
        **_ignored: Any,
    ) -> int:
        """Start the workers; return their number."""
        n_jobs = self.effective_n_jobs(n_jobs)
        if n_jobs == 1:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        self._pool = Pool(n_jobs, ray_remote_args=ray_remote_args or self._ray_remote_args)
        self.parallel = parallel
        return n_jobs

    def terminate(self) -> None:
        """End the workers and drop the shared arguments."""
        pool, self._pool = self._pool, None
        self._shared.clear()
        if pool is not None:
            pool.terminate()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """End the workers after an error; start others if `ensure_ready`."""
        self.terminate()
        if ensure_ready:
            self.configure(
                n_jobs=self.parallel.n_jobs, parallel=self.parallel, **self.parallel._backend_kwargs
            )

    def submit(self, func: Any, callback: Callable[[Any], object] | None = None) -> AsyncResult:
        """Run a batch of calls in a worker."""
        assert self._pool is not None, "`configure` comes first"
        items = getattr(func, "items", None)
        if items is not None:
            func.items = [
                (
                    call,
                    [self._stored(argument) for argument in arguments],
                    {name: self._stored(argument) for name, argument in keywords.items()},
                )
                for call, arguments, keywords in items
            ]
        return self._pool.apply_async(_run, (func,), callback=callback, error_callback=callback)

    # joblib 1.4 and older call `submit` by this name.
    apply_async = submit

    def retrieve_result_callback(self, out: object) -> Any:
        """Return the results of a batch, or raise its exception."""
        if isinstance(out, BaseException):
            raise out
        return out

    def _stored(self, value: object) -> Any:
        if _nbytes(value) < SHARED_BYTES:
            return value
        known = self._shared.get(id(value))
        if known is None:  # the value stays alive, so that its id is not reused
            if len(self._shared) >= REMEMBERED:
                del self._shared[next(iter(self._shared))]
            known = self._shared[id(value)] = (value, api.put(value))
        return _Stored(known[1])


class _Stored:
    """An argument in the object store."""

    def __init__(self, ref: AnyRef) -> None:
        self.ref = ref


def _run(batch: Any) -> Any:
    items = getattr(batch, "items", None)
    if items is not None:
        batch.items = [
            (
                call,
                [_loaded(argument) for argument in arguments],
                {name: _loaded(argument) for name, argument in keywords.items()},
            )
            for call, arguments, keywords in items
        ]
    return batch()


def _loaded(value: object) -> Any:
    return api.get(value.ref) if isinstance(value, _Stored) else value


def _nbytes(value: object) -> int:
    """Return the size of an array or table; 0 for other values."""
    size = getattr(value, "nbytes", None)
    if isinstance(size, int):
        return size
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(value, pandas.DataFrame):
        return int(value.memory_usage(index=True).sum())
    return 0
