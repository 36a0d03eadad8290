"""References in a result live until the hub has the result, even if other threads drop references
in the meantime.
"""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

import syncline
from syncline.core.embedded import messages as m
from syncline.core.embedded.invocation import Outcome, ResultPacker
from syncline.core.refs import ObjectRef, journal

CALLS = 200


def test_references_in_a_result_are_held_between_packing_and_sending() -> None:
    results = ResultPacker(SimpleNamespace(allocate=None), lambda: 0)
    refs = [ObjectRef(7, counted=True), ObjectRef(8, counted=True)]
    journal.clear()
    outcome = Outcome(1)
    results.pack(outcome, refs, "f", m.ONE, 1, (1,))
    assert sorted(journal) == [7, 8]
    journal.clear()
    results.sent(outcome.values)
    assert sorted(journal) == [-8, -7]
    del refs
    journal.clear()


@pytest.mark.processes
def test_a_threaded_actor_can_return_the_last_reference_to_a_value() -> None:
    @syncline.remote(num_cpus=0, max_concurrency=8)
    class Source:
        def __init__(self) -> None:
            self.lock = threading.Lock()
            self.left: dict[int, list[Any]] = {0: [], 1: [], 2: []}

        def next(self, consumer: int) -> list[Any]:
            with self.lock:
                if not self.left[consumer]:
                    ref = syncline.put(b"value")
                    for refs in self.left.values():
                        refs.append(ref)
                return [self.left[consumer].pop(0)]

    @syncline.remote(num_cpus=0)
    def consume(source: Any, consumer: int) -> int:
        found = 0
        pending = source.next.remote(consumer)
        for _ in range(CALLS):
            (ref,) = syncline.get(pending)
            pending = source.next.remote(consumer)
            found += syncline.get(ref) == b"value"
        return found

    with syncline.init(num_cpus=1):
        source = Source.remote()  # type: ignore[attr-defined]
        assert (
            syncline.get([consume.remote(source, consumer) for consumer in range(3)], timeout=60)
            == [CALLS] * 3
        )
