"""Resources: held, free and infeasible amounts."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import syncline
from syncline.exceptions import ActorUnschedulableError, TaskUnschedulableError
from syncline.testing.conformance.suite import Suite
from syncline.testing.tasks import await_free, get, gpu_ids, one, wait_for
from syncline.testing.waiting import eventually
from syncline.util import placement_group, remove_placement_group
from syncline.util.scheduling_strategies import PlacementGroupSchedulingStrategy


@syncline.remote
class Holder:
    """An actor that only holds resources."""

    def gpus(self) -> object:
        return syncline.get_gpu_ids()

    def visible(self) -> object:
        return os.environ.get("CUDA_VISIBLE_DEVICES")


class ResourceBooks(Suite):
    """Accounting of two pretended GPUs and a custom resource."""

    init_options = {"num_cpus": 4, "num_gpus": 2, "resources": {"slot": 3}}

    def test_cluster_resources_are_those_of_init(self) -> None:
        there = syncline.cluster_resources()
        assert (there["CPU"], there["GPU"], there["slot"]) == (4, 2, 3)
        assert there["memory"] > 0

    def test_actor_holds_its_resources_until_its_end(self) -> None:
        await_free("slot", 3)
        holder = Holder.options(num_cpus=1, resources={"slot": 2}).remote()
        syncline.get(holder.__ray_ready__.remote())
        assert syncline.available_resources()["slot"] == 1
        assert syncline.available_resources()["CPU"] == 3
        syncline.kill(holder)
        await_free("slot", 3)
        await_free("CPU", 4)

    def test_fractions_add_up_exactly(self) -> None:
        await_free("slot", 3)
        holders = [Holder.options(resources={"slot": 0.1}).remote() for _ in range(10)]
        syncline.get([holder.__ray_ready__.remote() for holder in holders])
        assert syncline.available_resources()["slot"] == 2
        del holders
        await_free("slot", 3)

    def test_task_holds_its_resources(self) -> None:
        @syncline.remote(num_cpus=2, resources={"slot": 1})
        def look() -> object:
            return (
                syncline.available_resources(),
                syncline.get_runtime_context().get_assigned_resources(),
            )

        await_free("slot", 3)
        free, assigned = syncline.get(look.remote())
        assert free["slot"] == 2
        assert (assigned["CPU"], assigned["slot"]) == (2, 1)

    @pytest.mark.parametrize(
        "options",
        [
            {"num_cpus": 5},
            {"num_gpus": 3},
            {"resources": {"slot": 3.5}},
            {"resources": {"other": 1}},
        ],
        ids=str,
    )
    def test_task_that_could_never_run_is_refused_with_numbers(
        self, options: dict[str, Any]
    ) -> None:
        with pytest.raises((ValueError, TaskUnschedulableError)) as caught:
            get(one.options(**options).remote())
        assert any(character.isdigit() for character in str(caught.value))

    def test_actor_that_could_never_run_is_refused(self) -> None:
        with pytest.raises((ValueError, ActorUnschedulableError), match="1000"):
            get(Holder.options(num_cpus=1000).remote().gpus.remote())

    def test_each_gpu_is_assigned_once(self) -> None:
        a, b = Holder.options(num_gpus=1).remote(), Holder.options(num_gpus=1).remote()
        first, second = get([a.gpus.remote(), b.gpus.remote()])
        assert len(first) == len(second) == 1
        assert first != second
        syncline.kill(a)
        syncline.kill(b)
        await_free("GPU", 2)

    def test_fractions_of_a_gpu_share_one(self) -> None:
        await_free("GPU", 2)
        holders = [Holder.options(num_gpus=0.5).remote() for _ in range(4)]
        ids = [found[0] for found in get([holder.gpus.remote() for holder in holders])]
        assert sorted(ids.count(id) for id in set(ids)) == [2, 2]
        del holders
        await_free("GPU", 2)

    def test_task_with_two_gpus_gets_both_and_without_gets_none(self) -> None:
        await_free("GPU", 2)
        assert len(set(get(gpu_ids.options(num_gpus=2).remote()))) == 2
        assert get(gpu_ids.remote()) == []

    def test_impossible_amounts_are_refused(self) -> None:
        for options in ({"num_cpus": -1}, {"num_gpus": 1.5}, {"resources": {"CPU": 1}}):
            with pytest.raises(ValueError):
                Holder.options(**options)


class VisibleGpus(Suite):
    """CUDA_VISIBLE_DEVICES of workers."""

    needs = ("processes",)
    init_options = {"num_cpus": 4, "num_gpus": 2}

    def test_worker_sees_the_gpus_that_it_holds(self) -> None:
        holder = Holder.options(num_gpus=1).remote()
        ids, visible = get([holder.gpus.remote(), holder.visible.remote()])
        assert visible == ",".join(map(str, ids))

    def test_threads_of_an_actor_know_its_resources(self) -> None:
        @syncline.remote(num_gpus=1)
        class Threaded:
            def look(self) -> object:
                context = syncline.get_runtime_context()
                return (
                    context.get_actor_id(),
                    syncline.get_gpu_ids(),
                    context.get_assigned_resources().get("GPU"),
                )

            def look_in_a_thread(self) -> object:
                with ThreadPoolExecutor(1) as threads:
                    return threads.submit(self.look).result()

        eventually(lambda: (syncline.available_resources().get("GPU") or 0) >= 1)
        actor = Threaded.remote()
        direct, in_a_thread = get([actor.look.remote(), actor.look_in_a_thread.remote()])
        assert in_a_thread == direct
        assert direct[0] is not None
        assert len(direct[1]) == 1
        syncline.kill(actor)
        await_free("GPU", 2)

    def test_task_sees_the_gpus_that_it_holds_and_the_next_one_its_own(self) -> None:
        @syncline.remote
        def look() -> object:
            return syncline.get_gpu_ids(), os.environ.get("CUDA_VISIBLE_DEVICES")

        for count in (1, 2, 0, 1):
            ids, visible = get(look.options(num_gpus=count).remote())
            assert len(ids) == count
            assert (visible or "") == ",".join(map(str, ids))


class HeldResources(Suite):
    """Tasks that wait for resources."""

    needs = ("parallel",)
    init_options = {"num_cpus": 2, "resources": {"slot": 1}}

    def test_tasks_that_need_the_same_thing_take_turns(self, tmp_path: Path) -> None:
        mark = str(tmp_path / "inside")

        @syncline.remote(num_cpus=0.1, resources={"slot": 1})
        def alone() -> bool:
            with open(mark, "x"):
                time.sleep(0.002)
            os.unlink(mark)
            return True

        assert all(get([alone.remote() for _ in range(10)]))

    def test_task_without_room_does_not_block_others(self, tmp_path: Path) -> None:
        go = str(tmp_path / "go")
        hold = wait_for.options(resources={"slot": 1})
        held = [hold.remote(go), hold.remote(go)]
        assert get([one.remote() for _ in range(5)]) == [1] * 5
        Path(go).touch()
        get(held)


class LibraryThreads(Suite):
    """Threads of libraries in workers."""

    needs = ("processes",)

    def test_threads_of_libraries_follow_the_number_of_cpus(self) -> None:
        @syncline.remote
        def threads() -> str | None:
            return os.environ.get("OMP_NUM_THREADS")

        @syncline.remote
        class Actor:
            def __init__(self) -> None:
                self.at_start = os.environ.get("OMP_NUM_THREADS")

            def threads(self) -> str | None:
                return self.at_start

        group = placement_group([{"CPU": 2}])
        inside = {"scheduling_strategy": PlacementGroupSchedulingStrategy(group)}
        for options, expected in (
            ({}, "1"),
            ({"num_cpus": 0.5}, "1"),
            ({"num_cpus": 2}, "2"),
            ({"num_cpus": 2, **inside}, "2"),
            ({"runtime_env": {"env_vars": {"OMP_NUM_THREADS": "7"}}}, "7"),
        ):
            assert get(threads.options(**options).remote()) == expected
            assert get(Actor.options(**options).remote().threads.remote()) == expected
        remove_placement_group(group)
