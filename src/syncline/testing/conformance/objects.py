"""Objects: put, get, wait, references and futures."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import cloudpickle
import numpy as np
import pytest

import syncline
from syncline.testing.conformance.suite import Suite
from syncline.testing.tasks import double, fail, get, one, wait_for


class Objects(Suite):
    """Values and references."""

    @pytest.mark.parametrize(
        "value",
        [None, 1, "text", b"bytes", b"x" * 300_000, [1, {"a": (2, 3)}], {1, 2}, range(3)],
        ids=lambda value: type(value).__name__,
    )
    def test_value_round_trips(self, value: Any) -> None:
        assert syncline.get(syncline.put(value)) == value

    def test_large_array_is_zero_copy_and_read_only(self) -> None:
        array = np.arange(500_000)
        back = syncline.get(syncline.put(array))
        assert (back == array).all()
        assert not back.flags.writeable
        assert not back.flags.owndata
        with pytest.raises(ValueError, match="read-only"):
            back[0] = 1

    def test_large_array_argument_is_read_only_in_the_task(self) -> None:
        @syncline.remote
        def writeable(array: Any) -> bool:
            return bool(array.flags.writeable)

        assert syncline.get(writeable.remote(syncline.put(np.zeros(500_000)))) is False

    def test_many_arrays_in_one_value(self) -> None:
        value: dict[str, Any] = {
            "a": np.zeros((100, 1000)),
            "b": [np.ones(20_000, dtype=np.int8), np.float32(3)],
        }
        back = syncline.get(syncline.put(value))
        assert back["a"].shape == (100, 1000)
        assert back["b"][0].dtype == np.int8
        assert back["b"][1] == np.float32(3)

    def test_later_changes_to_the_value_do_not_reach_the_object(self) -> None:
        items, array = [1], np.zeros(100_000)
        items_ref, array_ref = syncline.put(items), syncline.put(array)
        items.append(2)
        array[:] = 7
        assert syncline.get(items_ref) == [1]
        assert syncline.get(array_ref).sum() == 0

    def test_get_keeps_the_order_of_the_list(self) -> None:
        refs = [syncline.put(i) for i in range(10)]
        assert syncline.get(refs[::-1]) == list(range(10))[::-1]
        assert syncline.get([refs[3], refs[3]]) == [3, 3]
        assert syncline.get([]) == []

    @pytest.mark.parametrize("wrong", [1, "text", [1], None], ids=str)
    def test_get_of_something_that_is_no_reference_is_refused(self, wrong: Any) -> None:
        with pytest.raises(TypeError):
            syncline.get(wrong)

    def test_put_of_a_reference_is_refused(self) -> None:
        with pytest.raises(TypeError):
            syncline.put(syncline.put(1))

    def test_references_inside_values_can_be_followed(self) -> None:
        inner = syncline.put("deep")
        outer = syncline.put({"inner": [inner]})
        del inner
        assert syncline.get(syncline.get(outer)["inner"][0]) == "deep"

    def test_result_that_holds_references_keeps_them(self) -> None:
        @syncline.remote
        def make() -> object:
            return [syncline.put(np.full(20_000, i)) for i in range(3)]

        assert [int(array[0]) for array in syncline.get(syncline.get(make.remote()))] == [0, 1, 2]

    def test_reference_kept_by_an_actor_keeps_the_object(self) -> None:
        @syncline.remote
        class Keeper:
            def keep(self, box: list[Any]) -> None:
                self.box = box

            def show(self) -> object:
                return syncline.get(self.box[0])

            def hand_over(self) -> object:
                return self.box

        first, second = Keeper.remote(), Keeper.remote()
        ref = syncline.put(np.full(50_000, 3))
        syncline.get(first.keep.remote([ref]))
        del ref
        assert syncline.get(first.show.remote())[0] == 3
        syncline.get(second.keep.remote(syncline.get(first.hand_over.remote())))
        syncline.kill(first)
        assert syncline.get(second.show.remote())[0] == 3

    def test_reference_is_hashable_comparable_and_has_an_id(self) -> None:
        ref = syncline.put(1)
        again = cloudpickle.loads(cloudpickle.dumps(ref))
        assert again == ref
        assert len({ref, again}) == 1
        assert ref != syncline.put(1)
        assert ref.hex() == ref.binary().hex() == again.hex()
        assert len(ref.binary()) >= 16  # a cluster's ids are longer
        assert syncline.get(again) == 1

    def test_reference_captured_by_a_function_works_there(self) -> None:
        ref = syncline.put("captured")

        @syncline.remote
        def look() -> object:
            return syncline.get(ref)

        assert syncline.get(look.remote()) == "captured"

    def test_unpicklable_value_is_refused_by_put(self) -> None:
        with pytest.raises(TypeError, match="generator"):
            syncline.put({"rows": (i for i in range(3))})

    def test_a_thousand_objects(self) -> None:
        refs = [syncline.put(i) for i in range(1000)]
        assert syncline.get(refs) == list(range(1000))


class Waiting(Suite):
    """`wait`, timeouts and futures of finished tasks."""

    def test_wait_returns_at_most_num_returns_in_order(self) -> None:
        refs = [syncline.put(i) for i in range(4)]
        assert syncline.wait(refs, num_returns=2) == (refs[:2], refs[2:])
        assert syncline.wait(refs, num_returns=4, timeout=0) == (refs, [])

    def test_wait_checks_its_arguments(self) -> None:
        ref = syncline.put(1)
        for num_returns in (0, 2):
            with pytest.raises(ValueError):
                syncline.wait([ref], num_returns=num_returns)
        with pytest.raises(ValueError):
            syncline.wait([ref, ref])
        with pytest.raises(TypeError):
            syncline.wait(ref)
        with pytest.raises(TypeError):
            syncline.wait([1])  # type: ignore[type-var]

    def test_failed_task_counts_as_ready(self) -> None:
        ref = fail.remote("no")
        assert syncline.wait([ref], timeout=60) == ([ref], [])

    def test_timeout_does_not_matter_where_the_value_is_there(self) -> None:
        ref = syncline.put(1)
        assert syncline.get(ref, timeout=0) == 1

    def test_reference_can_be_awaited(self) -> None:
        async def both() -> object:
            return await one.remote(), await asyncio.gather(one.remote(), one.remote())

        assert asyncio.run(both()) == (1, [1, 1])

    def test_awaiting_a_failed_task_raises_its_error(self) -> None:
        async def wait() -> None:
            await fail.remote("awaited")

        with pytest.raises(KeyError, match="awaited"):
            asyncio.run(wait())

    def test_reference_as_a_future(self) -> None:
        futures = [double.remote(i).future() for i in range(5)]
        assert sorted(
            future.result() for future in concurrent.futures.as_completed(futures, timeout=60)
        ) == [0, 2, 4, 6, 8]

    def test_reference_knows_its_task_and_program(self) -> None:
        @syncline.remote(num_returns=3)
        def several() -> object:
            context = syncline.get_runtime_context()
            return context.get_task_id(), context.get_job_id(), None

        @syncline.remote
        def stream() -> Iterator[object]:
            for _ in range(2):
                yield syncline.get_runtime_context().get_task_id()

        @syncline.remote
        class Knowing:
            def task(self) -> str | None:
                return syncline.get_runtime_context().get_task_id()

        refs = several.remote()
        task, job, _ = get(refs)
        assert [ref.task_id().hex() for ref in refs] == [task] * 3
        assert {ref.job_id().hex() for ref in refs} == {job}
        for ref in stream.remote():
            assert ref.task_id().hex() == get(ref)
        call = Knowing.remote().task.remote()
        assert call.task_id().hex() == get(call)

    def test_completion_of_a_reference_calls_back_with_the_value_or_the_error(self) -> None:
        found: Queue[object] = Queue()
        double.remote(2)._on_completed(found.put)
        assert found.get(timeout=60) == 4
        fail.remote("late")._on_completed(found.put)
        assert isinstance(found.get(timeout=60), KeyError)

    def test_future_of_a_failed_task_has_its_error(self) -> None:
        assert isinstance(fail.remote("late").future().exception(timeout=60), KeyError)


class WaitingForWork(Suite):
    """`wait` and timeouts of running tasks."""

    needs = ("parallel",)

    def test_wait_returns_ready_and_pending_references(self, tmp_path: Path) -> None:
        waiting, done = wait_for.remote(str(tmp_path / "go")), syncline.put(1)
        assert syncline.wait([waiting, done], num_returns=1, timeout=60) == ([done], [waiting])
        assert syncline.wait([waiting, done], num_returns=2, timeout=0.01) == ([done], [waiting])
        (tmp_path / "go").touch()
        assert syncline.wait([waiting, done], num_returns=2, timeout=60) == ([waiting, done], [])

    def test_get_times_out_and_the_task_continues(self, tmp_path: Path) -> None:
        ref = wait_for.remote(str(tmp_path / "go"))
        with pytest.raises(syncline.exceptions.GetTimeoutError):
            syncline.get(ref, timeout=0.01)
        with pytest.raises(TimeoutError):
            syncline.get([ref], timeout=0)
        (tmp_path / "go").touch()
        assert get(ref) == str(tmp_path / "go")

    def test_get_raises_a_failure_without_waiting_for_others(self, tmp_path: Path) -> None:
        held = wait_for.remote(str(tmp_path / "go"))
        with pytest.raises(KeyError, match="at once"):
            get([fail.remote("at once"), held])
        (tmp_path / "go").touch()
        get(held)
