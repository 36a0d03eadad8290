"""Names and checks of `syncline.util` that no engine has a part in; what needs one is in the
conformance suites.
"""

from __future__ import annotations

import pickle
import queue as standard_queue
from collections.abc import Iterator
from typing import Any

import pytest

import syncline
from syncline import util
from syncline.util import placement_group, queue
from syncline.util import scheduling_strategies as strategies
from syncline.util.placement_group import PlacementGroup, get_placement_group


@pytest.fixture(autouse=True)
def engine() -> Iterator[None]:
    syncline.init(local_mode=True, num_cpus=4)
    yield
    syncline.shutdown()


@pytest.mark.parametrize("name", util.__all__)
def test_exported_name_is_there(name: str) -> None:
    assert getattr(util, name) is not None


def test_module_of_placement_groups_has_the_function_of_its_name() -> None:
    assert callable(placement_group)
    assert util.placement_group is placement_group


def test_queue_errors_are_the_standard_ones_too() -> None:
    assert issubclass(queue.Empty, standard_queue.Empty)
    assert issubclass(queue.Full, standard_queue.Full)


@pytest.mark.parametrize("wrong", [{"CPU": 1}, "CPU", [1], [["CPU", 1]]], ids=str)
def test_bundles_of_a_wrong_type_are_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="bundles"):
        placement_group(wrong)


def test_unknown_lifetime_is_refused() -> None:
    with pytest.raises(ValueError, match="forever"):
        placement_group([{"CPU": 1}], lifetime="forever")


def test_labels_of_bundles_are_checked() -> None:
    bundles = [{"CPU": 1}] * 2
    for wrong, error in (
        ({"zone": "a"}, TypeError),
        ([{"zone": 1}] * 2, TypeError),
        ([{"zone": "a"}], ValueError),
    ):
        with pytest.raises(error, match="bundle_label_selector"):
            placement_group(bundles, bundle_label_selector=wrong)
    with pytest.raises(ValueError, match="bundle 1 .*'zone': 'a'.* no labels"):
        placement_group(bundles, bundle_label_selector=[{"zone": "!a"}, {"zone": "a"}])
    util.remove_placement_group(placement_group(bundles, bundle_label_selector=[{}, {}]))


def test_group_is_found_by_its_name_until_it_is_removed() -> None:
    group = placement_group([{"CPU": 1}], name="findable")
    assert get_placement_group("findable") == group
    assert get_placement_group("findable").bundle_specs == [{"CPU": 1}]
    util.remove_placement_group(group)
    with pytest.raises(ValueError, match="findable"):
        get_placement_group("findable")
    with pytest.raises(ValueError, match="empty"):
        get_placement_group("")


def test_removing_something_else_is_refused() -> None:
    with pytest.raises(TypeError, match="placement_group"):
        util.remove_placement_group("group")


def test_table_of_an_unknown_group_is_empty() -> None:
    assert util.placement_group_table(PlacementGroup(12345, [])) == {}


def test_group_survives_pickling() -> None:
    group = placement_group([{"CPU": 1}])
    assert pickle.loads(pickle.dumps(group)) == group


def test_address_of_this_machine() -> None:
    assert util.get_node_ip_address() in [node["NodeManagerAddress"] for node in syncline.nodes()]


def test_strategies_are_those_of_core() -> None:
    assert strategies.NodeAffinitySchedulingStrategy(node_id="x", soft=True).soft


def test_pool_refuses_a_function_that_gives_no_reference() -> None:
    @syncline.remote
    class Worker:
        def work(self) -> None: ...

    pool = util.ActorPool([Worker.remote()])  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="reference"):
        pool.submit(lambda actor, value: value, 1)
    assert pool.has_free()


def test_get_next_goes_on_behind_what_was_taken_out_of_order() -> None:
    @syncline.remote
    class Worker:
        def work(self, x: int) -> int:
            return x

    pool = util.ActorPool([Worker.remote(), Worker.remote()])  # type: ignore[attr-defined]
    for i in range(2):
        pool.submit(lambda actor, value: actor.work.remote(value), i)
    assert pool.get_next_unordered() == 0
    pool.submit(lambda actor, value: actor.work.remote(value), 2)
    assert [pool.get_next(), pool.get_next()] == [1, 2]
