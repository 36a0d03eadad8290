"""Reservations are made as a whole, released with the trial, and refused with numbers if they can
never be held.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import syncline
from syncline.core.lifecycle import ensure_engine
from syncline.core.placement import PlacementGroup
from syncline.tune.execution.placement_groups import Gang, PlacementGroupFactory
from syncline.tune.workers.reservations import TrialReservations, check_possible

TWO = PlacementGroupFactory([{"CPU": 1}, {"CPU": 1}])


@pytest.fixture
def ready() -> list[str]:
    return []


@pytest.fixture
def reservations(ready: list[str]) -> Iterator[TrialReservations]:
    syncline.init(local_mode=True, num_cpus=2)
    yield TrialReservations(on_ready=lambda trial_id, group: ready.append(trial_id))
    syncline.shutdown()


def free() -> float:
    return float(syncline.available_resources().get("CPU", 0.0))


def inner_group() -> PlacementGroup:
    """Return a group like that of a trainer inside a trial."""
    bundles = [{"CPU": 1.0}]
    return PlacementGroup(
        ensure_engine().create_placement_group(bundles, strategy="PACK", name="", detached=False),
        bundles,
    )


def test_a_group_is_reserved_as_a_whole_and_released(
    reservations: TrialReservations, ready: list[str]
) -> None:
    reservations.reserve("one", TWO)
    reservations.reserve("two", TWO)
    assert ready == ["one"]
    reservations.count_ready("one")
    assert (free(), reservations.in_use) == (0, {"CPU": 2})
    reservations.release("one")
    assert ready == ["one", "two"]
    reservations.release("two")
    reservations.release("two")
    assert (free(), reservations.in_use, reservations.group_of("two")) == (2, {}, None)


def test_a_trial_without_resources_is_ready_immediately(
    reservations: TrialReservations, ready: list[str]
) -> None:
    reservations.reserve("one", Gang([]))
    assert (ready, reservations.group_of("one")) == (["one"], None)


def test_renamed_reservation_stays_reserved_while_the_trial_gets_another(
    reservations: TrialReservations, ready: list[str]
) -> None:
    reservations.reserve("one", PlacementGroupFactory([{"CPU": 1}]))
    reservations.rename("one", "one 1")
    reservations.reserve("one", PlacementGroupFactory([{"CPU": 1}]))
    assert (ready, free()) == (["one", "one"], 0)
    reservations.release("one 1")
    assert free() == 1
    reservations.release("one")
    assert free() == 2


def test_groups_of_a_trainer_end_with_its_trial(reservations: TrialReservations) -> None:
    reservations.reserve("one", TWO)
    reservations.count_ready("one")
    reservations.lend("one")
    assert (free(), reservations.in_use) == (2, {})
    reservations.adopt("one", inner_group())
    assert (free(), reservations.in_use) == (1, {"CPU": 1})
    again = (
        inner_group()
    )  # its workers start again: the earlier group is given back by the trainer itself
    reservations.adopt("one", again)
    assert reservations.in_use == {"CPU": 1}
    reservations.rename("one", "one 1")
    assert free() == 0
    reservations.release("one 1")
    assert (free(), reservations.in_use) == (2, {})


def test_close_releases_everything(reservations: TrialReservations) -> None:
    reservations.reserve("one", TWO)
    reservations.reserve("two", TWO)
    reservations.adopt("three", inner_group())
    reservations.close()
    assert (free(), reservations.group_of("two")) == (2, None)


@pytest.mark.parametrize(
    ("bundles", "said"),
    [
        ([{"CPU": 5}, {"CPU": 2}], "a trial needs 7 CPU but the cluster has 6"),
        (
            [{"CPU": 5}],
            "a trial needs 5 CPU in one bundle, that is on one machine, but the largest",
        ),
        ([{"GPU": 1}], "a trial needs 1 GPU but the cluster has 0"),
        ([{"tape": 1}], "a trial needs 1 tape but the cluster has 0.5"),
        ([{"tapes": 1}], "Did you mean 'tape'?"),
    ],
)
def test_an_impossible_reservation_is_refused(bundles: list[dict[str, float]], said: str) -> None:
    with pytest.raises(ValueError, match="can never run") as caught:
        check_possible(bundles, [{"CPU": 4.0}, {"CPU": 2.0, "tape": 0.5}])
    assert said in str(caught.value)
    check_possible([{"CPU": 4}, {"CPU": 2}], [{"CPU": 4.0}, {"CPU": 2.0}])
