"""Resources of trials: bundles, and dictionaries converted to a bundle."""

from __future__ import annotations

from typing import Any

import cloudpickle
import pytest

from syncline.tune.execution.placement_groups import (
    Gang,
    PlacementGroupFactory,
    resource_dict_to_pg_factory,
)


def test_bundles_of_a_trial() -> None:
    factory = PlacementGroupFactory(
        [{"cpu": 1}, {"CPU": 2, "GPU": 0.5, "disk": 0}, {"gpu": 1}], strategy="SPREAD"
    )
    assert factory.bundles == [{"CPU": 1}, {"CPU": 2, "GPU": 0.5}, {"GPU": 1}]
    assert factory.required_resources == {"CPU": 3, "GPU": 1.5}
    assert (factory.strategy, factory.head_cpus, factory.head_bundle) == ("SPREAD", 1, {"CPU": 1})
    factory.bundles[0]["CPU"] = 7
    assert factory.head_cpus == 1, "properties return copies"
    empty_head = PlacementGroupFactory([{}, {"CPU": 1}])
    assert empty_head.head_bundle_is_empty
    assert (empty_head.head_cpus, empty_head.required_resources) == (0, {"CPU": 1})


def test_equal_resources_are_equal() -> None:
    first, second = (
        PlacementGroupFactory([{"CPU": 1, "GPU": 1}]),
        PlacementGroupFactory([{"gpu": 1, "cpu": 1}]),
    )
    assert first == second == cloudpickle.loads(cloudpickle.dumps(first))
    assert hash(first) == hash(second)
    assert first != PlacementGroupFactory([{"CPU": 1, "GPU": 1}], strategy="SPREAD")
    assert first != Gang([{"CPU": 1, "GPU": 1}]), "a gang hands its place on"
    assert first != {"CPU": 1}
    assert "GPU" in repr(first)


@pytest.mark.parametrize(
    ("bundles", "strategy", "error", "said"),
    [
        ([], "PACK", ValueError, "reserves nothing"),
        ([{}, {"CPU": 0}], "PACK", ValueError, "reserves nothing"),
        (
            [{"CPU": -1}],
            "PACK",
            ValueError,
            "'CPU' must be a name with a finite amount from 0 up, not -1",
        ),
        ([{"CPU": float("inf")}], "PACK", ValueError, "amount"),
        ([{"CPU": True}], "PACK", ValueError, "amount"),
        ([{1: 1}], "PACK", ValueError, "name"),
        ([{"CPU": 1}], "ANYWHERE", ValueError, "'ANYWHERE'"),
        ({"CPU": 1}, "PACK", TypeError, "list of dictionaries"),
        ([1], "PACK", TypeError, "list of dictionaries"),
    ],
)
def test_invalid_resources_are_refused(
    bundles: Any, strategy: Any, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match="resources|PlacementGroupFactory") as caught:
        PlacementGroupFactory(bundles, strategy=strategy)
    assert said in str(caught.value)


def test_a_dictionary_is_one_bundle() -> None:
    assert resource_dict_to_pg_factory({"cpu": 2, "gpu": 0.5, "tpu": 1}).bundles == [
        {"CPU": 2, "GPU": 0.5, "tpu": 1}
    ]
    assert (
        resource_dict_to_pg_factory(None).bundles
        == resource_dict_to_pg_factory({}).bundles
        == [{"CPU": 1}]
    )
    with pytest.raises(
        ValueError, match="'extra_cpu' is no longer supported: use one bundle per process"
    ):
        resource_dict_to_pg_factory({"cpu": 1, "extra_cpu": 3})


def test_custom_resources_are_part_of_the_bundle() -> None:
    given = {"cpu": 1, "custom_resources": {"licence": 2}}
    assert resource_dict_to_pg_factory(given).bundles == [{"CPU": 1, "licence": 2}]
    assert given["custom_resources"] == {"licence": 2}


def test_a_gang_of_unknown_size_reserves_nothing() -> None:
    assert Gang([]).bundles == []
    assert Gang([]).head_bundle_is_empty
    assert Gang([{"CPU": 1}] * 3).required_resources == {"CPU": 3}
