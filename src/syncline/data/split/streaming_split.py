"""`streaming_split`: a dataset -> as many iterators as there are consumers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from syncline.core import api
from syncline.data.execute.places import here
from syncline.data.iterate.dealing import equal_mode
from syncline.data.iterator import DataIterator
from syncline.data.plan.signature import signature
from syncline.data.split.consumer import Keep, SplitFeed
from syncline.data.split.coordinator import Coordinator, Limits
from syncline.data.split.link import ActorLink, Link, LocalLink

if TYPE_CHECKING:
    from syncline.data.dataset import Dataset

# For every rank a call that waits for rows, one that was left behind, its leaving and its sign of
# life.
_CALLS_PER_RANK = 4


def streaming_split(
    dataset: Dataset,
    n: int,
    *,
    equal: bool | str = False,
    locality_hints: Sequence[Any] | None = None,
    keep: Keep,
    limits: Limits | None = None,
) -> list[DataIterator]:
    """Iterators over `n` parts of a dataset, for `n` consumers at the same time, in any processes.

    Args:
        dataset: What is read, once per pass for all consumers together. n: Number of consumers.
        equal: The last rows, too few for a batch of every consumer: False gives them to the first
        ones, True or "drop" gives equally
            many to each and drops the rest, "pad" repeats some of them so that each gets equally
            many.
        locality_hints: Nodes of the consumers; accepted, since blocks are shared through the object
        store. keep: Makes a dataset of blocks. limits: Time limits, for tests.

    ValueError and TypeError for impossible arguments. A loop begins when all consumers have begun
    theirs, and raises a `SplitError` where one of them cannot come or has died.
    """
    if isinstance(n, bool) or not isinstance(n, int):
        raise TypeError(
            f"n={n!r} is of type {type(n).__name__}, not a number of consumers: give an int"
        )
    if n < 1:
        raise ValueError(f"n={n} consumers cannot share a dataset: give 1 or more")
    if locality_hints is not None and len(locality_hints) != n:
        raise ValueError(
            f"locality_hints has {len(locality_hints)} entries for {n} consumers: give one for each"
        )
    mode, plan = equal_mode(equal), signature(dataset._node)
    link = _coordinator(dataset, n, mode, limits or Limits())
    return [
        DataIterator(
            SplitFeed(
                link=link,
                rank=rank,
                world_size=n,
                signature=plan,
                data_context=dataset.context,
                keep=keep,
            )
        )
        for rank in range(n)
    ]


def _coordinator(dataset: Dataset, n: int, *options: Any) -> Link:
    if api.ensure_engine().is_local_mode:
        return LocalLink(Coordinator(dataset, n, *options, in_process=True))
    actor = api.remote(num_cpus=0, max_concurrency=_CALLS_PER_RANK * n + 2, **here())(Coordinator)
    return ActorLink(actor.remote(dataset, n, *options))
