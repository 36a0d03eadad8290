"""Verdicts as events of a record."""

from __future__ import annotations

from syncline.runs.verdicts import EVENT, OVER, Cause, Verdict, current_verdict, verdict_of

SLOW = Verdict(cause=Cause.DATA, ranks=(1, 2), seconds=3.5, text="Ranks 1-2 are slow.")


def event(verdict: Verdict) -> dict[str, object]:
    return {"event": EVENT, "time": 1.0, **verdict.to_json()}


def test_a_verdict_survives_as_an_event() -> None:
    assert verdict_of(event(SLOW)) == SLOW
    assert SLOW.title == "ranks 1-2: data"


def test_other_and_damaged_events_are_no_verdicts() -> None:
    assert verdict_of({"event": "started"}) is None
    assert verdict_of({**event(SLOW), "cause": "weather"}) is None
    assert verdict_of({**event(SLOW), "ranks": None}) is None


def test_the_last_verdict_holds_until_it_is_over_or_another_attempt_begins() -> None:
    assert current_verdict([]) is None
    assert current_verdict([event(SLOW), {"event": "checkpoint"}]) == SLOW
    for end in (OVER, "attempt"):
        assert current_verdict([event(SLOW), {"event": end}]) is None
