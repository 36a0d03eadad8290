"""Where a rank goes on, from what all ranks saved."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from syncline.train.torch.index_order import Order, order_of
from syncline.train.torch.loader_state import Place, find


class Endless(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        yield 1


def order(rank: int = 0, world_size: int = 2, batch_size: int = 4, **options: Any) -> Order:
    return order_of(
        DataLoader(range(100), batch_size=batch_size, **options), rank=rank, world_size=world_size
    )  # type: ignore[arg-type]


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
    place = Place(epoch=epoch, kind=of.kind, batches=batches, random={"torch": f"rank {rank}"})
    state: dict[str, Any] = json.loads(
        json.dumps(place.to_dict(of, rank=rank, world_size=world_size, ended=ended))
    )
    return state


def test_a_rank_among_as_many_goes_on_with_what_it_saved_itself() -> None:
    states = [saved(order(rank), rank=rank, batches=3 + rank) for rank in range(2)]
    for given in (states, states[1:]):
        place, warning = find(given, order(1), rank=1, world_size=2)
        assert (place.epoch, place.start, place.batches, place.random, warning) == (
            5,
            32,
            4,
            {"torch": "rank 1"},
            "",
        )


def test_positions_are_in_items_of_all_ranks() -> None:
    states = [saved(order(rank, 4), rank=rank, world_size=4) for rank in range(4)]
    place, warning = find(states, order(1, batch_size=7), rank=1, world_size=2)
    assert (place.start, warning) == (3 * 4 * 4, "")
    place.batches += 2
    assert place.items(order(1, batch_size=7)) == 48 + 2 * 2 * 7


def test_the_rank_that_is_least_far_counts_for_others() -> None:
    ahead, behind = saved(order(), epoch=5, batches=1), saved(order(1), rank=1, epoch=4, batches=9)
    place, warning = find([ahead, behind], order(0, 3), rank=0, world_size=3)
    assert (place.epoch, place.batches) == (4, 9)
    assert "epoch 4, 9 batches; the first was at epoch 5, 1 batch" in warning
    place, warning = find([ahead, {}], order(0, 3), rank=0, world_size=3)
    assert (place.epoch, place.ended) == (-1, True)
    assert "the beginning" in warning


def test_an_ended_epoch_is_followed_by_the_next_whatever_the_order() -> None:
    place, warning = find(
        [saved(order(), ended=True), saved(order(1), rank=1, ended=True)],
        stream(),
        rank=0,
        world_size=1,
    )
    assert (place.epoch, place.ended, warning) == (5, True, "")


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
        ),  # type: ignore[arg-type]
        (order(), stream(), "its order was of another kind"),
    ],
)
def test_an_epoch_in_another_order_begins_anew(then: Order, now: Order, cause: str) -> None:
    place, warning = find([saved(then), saved(then, rank=1)], now, rank=0, world_size=2)
    assert (place.epoch, place.ended, place.start) == (4, True, 0)
    assert cause in warning
    assert "epoch 5 cannot go on after its 3 batches" in warning


def test_a_stream_begins_anew_on_other_ranks() -> None:
    states = [saved(stream(), rank=rank, world_size=2) for rank in range(2)]
    assert find(states, stream(), rank=1, world_size=2)[0].batches == 3
    place, warning = find(states, stream(), rank=0, world_size=3)
    assert place.ended
    assert "to 2 ranks then and to 3 now" in warning


def test_a_state_of_another_version_is_refused() -> None:
    with pytest.raises(ValueError, match="version 9"):
        find([{**saved(order()), "version": 9}], order(), rank=0, world_size=2)
