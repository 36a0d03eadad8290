"""What trials hold: reserved whole, given back at once, and refused with numbers where it can never
be had.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import syncline
from syncline.core.lifecycle import ensure_engine
from syncline.core.placement import PlacementGroup
from syncline.tune.execution.placement_groups import Gang, PlacementGroupFactory
from syncline.tune.workers.places import Places, check_possible

TWO = PlacementGroupFactory([{"CPU": 1}, {"CPU": 1}])


@pytest.fixture
def held() -> list[str]:
    return []


@pytest.fixture
def places(held: list[str]) -> Iterator[Places]:
    syncline.init(local_mode=True, num_cpus=2)
    yield Places(held=lambda trial_id, place: held.append(trial_id))
    syncline.shutdown()


def free() -> float:
    return float(syncline.available_resources().get("CPU", 0.0))


def inner_group() -> PlacementGroup:
    """As a trainer in a trial makes one."""
    bundles = [{"CPU": 1.0}]
    return PlacementGroup(
        ensure_engine().create_placement_group(bundles, strategy="PACK", name="", detached=False),
        bundles,
    )


def test_a_place_is_held_whole_and_given_back(places: Places, held: list[str]) -> None:
    places.reserve("one", TWO)
    places.reserve("two", TWO)
    assert held == ["one"]
    places.has_come("one")
    assert (free(), places.in_use) == (0, {"CPU": 2})
    places.give_back("one")
    assert held == ["one", "two"]
    places.give_back("two")
    places.give_back("two")
    assert (free(), places.in_use, places.of("two")) == (2, {}, None)


def test_a_trial_that_needs_nothing_has_its_place_at_once(places: Places, held: list[str]) -> None:
    places.reserve("one", Gang([]))
    assert (held, places.of("one")) == (["one"], None)


def test_a_place_set_apart_is_held_while_the_trial_gets_another(
    places: Places, held: list[str]
) -> None:
    places.reserve("one", PlacementGroupFactory([{"CPU": 1}]))
    places.set_apart("one", "one 1")
    places.reserve("one", PlacementGroupFactory([{"CPU": 1}]))
    assert (held, free()) == (["one", "one"], 0)
    places.give_back("one 1")
    assert free() == 1
    places.give_back("one")
    assert free() == 2


def test_what_a_trainer_in_a_trial_reserves_ends_with_the_trial(places: Places) -> None:
    places.reserve("one", TWO)
    places.has_come("one")
    places.lend("one")
    assert (free(), places.in_use) == (2, {})
    places.adopt("one", inner_group())
    assert (free(), places.in_use) == (1, {"CPU": 1})
    again = (
        inner_group()
    )  # its workers start again: the earlier group is given back by the trainer itself
    places.adopt("one", again)
    assert places.in_use == {"CPU": 1}
    places.set_apart("one", "one 1")
    assert free() == 0
    places.give_back("one 1")
    assert (free(), places.in_use) == (2, {})


def test_nothing_is_held_after_the_end(places: Places) -> None:
    places.reserve("one", TWO)
    places.reserve("two", TWO)
    places.adopt("three", inner_group())
    places.close()
    assert (free(), places.of("two")) == (2, None)


@pytest.mark.parametrize(
    ("bundles", "said"),
    [
        ([{"CPU": 5}, {"CPU": 2}], "a trial needs 7 CPU but there are 6"),
        (
            [{"CPU": 5}],
            "a trial needs 5 CPU in one bundle, which lies on one machine, but the largest machine has 4",
        ),
        ([{"GPU": 1}], "a trial needs 1 GPU but there are 0"),
        ([{"tape": 1}], "a trial needs 1 tape but there are 0"),
    ],
)
def test_what_can_never_be_had(bundles: list[dict[str, float]], said: str) -> None:
    with pytest.raises(ValueError, match="can never run") as caught:
        check_possible(bundles, [{"CPU": 4.0}, {"CPU": 2.0}])
    assert said in str(caught.value)
    check_possible([{"CPU": 4}, {"CPU": 2}], [{"CPU": 4.0}, {"CPU": 2.0}])
