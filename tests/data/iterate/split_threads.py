"""All ranks of a split as threads of this process, on an execution that needs no executor."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from syncline.data.iterate.sharding import equal_mode
from syncline.data.iterate.split_coordinator import SplitCoordinator, SplitTimeouts
from syncline.data.iterate.streaming_split import LocalClient, SplitSource
from syncline.data.iterator import DataIterator
from syncline.data.plan.signature import signature
from tests.data.execution_fake import FakeDataset, make_dataset

QUICK = SplitTimeouts(answer_s=0.2, check_s=0.02, warn_s=0.05, give_up_s=60.0)


def split_of(
    dataset: FakeDataset, n: int, *, equal: bool | str = False, timeouts: SplitTimeouts = QUICK
) -> list[DataIterator]:
    """What `streaming_split` returns."""
    coordinator = SplitCoordinator(
        dataset, n, equal_mode(equal), timeouts, in_process=True, run=dataset.run
    )
    client, plan = LocalClient(coordinator), signature(dataset._node)
    return [
        DataIterator(
            SplitSource(
                client=client,
                rank=rank,
                world_size=n,
                signature=plan,
                data_context=dataset.context,
                make_dataset=make_dataset,
            )
        )
        for rank in range(n)
    ]


def coordinator_of(iterator: DataIterator) -> SplitCoordinator:
    return iterator._source.client._coordinator  # type: ignore[attr-defined]


@dataclass
class Ranks:
    """Runs a function for every rank, each on a thread; results and errors by rank."""

    results: dict[int, Any] = field(default_factory=dict)
    errors: dict[int, BaseException] = field(default_factory=dict)
    threads: list[threading.Thread] = field(default_factory=list)

    def start(self, rank: int, function: Callable[[], Any]) -> None:
        def work() -> None:
            try:
                self.results[rank] = function()
            except BaseException as error:
                self.errors[rank] = error

        self.threads.append(threading.Thread(target=work, daemon=True))
        self.threads[-1].start()

    def join(self) -> "Ranks":
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive(), "a rank hangs"
        return self


def on_all(
    iterators: list[DataIterator], function: Callable[[int, DataIterator], Any]
) -> dict[int, Any]:
    """`function(rank, iterator)` of all ranks at once; raises the first error."""
    ranks = Ranks()
    for rank, iterator in enumerate(iterators):
        ranks.start(rank, lambda rank=rank, iterator=iterator: function(rank, iterator))  # type: ignore[misc]
    ranks.join()
    for error in ranks.errors.values():
        raise error
    return ranks.results


def values(batches: Any) -> list[int]:
    return [int(value) for batch in batches for value in batch["v"]]
