"""Placement groups and scheduling strategies."""

from __future__ import annotations

from typing import Any

import pytest

import syncline
from syncline.exceptions import RayError
from syncline.testing.conformance.suite import Suite
from syncline.testing.tasks import await_free, get, gpu_ids, group_id, one
from syncline.util import (
    get_current_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from syncline.util.placement_group import PlacementGroup
from syncline.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)


@syncline.remote
class Inside:
    """An actor that runs in groups."""

    def group(self) -> object:
        return get_current_placement_group()


def _within(remote: Any, group: PlacementGroup, bundle: int = -1, **options: object) -> Any:
    strategy = PlacementGroupSchedulingStrategy(group, bundle)
    return remote.options(scheduling_strategy=strategy, **options)


class PlacementGroups(Suite):
    """Groups on four CPUs."""

    init_options = {"num_cpus": 4, "num_gpus": 2, "resources": {"slot": 1}}

    @pytest.mark.parametrize("strategy", ["PACK", "SPREAD", "STRICT_PACK"])
    def test_group_reserves_all_bundles_and_gives_them_back(self, strategy: str) -> None:
        await_free("CPU", 4)
        group = placement_group([{"CPU": 1}, {"CPU": 2}], strategy=strategy)
        assert group.wait(60)
        assert get(group.ready()) == group
        assert group.bundle_count == 2
        assert group.bundle_specs == [{"CPU": 1}, {"CPU": 2}]
        await_free("CPU", 1)
        remove_placement_group(group)
        await_free("CPU", 4)

    def test_strict_spread_of_one_bundle_is_possible_and_of_two_is_not(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        group = placement_group([{"CPU": 1}], strategy="STRICT_SPREAD")
        assert group.wait(60)
        remove_placement_group(group)
        group = placement_group([{"CPU": 1}, {"CPU": 1}], strategy="STRICT_SPREAD")
        assert "STRICT_SPREAD" in caplog.text
        assert not group.wait(0.05)
        remove_placement_group(group)

    def test_group_that_the_machine_cannot_hold_waits_with_a_warning(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        groups = [placement_group([{"CPU": 3}, {"CPU": 2}]), placement_group([{"absent": 1}])]
        assert "5" in caplog.text
        assert "absent" in caplog.text
        for group in groups:
            assert not group.wait(0.05)
            assert placement_group_table(group)["state"] == "PENDING"
        assert get(one.remote()) == 1
        for group in groups:
            remove_placement_group(group)

    def test_invalid_bundles_are_refused(self) -> None:
        impossible: list[Any] = [
            [], [{}], [{"CPU": 0}], [{"CPU": -1}], {"CPU": 1}, [1], "CPU", [{"CPU": "1"}], [{1: 1}]
        ]  # fmt: skip
        for bundles in impossible:
            with pytest.raises(ValueError):
                placement_group(bundles)
        with pytest.raises(ValueError, match="strategy"):
            placement_group([{"CPU": 1}], strategy="TIGHT")

    def test_group_waits_for_resources_of_another(self) -> None:
        await_free("CPU", 4)
        first = placement_group([{"CPU": 4}])
        assert first.wait(60)
        second = placement_group([{"CPU": 4}])
        assert not second.wait(0)
        assert placement_group_table(second)["state"] == "PENDING"
        remove_placement_group(first)
        assert second.wait(60)
        remove_placement_group(second)

    def test_tasks_and_actors_run_inside(self) -> None:
        group = placement_group([{"CPU": 1}, {"CPU": 1}])
        assert group.wait(60)
        assert get(_within(group_id, group, 1).remote()) == group.id.hex()
        actor = _within(Inside, group, num_cpus=1).remote()
        assert get(actor.group.remote()) == group
        assert get_current_placement_group() is None
        syncline.kill(actor)
        remove_placement_group(group)

    def test_more_than_the_bundle_has_is_refused(self) -> None:
        group = placement_group([{"CPU": 1}, {"CPU": 1}])
        with pytest.raises(ValueError):
            get(_within(one, group, num_cpus=2).remote())
        with pytest.raises(ValueError):
            PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=2)
        remove_placement_group(group)

    def test_children_are_captured_on_request(self) -> None:
        @syncline.remote(num_cpus=1)
        def parent() -> object:
            return syncline.get(group_id.remote())

        group = placement_group([{"CPU": 2}])
        capturing = PlacementGroupSchedulingStrategy(
            group, placement_group_capture_child_tasks=True
        )
        captured = parent.options(scheduling_strategy=capturing).remote()
        assert get(captured) == group.id.hex()
        assert get(_within(parent, group).remote()) is None
        remove_placement_group(group)

    def test_removal_kills_tasks_and_actors_inside(self) -> None:
        group = placement_group([{"CPU": 1}])
        actor = _within(Inside, group, num_cpus=1).remote()
        assert get(actor.group.remote()) == group
        remove_placement_group(group)
        remove_placement_group(group)
        with pytest.raises(RayError):
            get(actor.group.remote())

    def test_nothing_runs_in_a_removed_group(self) -> None:
        group = placement_group([{"CPU": 1}])
        assert group.wait(60)
        remove_placement_group(group)
        with pytest.raises((ValueError, RayError), match="removed"):
            get(_within(one, group).remote())

    def test_ready_of_a_removed_group_is_an_error(self) -> None:
        await_free("CPU", 4)
        first, second = placement_group([{"CPU": 4}]), placement_group([{"CPU": 4}])
        ready = second.ready()
        remove_placement_group(second)
        with pytest.raises(RayError):
            get(ready)
        remove_placement_group(first)

    def test_gpus_of_bundles_are_different_ones(self) -> None:
        await_free("GPU", 2)
        group = placement_group([{"GPU": 1}, {"GPU": 1}])
        refs = [
            _within(gpu_ids, group, bundle, num_cpus=0, num_gpus=1).remote() for bundle in (0, 1)
        ]
        (first,), (second,) = get(refs)
        assert first != second
        remove_placement_group(group)

    def test_groups_are_listed_with_name_and_state(self) -> None:
        group = placement_group([{"CPU": 1}], name="listed", strategy="SPREAD")
        assert group.wait(60)
        row = placement_group_table(group)
        assert (row["name"], row["strategy"], row["state"]) == ("listed", "SPREAD", "CREATED")
        assert row["bundles_to_node_id"] == {0: syncline.get_runtime_context().get_node_id()}
        assert any(row["name"] == "listed" for row in placement_group_table().values())
        remove_placement_group(group)

    def test_group_can_be_passed_to_a_task(self) -> None:
        @syncline.remote
        def count(group: Any) -> object:
            return group.bundle_count

        group = placement_group([{"CPU": 1}, {"CPU": 1}])
        assert get(count.remote(group)) == 2
        remove_placement_group(group)

    def test_affinity_to_this_node_and_spreading_run_here(self) -> None:
        @syncline.remote
        def node() -> object:
            return syncline.get_runtime_context().get_node_id()

        here = syncline.get_runtime_context().get_node_id()
        strategy = NodeAffinitySchedulingStrategy(node_id=here, soft=False)
        assert get(node.options(scheduling_strategy=strategy).remote()) == here
        assert get(node.options(scheduling_strategy="SPREAD").remote()) == here
