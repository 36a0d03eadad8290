"""Positions at which ranks resume, given the states of all ranks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from syncline.train.torch.index_order import Order, order_of
from syncline.train.torch.loader_state import Position, resume_position


class Endless(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        yield 1


def order(rank: int = 0, world_size: int = 2, batch_size: int = 4, **options: Any) -> Order:
    return order_of(
        DataLoader(range(100), batch_size=batch_size, **options), rank=rank, world_size=world_size
    )


def stream() -> Order:
    return order_of(DataLoader(Endless()), rank=0, world_size=1)


def saved(
    of: Order,
    *,
    rank: int = 0,
    world_size: int = 2,
    batches: int = 3,
    epoch: int = 5,
    ended: bool = False,
) -> dict[str, Any]:
    position = Position(
        epoch=epoch, kind=of.kind, batches=batches, random={"torch": f"rank {rank}"}
    )
    state: dict[str, Any] = json.loads(
        json.dumps(position.to_dict(of, rank=rank, world_size=world_size, ended=ended))
    )
    return state


def test_rank_resumes_from_its_own_state_if_number_of_ranks_is_same() -> None:
    states = [saved(order(rank), rank=rank, batches=3 + rank) for rank in range(2)]
    for given in (states, states[1:]):
        position, warning = resume_position(given, order(1), rank=1, world_size=2)
        assert (
            position.epoch,
            position.start_items,
            position.batches,
            position.random,
            warning,
        ) == (5, 32, 4, {"torch": "rank 1"}, "")


def test_positions_count_items_of_all_ranks() -> None:
    states = [saved(order(rank, 4), rank=rank, world_size=4) for rank in range(4)]
    position, warning = resume_position(states, order(1, batch_size=7), rank=1, world_size=2)
    assert (position.start_items, warning) == (3 * 4 * 4, "")
    position.batches += 2
    assert position.items(order(1, batch_size=7)) == 48 + 2 * 2 * 7


def test_all_ranks_resume_at_earliest_position() -> None:
    ahead, behind = saved(order(), epoch=5, batches=1), saved(order(1), rank=1, epoch=4, batches=9)
    position, warning = resume_position([ahead, behind], order(0, 3), rank=0, world_size=3)
    assert (position.epoch, position.batches) == (4, 9)
    assert "epoch 4, 9 batches; the latest was epoch 5, 1 batch" in warning
    position, warning = resume_position([ahead, {}], order(0, 3), rank=0, world_size=3)
    assert (position.epoch, position.ended) == (-1, True)
    assert "the beginning" in warning


def test_next_epoch_follows_ended_one_in_any_order() -> None:
    position, warning = resume_position(
        [saved(order(), ended=True), saved(order(1), rank=1, ended=True)],
        stream(),
        rank=0,
        world_size=1,
    )
    assert (position.epoch, position.ended, warning) == (5, True, "")


@pytest.mark.parametrize(
    ("then", "now", "cause"),
    [
        (
            order(),
            order_of(
                DataLoader(range(9), batch_sampler=BatchSampler(range(9), 2, False)),
                rank=0,
                world_size=2,
            ),
            "another kind of batch",
        ),
        (order(), stream(), "its order was of another kind"),
    ],
)
def test_epoch_in_another_order_restarts(then: Order, now: Order, cause: str) -> None:
    position, warning = resume_position(
        [saved(then), saved(then, rank=1)], now, rank=0, world_size=2
    )
    assert (position.epoch, position.ended, position.start_items) == (4, True, 0)
    assert cause in warning
    assert "epoch 5 cannot be resumed after its 3 batches" in warning


def test_stream_restarts_on_other_number_of_ranks() -> None:
    states = [saved(stream(), rank=rank, world_size=2) for rank in range(2)]
    assert resume_position(states, stream(), rank=1, world_size=2)[0].batches == 3
    position, warning = resume_position(states, stream(), rank=0, world_size=3)
    assert position.ended
    assert "then over 2 ranks and now over 3" in warning


def test_state_of_another_version_is_refused() -> None:
    with pytest.raises(ValueError, match="version 9"):
        resume_position([{**saved(order()), "version": 9}], order(), rank=0, world_size=2)
