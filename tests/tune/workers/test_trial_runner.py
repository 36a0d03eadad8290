"""The trials of a batch: which ones begin, and what the call returns."""

from __future__ import annotations

from syncline.tune.trainable.trainable_state import TrialInfo
from syncline.tune.workers import messages, trial_runner


def batch(trials: int, within_s: float = 1e6) -> trial_runner._Batch:
    starts = tuple(
        messages.Start(info=TrialInfo(trial_id=str(number)), config={}) for number in range(trials)
    )
    return trial_runner._Batch(messages.RunBatch(starts=starts, within_s=within_s))


def outcome(number: int) -> messages.Stepped:
    return messages.Stepped(result={"number": number}, ended=True)


def test_a_batch_returns_the_outcomes_of_its_trials() -> None:
    made = batch(2)
    for number in range(2):
        start = made.next()
        assert start is not None
        assert start.info.trial_id == str(number)
        assert made.add(outcome(number))
    assert made.next() is None
    ran = made.end()
    assert ran is not None
    assert (ran.ended, ran.runs_on) == ((outcome(0), outcome(1)), False)


def test_the_call_returns_while_a_trial_goes_on_which_keeps_its_outcome() -> None:
    made = batch(3)
    made.next()
    made.add(outcome(0))
    made.next()
    ran = made.leave()
    assert ran is not None
    assert (ran.ended, ran.runs_on) == ((outcome(0),), True)
    assert not made.add(outcome(1))
    assert made.next() is None
    assert made.end() is None


def test_the_call_waits_for_a_batch_between_two_trials() -> None:
    made = batch(2)
    made.next()
    made.add(outcome(0))
    assert made.leave() is None
    assert made.next() is None
    ran = made.end()
    assert ran is not None
    assert (ran.ended, ran.runs_on) == ((outcome(0),), False)


def test_no_trial_begins_after_the_call_returned() -> None:
    made = batch(1)
    ran = made.leave()
    assert ran is not None
    assert (ran.ended, ran.runs_on) == ((), False)
    assert made.next() is None
    assert made.end() is None


def test_only_the_first_trial_begins_after_the_time_is_over() -> None:
    made = batch(2, within_s=0.0)
    assert made.next() is not None
    made.add(outcome(0))
    assert made.next() is None


def test_no_trial_begins_in_an_unusable_process() -> None:
    made = batch(2)
    made.next()
    made.unusable = "it changed the module 'a'"
    made.add(outcome(0))
    assert made.next() is None
    ran = made.end()
    assert ran is not None
    assert ran.unusable == "it changed the module 'a'"
