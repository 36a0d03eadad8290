"""Readers of a rank: what is saved of them with a checkpoint, and who gets what of it in the next
attempt.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from syncline.train import Checkpoint
from syncline.train.resume_state import Readers, read_states, resume_position, states_path


class Fake:
    """A reader that is somewhere."""

    def __init__(self, **state: Any) -> None:
        self.state: dict[str, Any] = state
        self.loaded: list[Mapping[str, Any]] | None = None
        self.waited_s = 0.25

    def state_dict(self) -> dict[str, Any]:
        return self.state

    def load_state_dict(self, states: Sequence[Mapping[str, Any]], /) -> None:
        self.loaded = list(states)


def in_middle(epoch: int = 0, **more: Any) -> Fake:
    return Fake(epoch=epoch, ended=False, **more)


def ended(epoch: int = 0) -> Fake:
    return Fake(epoch=epoch, ended=True)


def save(directory: Path, ranks: Sequence[Readers]) -> Checkpoint:
    """A checkpoint of these ranks."""
    for rank, each in enumerate(ranks):
        path = directory / states_path(rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(each.capture())
    return Checkpoint(str(directory))


def saved_by(directory: Path, *ranks: Mapping[str, Fake]) -> Checkpoint:
    """A checkpoint of ranks with these readers."""
    made = [Readers(rank=rank, world_size=len(ranks)) for rank in range(len(ranks))]
    for each, fakes in zip(made, ranks, strict=True):
        for name, fake in fakes.items():
            each.add(name, fake)
    return save(directory, made)


def loaded_by(
    checkpoint: Checkpoint | None, name: str, *, rank: int, world_size: int
) -> list[Mapping[str, Any]] | None:
    fake = Fake()
    Readers(rank=rank, world_size=world_size, saved=checkpoint).add(name, fake)
    return fake.loaded


def test_readers_of_a_kind_are_numbered_from_one() -> None:
    mine = Readers(rank=0, world_size=1)
    assert [mine.number("loader"), mine.number("loader"), mine.number("other")] == [1, 2, 1]


def test_waiting_is_that_of_all_readers() -> None:
    mine = Readers(rank=0, world_size=1)
    mine.add("a", Fake())
    mine.add("b", Fake())
    assert mine.waited_s == 0.5
    assert "a" in mine
    assert "c" not in mine


def test_as_many_ranks_get_their_own_states_and_others_those_of_all(tmp_path: Path) -> None:
    checkpoint = saved_by(tmp_path, {"data": in_middle(at=10)}, {"data": in_middle(at=11)})
    first, second = {"epoch": 0, "ended": False, "at": 10}, {"epoch": 0, "ended": False, "at": 11}
    assert [loaded_by(checkpoint, "data", rank=rank, world_size=2) for rank in (0, 1)] == [
        [first],
        [second],
    ]
    assert loaded_by(checkpoint, "data", rank=0, world_size=1) == [first, second]
    assert [loaded_by(checkpoint, "data", rank=rank, world_size=3) for rank in (0, 2)] == [
        [first, second]
    ] * 2


def test_readers_that_nothing_is_known_of_begin_anew(tmp_path: Path) -> None:
    checkpoint = saved_by(tmp_path, {"data": Fake()})
    assert loaded_by(checkpoint, "data", rank=0, world_size=1) is None
    assert loaded_by(checkpoint, "another", rank=0, world_size=1) is None
    assert loaded_by(None, "data", rank=0, world_size=1) is None


def test_checkpoint_without_states_resumes_nothing(tmp_path: Path) -> None:
    for world_size in (1, 2):
        assert (
            loaded_by(Checkpoint(str(tmp_path)), "data", rank=world_size - 1, world_size=world_size)
            is None
        )


def test_a_rank_that_saved_nothing_among_those_that_did_begins_anew(tmp_path: Path) -> None:
    checkpoint = saved_by(tmp_path, {"data": in_middle(at=1)}, {"data": in_middle(at=2)})
    (tmp_path / states_path(1)).unlink()
    assert loaded_by(checkpoint, "data", rank=1, world_size=2) is None
    assert loaded_by(checkpoint, "data", rank=0, world_size=1) == [
        {"epoch": 0, "ended": False, "at": 1},
        {},
    ]


def test_files_of_an_earlier_number_of_ranks_do_not_count(tmp_path: Path) -> None:
    saved_by(tmp_path, *[{"data": in_middle(at=rank)} for rank in range(4)])
    checkpoint = saved_by(tmp_path, {"data": in_middle(at=100)}, {"data": in_middle(at=101)})
    loaded = loaded_by(checkpoint, "data", rank=0, world_size=4)
    assert loaded is not None
    assert [state["at"] for state in loaded] == [100, 101]
    assert loaded_by(checkpoint, "data", rank=3, world_size=4) == loaded


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"version": 1}',
        json.dumps({"version": 99, "readers": {}, "random": {}, "world_size": 1}),
    ],
)
def test_damaged_states_are_an_error_with_a_remedy(tmp_path: Path, text: str) -> None:
    checkpoint = saved_by(tmp_path, {})
    (tmp_path / states_path(0)).write_text(text)
    with pytest.raises(
        ValueError, match=r"rank-00000.json.*cannot be read.*Delete this checkpoint.*resume=False"
    ):
        loaded_by(checkpoint, "data", rank=0, world_size=1)


def test_states_of_readers_that_are_not_asked_for_are_kept(tmp_path: Path) -> None:
    first = saved_by(tmp_path / "1", {"data": in_middle(at=1)}, {"data": in_middle(at=2)})
    second = save(
        tmp_path / "2", [Readers(rank=rank, world_size=2, saved=first) for rank in (0, 1)]
    )
    assert loaded_by(second, "data", rank=1, world_size=2) == [
        {"epoch": 0, "ended": False, "at": 2}
    ]
    third = save(
        tmp_path / "3", [Readers(rank=rank, world_size=3, saved=second) for rank in (0, 1, 2)]
    )
    for world_size in (1, 2, 3):
        loaded = loaded_by(third, "data", rank=0, world_size=world_size)
        assert loaded is not None
        assert [state["at"] for state in loaded] == [1, 2]


# -- random states


def with_random(directory: Path, seeds: Sequence[int], *fakes: Mapping[str, Fake]) -> Checkpoint:
    """A checkpoint that ranks have taken, the generators of each seeded in its own way."""
    for rank, (seed, readers_of_rank) in enumerate(zip(seeds, fakes, strict=True)):
        mine = Readers(rank=rank, world_size=len(seeds))
        for name, fake in readers_of_rank.items():
            mine.add(name, fake)
        random.seed(seed)
        (directory / states_path(rank)).parent.mkdir(parents=True, exist_ok=True)
        (directory / states_path(rank)).write_bytes(mine.capture())
    return Checkpoint(str(directory))


def first_number(seed: int) -> float:
    return random.Random(seed).random()


def number_after(reader: Fake, mine: Readers) -> float:
    """The next random number once `reader` has begun its first pass."""
    random.seed("something else")
    mine.restore_random(reader)
    return random.random()


def test_random_states_come_back_with_the_reader_that_was_in_the_middle_of_a_pass(
    tmp_path: Path,
) -> None:
    checkpoint = with_random(tmp_path, [7], {"valid": ended(), "train": in_middle()})
    mine = Readers(rank=0, world_size=1, saved=checkpoint)
    valid, train = Fake(), Fake()
    mine.add("valid", valid)
    assert number_after(valid, mine) != first_number(7)
    mine.add("train", train)
    assert number_after(train, mine) == first_number(7)
    assert number_after(train, mine) != first_number(7)  # only once


def test_random_states_come_back_with_the_first_reader_if_none_was_in_a_pass(
    tmp_path: Path,
) -> None:
    checkpoint = with_random(tmp_path, [7], {"valid": ended(), "train": ended()})
    mine = Readers(rank=0, world_size=1, saved=checkpoint)
    train, new = Fake(), Fake()
    mine.add("train", train)
    mine.add("new", new)
    assert number_after(new, mine) == first_number(7)
    assert number_after(train, mine) != first_number(7)


def test_each_rank_has_its_own_random_states_and_new_ranks_have_none(tmp_path: Path) -> None:
    checkpoint = with_random(tmp_path, [7, 8], {}, {})
    for world_size in (1, 2, 3):
        for rank in range(world_size):
            number = number_after(
                Fake(), Readers(rank=rank, world_size=world_size, saved=checkpoint)
            )
            expected = (
                first_number(7 + rank) if rank < 2 else random.Random("something else").random()
            )
            assert number == expected


def test_forked_processes_draw_in_their_own_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = Readers(rank=0, world_size=1, saved=with_random(tmp_path, [7], {}))
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert number_after(Fake(), mine) != first_number(7)


# -- for people


def test_places_are_told_in_one_line(tmp_path: Path) -> None:
    checkpoint = saved_by(
        tmp_path,
        {
            "dataset 'train'": in_middle(3, place="30720 rows"),
            "data loader 1": ended(3),
            "data loader 2": Fake(),
        },
    )
    assert (
        resume_position(checkpoint)
        == "dataset 'train': epoch 3, 30720 rows; data loader 1: epoch 4"
    )


def test_places_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    assert resume_position(Checkpoint(str(tmp_path))) == ""
    (tmp_path / states_path(0)).parent.mkdir()
    (tmp_path / states_path(0)).write_text("{")
    assert resume_position(Checkpoint(str(tmp_path))) == ""


def test_what_is_saved_says_how_many_ranks_there_were(tmp_path: Path) -> None:
    states = read_states(saved_by(tmp_path, {}, {}), 1)
    assert states is not None
    assert states.world_size == 2
    assert "python" in states.random
