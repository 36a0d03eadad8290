"""How far a prepared loader is in its epoch: what is saved with a checkpoint, and where a loader
goes on from what all ranks saved.

Pure: dicts for JSON in and out. Positions are counted in items of the order (see `orders`), of
which all ranks together have taken the first so many; so they mean the same for another number of
ranks and for another batch size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from syncline.train.torch.orders import Kind, Order

VERSION = 1


@dataclass(kw_only=True)
class Place:
    """Where a pass is, or where one will go on."""

    epoch: int
    """Number of the pass, from 0; -1 before the first."""
    kind: Kind
    """That of its order."""
    start: int = 0
    """How many items the ranks had taken when the pass began in this process."""
    first: int = 0
    """How many batches this rank had got by then."""
    batches: int = 0
    """How many it has now."""
    ended: bool = False
    """That pass is over: next is another epoch."""
    left: bool = False
    """The program has dropped the pass before its end."""
    random: Mapping[str, Any] = field(default_factory=dict)
    """The random states in which the epoch began on this rank; at its end only those of generators
    that the user gave to the loader.
    """
    dataset: str | None = None
    """What an `IterableDataset` said where it is."""

    def items(self, order: Order) -> int:
        """How many items of the order all ranks have taken, if they are where this one is."""
        return self.start + (self.batches - self.first) * order.step

    def to_dict(self, order: Order, *, rank: int, world_size: int, ended: bool) -> dict[str, Any]:
        """What is saved; some 14 kB as JSON in the middle of an epoch, at its end a few hundred
        bytes, and the user's generators.
        """
        state = {
            "version": VERSION,
            "epoch": self.epoch,
            "ended": ended,
            "place": "1 batch" if self.batches == 1 else f"{self.batches} batches",
            "batches": self.batches,
            "items": self.items(order),
            "in_batches": order.batch_size is None,
            "order": self.kind,
            "sharing": order.ranks,
            "rank": rank,
            "world_size": world_size,
        }
        return {**state, "random": dict(self.random), "dataset": None if ended else self.dataset}


def find(
    states: Sequence[Mapping[str, Any]], order: Order, *, rank: int, world_size: int
) -> tuple[Place, str]:
    """Where this rank goes on, and a warning if that is not quite where the ranks were; "" if it
    is.

    Args:
        states: What the ranks saved, by rank, some perhaps nothing; or what this rank alone saved,
            one of as many as now.
        order: That of this rank's loader now.

    Raises:
        ValueError: they are of another version.
    """
    for state in states:
        if state.get("version", VERSION) != VERSION:
            raise ValueError(
                f"the place of a data loader was saved in version {state['version']!r}, and this syncline reads version {VERSION}, so the "
                "epoch cannot go on there: use the syncline that saved it, or begin the epoch anew with `DataConfig(resume=False)`."
            )
    known = [state for state in states if state]
    mine = next(
        (state for state in known if (state["rank"], state["world_size"]) == (rank, world_size)),
        None,
    )
    if mine is not None:
        state, warning = mine, ""
    elif known[0]["sharing"] == 1:
        state, warning = (
            states[rank % len(states)] or known[0],
            "",
        )  # each rank had an order for itself
    else:
        state, warning = _least(states, order)
    if not state:
        return Place(epoch=-1, kind=order.kind, ended=True), warning
    obstacle = "" if state["ended"] else _obstacle(state, order, world_size)
    if obstacle:
        return Place(epoch=state["epoch"] - 1, kind=order.kind, ended=True), (
            f"epoch {state['epoch']} cannot go on after its {state['place']}, because {obstacle}: it begins anew, and those are read again"
        )
    return _place(state), warning


def _least(states: Sequence[Mapping[str, Any]], order: Order) -> tuple[Mapping[str, Any], str]:
    """The state of the rank that is least far, and a warning if not all are there."""
    ahead = sorted(states, key=_progress)
    least, most = ahead[0], ahead[-1]
    if _progress(least) == _progress(most):
        return least, ""
    return least, (
        "the ranks were at different places when the checkpoint was taken, and now there are others: all go on where the last of them was "
        f"({_words(least)}; the first was at {_words(most)}), so some samples are read again"
    )


def _progress(state: Mapping[str, Any]) -> tuple[int, int]:
    if not state:
        return 0, 0
    return (state["epoch"] + 1, 0) if state["ended"] else (state["epoch"], state["items"])


def _words(state: Mapping[str, Any]) -> str:
    if not state:
        return "the beginning"
    return (
        f"the end of epoch {state['epoch']}"
        if state["ended"]
        else f"epoch {state['epoch']}, {state['place']}"
    )


def _obstacle(state: Mapping[str, Any], order: Order, world_size: int) -> str:
    """Why a pass cannot go on in this order; "" if it can."""
    kind: Kind = state["order"]
    dealt = {"own", "shared"}
    if {kind, order.kind} <= dealt:
        if state["in_batches"] != (order.batch_size is None):
            return "its batches were made by another kind of batch sampler"
        return ""
    if kind != order.kind:
        return f"its order was of another kind ({kind} where it is now {order.kind})"
    if kind == "foreign" and state["sharing"] != order.ranks:
        return f"its sampler deals samples in a way of its own, to {state['sharing']} ranks then and to {order.ranks} now"
    if kind == "stream" and state["world_size"] != world_size:
        return f"its IterableDataset shares out samples in a way of its own, to {state['world_size']} ranks then and to {world_size} now"
    return ""


def _place(state: Mapping[str, Any]) -> Place:
    return Place(
        epoch=state["epoch"],
        kind=state["order"],
        start=state["items"],
        first=state["batches"],
        batches=state["batches"],
        ended=state["ended"],
        random=state["random"],
        dataset=state["dataset"],
    )
