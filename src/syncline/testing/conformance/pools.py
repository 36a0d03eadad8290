"""`util.multiprocessing.Pool` and the joblib backend."""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import os
import pickle
import threading
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from syncline.exceptions import RayActorError
from syncline.testing.conformance.suite import Suite, Trait
from syncline.util.annotations import RayDeprecationWarning
from syncline.util.joblib import register_ray, register_syncline
from syncline.util.multiprocessing import Pool
from syncline.util.queue import Queue


def _square(x: int) -> int:
    return x * x


def _reciprocal(x: int) -> float:
    return 1 / x


def _set_mark(value: str) -> None:
    os.environ["POOL_MARK"] = value


def _pid(_: object = None) -> int:
    return os.getpid()


class ProcessPools(Suite):
    """A pool of two workers."""

    needs: ClassVar[tuple[Trait, ...]] = ("processes", "parallel")

    @pytest.fixture(scope="class")
    @classmethod
    def pool(cls) -> Iterator[Pool]:
        with Pool(2) as pool:
            yield pool

    def test_map_keeps_the_order_with_any_chunk_size(self, pool: Pool) -> None:
        expected = [x * x for x in range(25)]
        for chunksize in (None, 1, 7, 100):
            assert pool.map(_square, range(25), chunksize=chunksize) == expected
        assert pool.map(_square, []) == []
        assert pool.map(_square, iter([3])) == [9]

    def test_work_runs_in_the_processes_of_the_pool(self, pool: Pool) -> None:
        assert os.getpid() not in pool.map(_pid, range(20), chunksize=1)

    def test_starmap_and_apply_spread_arguments(self, pool: Pool) -> None:
        assert pool.starmap(divmod, [(7, 2), (9, 4)]) == [(3, 1), (2, 1)]
        assert pool.apply(int, ("ff",), {"base": 16}) == 255
        assert pool.apply(int, ("ff",), kwds={"base": 16}) == 255
        assert pool.apply_async(_square, (4,)).get(timeout=60) == 16

    def test_closures_and_bound_methods(self, pool: Pool) -> None:
        offset = 10
        assert pool.map(lambda x: x + offset, range(3)) == [10, 11, 12]
        assert pool.map("a-b".split, ["-", "b"]) == [["a", "b"], ["a-", ""]]

    def test_imap_yields_in_order_and_imap_unordered_everything(self, pool: Pool) -> None:
        assert list(pool.imap(_square, range(9))) == [x * x for x in range(9)]
        assert list(pool.imap(_square, range(9), chunksize=4)) == [x * x for x in range(9)]
        assert sorted(pool.imap_unordered(_square, range(9))) == [x * x for x in range(9)]

    def test_imap_reads_an_endless_iterable_as_results_are_taken(self, pool: Pool) -> None:
        results = pool.imap(_square, itertools.count())
        assert [next(results) for _ in range(5)] == [0, 1, 4, 9, 16]

    def test_slow_item_behind_fast_ones_does_not_hold_up_the_others(self, pool: Pool) -> None:
        queue = Queue()

        def work(x: int) -> int:
            if x == 1000:
                queue.get()
            return x

        for _ in range(3):  # the pool learns that the function is fast
            pool.map(work, range(200), chunksize=1)
        results = pool.imap_unordered(work, [1000, *range(400)])
        assert sorted(results.next(timeout=60) for _ in range(200))[-1] < 1000
        queue.put(None)
        assert 1000 in set(results)

    def test_results_keep_their_pool_alive(self) -> None:
        results = Pool(1).imap(_square, range(3))
        later = Pool(1).map_async(_square, range(3))
        gc.collect()
        assert list(results) == later.get(timeout=60) == [0, 1, 4]

    def test_exceptions_are_those_of_the_function(self, pool: Pool) -> None:
        with pytest.raises(ZeroDivisionError) as caught:
            pool.map(_reciprocal, [1, 2, 0])
        assert "_reciprocal" in str(caught.value.__cause__)
        with pytest.raises(ZeroDivisionError):
            pool.apply(_reciprocal, (0,))
        assert pool.map(_square, [2]) == [4]

    def test_stop_iteration_of_the_function_is_an_error_of_its_item(self, pool: Pool) -> None:
        results = list(pool.imap(lambda x: next(iter(range(x))), [1, 0, 1], chunksize=3))
        assert [results[0], results[2]] == [0, 0]
        assert isinstance(results[1], RuntimeError)

    def test_imap_yields_the_exception_of_an_item(self, pool: Pool) -> None:
        for results in (
            pool.imap(_reciprocal, [1, 0, 2], chunksize=3),
            pool.imap(_reciprocal, [1, 0, 2]),
        ):
            assert next(results) == 1
            assert isinstance(next(results), ZeroDivisionError)
            assert next(results) == 0.5
            with pytest.raises(StopIteration):
                next(results)

    def test_imap_over_a_single_value_warns(self, pool: Pool) -> None:
        with pytest.warns(RayDeprecationWarning, match="non-iterable"):
            assert list(pool.imap(_square, 3)) == [9]

    def test_callbacks_get_the_result_or_the_first_error(self, pool: Pool) -> None:
        seen: list[Any] = []
        pool.map_async(_square, [1, 2], callback=seen.append).wait()
        failed = pool.apply_async(_reciprocal, (0,), callback=seen.append)
        failed.wait()
        late = pool.starmap_async(divmod, [(1, 0)], error_callback=seen.append)
        late.wait()
        assert seen[0] == [1, 4]
        assert [type(each) for each in seen[1:]] == [ZeroDivisionError]
        assert failed.ready()
        assert not failed.successful()

    def test_result_that_is_not_ready(self, pool: Pool) -> None:
        queue = Queue()
        result = pool.apply_async(queue.get)
        assert not result.ready()
        result.wait(timeout=0.01)
        with pytest.raises(ValueError, match="not ready"):
            result.successful()
        with pytest.raises(multiprocessing.TimeoutError):
            result.get(timeout=0.01)
        with pytest.raises(multiprocessing.TimeoutError):
            pool.imap(lambda _: queue.get(), [0]).next(timeout=0.01)
        queue.put("a")
        queue.put("b")
        assert result.get(timeout=60) in ("a", "b")
        assert result.successful()

    def test_argument_that_cannot_be_pickled_fails_its_call_only(self, pool: Pool) -> None:
        result = pool.apply_async(_square, (threading.Lock(),))
        with pytest.raises(TypeError):
            result.get(timeout=60)
        assert pool.apply(_square, (3,)) == 9

    def test_worker_that_dies_is_replaced(self, pool: Pool) -> None:
        with pytest.raises(RayActorError):
            pool.apply(os._exit, (1,))
        assert pool.map(_square, range(8), chunksize=1) == [x * x for x in range(8)]
        assert pool.statistics().workers == 2

    def test_call_that_waits_is_among_others(self, pool: Pool) -> None:
        queue = Queue()
        waiting: list[Any] = []
        caller = threading.Thread(target=lambda: waiting.append(pool.apply(queue.get)))
        caller.start()
        while not pool.statistics().running:
            pass
        values = pool.map_async(_square, range(8), chunksize=1).get(timeout=60)
        assert values == [x * x for x in range(8)]
        assert not waiting
        queue.put("value")
        caller.join(60)
        assert waiting == ["value"]
        assert pool.statistics().running == 0

    def test_call_that_waits_fails_with_its_terminated_pool(self) -> None:
        queue = Queue()
        pool = Pool(1)
        errors: list[BaseException] = []

        def call() -> None:
            try:
                pool.apply(queue.get)
            except RayActorError as error:
                errors.append(error)

        caller = threading.Thread(target=call)
        caller.start()
        while not pool.statistics().running:
            pass
        pool.terminate()
        caller.join(60)
        assert "terminated" in str(errors[0])

    def test_initializer_runs_in_each_worker(self) -> None:
        with Pool(2, initializer=_set_mark, initargs=("set",)) as pool:
            assert set(pool.map(lambda _: os.environ["POOL_MARK"], range(6))) == {"set"}

    def test_worker_is_replaced_after_its_share_of_chunks(self) -> None:
        with Pool(1, maxtasksperchild=2) as pool:
            pids = pool.map(_pid, range(6), chunksize=1)
        assert pids[0] == pids[1] != pids[2] == pids[3] != pids[4]

    def test_closed_pool_finishes_its_work_and_takes_no_more(self) -> None:
        pool = Pool(1)
        result = pool.map_async(_square, range(5))
        with pytest.raises(ValueError, match="still takes work"):
            pool.join()
        pool.close()
        with pytest.raises(ValueError, match="closed"):
            pool.map(_square, [1])
        pool.join()
        assert result.get(timeout=0) == [0, 1, 4, 9, 16]

    def test_terminated_pool_fails_what_is_left(self) -> None:
        queue = Queue()
        pool = Pool(1)
        results = [pool.apply_async(queue.get) for _ in range(3)]
        pool.terminate()
        pool.join()
        for result in results:
            with pytest.raises(RayActorError):
                result.get(timeout=60)

    def test_impossible_arguments_are_refused(self, pool: Pool) -> None:
        for arguments in ({"processes": 0}, {"processes": 1000}, {"maxtasksperchild": 0}):
            with pytest.raises(ValueError):
                Pool(**arguments)
        with pytest.raises(TypeError):
            Pool(1, initializer="f")
        with pytest.raises(ValueError):
            pool.map(_square, [1], chunksize=0)
        with pytest.raises(NotImplementedError):
            pickle.dumps(pool)


