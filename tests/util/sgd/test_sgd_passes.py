"""Batches of a loader over epochs that end before it, at its end, or beyond."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from syncline.train.torch import prepare_data_loader
from syncline.util.sgd.torch.passes import Passes
from syncline.util.sgd.torch.session import OperatorSession, inside


class Counted:
    """A loader of three batches, in which each pass is a generator that knows its number."""

    def __init__(self, length: int = 3) -> None:
        self.passes = 0
        self.length = length

    def __iter__(self) -> Iterator[str]:
        self.passes += 1
        number = self.passes
        for batch in range(self.length):
            yield f"{number}.{batch}"


def passes_over(loader: Any) -> Passes:
    return Passes(loader, lambda: 0)


def test_limited_epochs_go_on_in_the_pass_and_over_its_end() -> None:
    passes = passes_over(Counted())
    assert list(passes.batches(2)) == ["1.0", "1.1"]
    assert list(passes.batches(5)) == ["1.2", "2.0", "2.1", "2.2", "3.0"]
    assert list(passes.batches(None)) == ["3.1", "3.2"]
    assert list(passes.batches(None)) == ["4.0", "4.1", "4.2"]


def test_pass_that_was_used_up_without_anybody_noticing_is_followed_by_a_whole_one() -> None:
    passes = passes_over(Counted())
    assert len(list(passes.batches(3))) == 3
    assert list(passes.batches(None)) == ["2.0", "2.1", "2.2"]


def test_restart_begins_another_pass() -> None:
    passes = passes_over(Counted())
    next(iter(passes.batches(None)))
    passes.restart()
    assert list(passes.batches(1)) == ["2.0"]


@pytest.mark.parametrize("num_steps", [None, 4])
def test_empty_loader_ends_the_epoch(num_steps: int | None) -> None:
    assert list(passes_over(Counted(0)).batches(num_steps)) == []


def test_length_is_told_where_it_is_known() -> None:
    passes = passes_over([1, 2, 3])
    assert (passes.left(None), passes.left(7)) == (3, 7)
    next(iter(passes.batches(1)))
    assert passes.left(None) is None


def test_another_worker_goes_on_in_the_middle_of_a_shuffled_pass() -> None:
    def make() -> Passes:
        return passes_over(
            prepare_data_loader(DataLoader(list(range(12)), batch_size=2, shuffle=True))
        )

    def numbers(batches: Iterator[torch.Tensor]) -> list[int]:
        return [int(number) for batch in batches for number in batch]

    with inside(OperatorSession(None, world_size=1, use_gpu=False)):
        passes, other = make(), make()
        begun = numbers(passes.batches(2))
        state = passes.state_dict()
        rest = numbers(passes.batches(None))
        other.load_state_dict(state)
        assert other.left(None) is None
        assert numbers(other.batches(None)) == rest
    assert sorted(begun + rest) == list(range(12))
