"""What a result refers to stays alive until the hub knows of the result, whichever thread tells it of dropped references meanwhile."""

from types import SimpleNamespace

from syncline.core.embedded import messages as m
from syncline.core.embedded.results import Results
from syncline.core.refs import ObjectRef, journal


def test_references_in_a_result_are_held_between_packing_and_sending() -> None:
    results = Results(SimpleNamespace(allocate=None), lambda: 0)  # type: ignore[arg-type]
    refs = [ObjectRef(7, counted=True), ObjectRef(8, counted=True)]
    journal.clear()
    values = results.pack(refs, "f", m.ONE, 1, (1,))
    assert sorted(journal) == [7, 8]
    journal.clear()
    results.sent(values)
    assert sorted(journal) == [-8, -7]
    del refs
    journal.clear()