class JoblibBackends(Suite):
    """`joblib.Parallel` on the engine."""

    needs: ClassVar[tuple[Trait, ...]] = ("processes", "parallel")

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def backend(cls) -> Any:
        joblib = pytest.importorskip("joblib")
        register_ray()
        register_syncline()
        return joblib

    def test_calls_run_in_workers_and_keep_their_order(self, backend: Any) -> None:
        with backend.parallel_backend("ray", n_jobs=2):
            results = backend.Parallel()(
                backend.delayed(lambda x: (x * x, os.getpid()))(x) for x in range(30)
            )
        assert [square for square, _ in results] == [x * x for x in range(30)]
        assert os.getpid() not in {pid for _, pid in results}

    def test_exception_of_a_call_is_raised(self, backend: Any) -> None:
        with backend.parallel_backend("ray", n_jobs=2), pytest.raises(ZeroDivisionError):
            backend.Parallel()(backend.delayed(_reciprocal)(x) for x in (1, 0, 1, 1))

    def test_large_arrays_are_stored_once(self, backend: Any) -> None:
        numpy = pytest.importorskip("numpy")
        array = numpy.ones(200_000)
        with backend.parallel_backend("ray", n_jobs=2):
            found = backend.Parallel()(
                backend.delayed(lambda a: (a.sum(), a.flags.writeable))(array) for _ in range(4)
            )
        assert found == [(200_000.0, False)] * 4

    def test_one_job_runs_in_the_program(self, backend: Any) -> None:
        with backend.parallel_backend("syncline", n_jobs=1):
            assert (
                backend.Parallel()(backend.delayed(_pid)() for _ in range(2)) == [os.getpid()] * 2
            )

    def test_all_jobs_are_the_cpus_of_the_engine(self, backend: Any) -> None:
        with backend.parallel_backend("ray", n_jobs=-1):
            assert backend.effective_n_jobs(-1) == 4
            assert backend.effective_n_jobs(100) == 4
