"""Top-K retention: ranking, ties, missing scores, validation, state."""

import json
import math

import pytest

from syncline.train.checkpoint import Checkpoint, ReportedCheckpointStatus
from syncline.train.config import CheckpointConfig
from syncline.train.controller.checkpoint_manager import CheckpointManager


def at(index):
    return Checkpoint(f"/run/checkpoint_{index:06d}")


def manager(keep=None, by=None, order="max"):
    return CheckpointManager(
        CheckpointConfig(
            num_to_keep=keep, checkpoint_score_attribute=by, checkpoint_score_order=order
        )
    )


def fill(subject, scores, key="acc"):
    """Registers one checkpoint per score; returns the numbers of all that were dropped, in
    order.
    """
    dropped = []
    for index, value in enumerate(scores):
        dropped += subject.register(index, at(index), {} if value is None else {key: value})
    return [int(checkpoint.path[-6:]) for checkpoint in dropped]


def kept(subject):
    return [entry.index for entry in subject.registered]


def best(subject):
    return [int(checkpoint.path[-6:]) for checkpoint, _ in subject.best_checkpoints]


def test_all_are_kept_without_a_limit():
    subject = manager()
    assert fill(subject, [3, 1, 2]) == []
    assert kept(subject) == [0, 1, 2]


def test_without_an_attribute_the_newest_are_the_best():
    subject = manager(keep=2)
    assert fill(subject, [9, 8, 7, 6]) == [0, 1]
    assert best(subject) == [2, 3]


def test_the_best_k_are_kept_and_listed_worst_to_best():
    subject = manager(keep=2, by="acc")
    assert fill(subject, [1, 5, 3, 4]) == [0, 2]
    assert best(subject) == [3, 1]


def test_the_order_may_be_min():
    subject = manager(keep=2, by="acc", order="min")
    assert fill(subject, [5, 1, 3, 2]) == [0, 2]
    assert best(subject) == [3, 1]


def test_the_latest_is_kept_beside_the_best_until_the_next_comes():
    subject = manager(keep=1, by="acc")
    assert fill(subject, [9, 1]) == []
    assert (kept(subject), best(subject)) == ([0, 1], [0])
    assert subject.latest.checkpoint == at(1)
    assert subject.register(2, at(2), {"acc": 2}) == [at(1)]


def test_of_equal_scores_the_later_is_better():
    subject = manager(keep=1, by="acc")
    assert fill(subject, [5, 5]) == [0]


@pytest.mark.parametrize("order", ["max", "min"])
@pytest.mark.parametrize("bad", [math.nan, None, "high"])
def test_what_has_no_score_is_worst_also_against_infinity(bad, order):
    subject = manager(keep=1, by="acc", order=order)
    worst_number = -math.inf if order == "max" else math.inf
    fill(subject, [worst_number, bad])
    assert best(subject) == [0]


def test_a_nested_key_is_found():
    subject = manager(keep=1, by="valid/acc")
    subject.register(0, at(0), {"valid": {"acc": 2}})
    subject.register(1, at(1), {"valid": {"acc": 1}})
    assert best(subject) == [0]


def test_a_pending_validation_keeps_a_checkpoint_and_its_end_ranks_again():
    subject = manager(keep=1, by="acc")
    assert subject.register(0, at(0), {"loss": 1}, validation={}) == []
    assert subject.register(1, at(1), {"acc": 0.5}) == []
    assert subject.register(2, at(2), {"acc": 0.4}) == []
    assert [entry.index for entry in subject.pending] == [0]
    assert subject.settle_validation(0, {"acc": 0.9}) == [at(1)]
    assert subject.best_checkpoints == [(at(0), {"loss": 1, "acc": 0.9})]
    assert subject.reported[0].status is ReportedCheckpointStatus.VALIDATED
    assert subject.pending == []


@pytest.mark.parametrize(
    ("timed_out", "status"),
    [
        (False, ReportedCheckpointStatus.VALIDATION_FAILED),
        (True, ReportedCheckpointStatus.VALIDATION_TIMEOUT),
    ],
)
def test_a_failed_validation_leaves_the_metrics_and_lets_the_checkpoint_go(timed_out, status):
    subject = manager(keep=1, by="acc")
    subject.register(0, at(0), {"acc": 1}, validation={})
    assert subject.settle_validation(0, None, timed_out=timed_out) == []
    assert (subject.reported[0].metrics, subject.reported[0].status) == ({"acc": 1}, status)
    assert subject.register(1, at(1), {"acc": 2}) == [at(0)]


def test_a_place_that_is_reported_again_is_never_returned_for_deletion():
    subject = manager(keep=1)
    subject.register(0, at(0), {})
    assert subject.register(1, at(0), {"acc": 1}) == []
    assert [(entry.index, entry.metrics) for entry in subject.registered] == [(1, {"acc": 1})]


def test_the_state_survives_json_under_another_place():
    subject = manager(keep=2, by="acc")
    fill(subject, [1, 3, 2])
    subject.register(3, at(3), {"acc": math.nan}, validation={"rows": 5})
    state = json.loads(
        json.dumps(subject.to_json(lambda checkpoint: checkpoint.path.removeprefix("/run/")))
    )
    assert state["best"] == ["checkpoint_000002", "checkpoint_000001"]
    again = CheckpointManager.from_json(
        state, CheckpointConfig(num_to_keep=1), lambda name: Checkpoint(f"/moved/{name}")
    )
    assert [entry.checkpoint.path for entry in again.registered] == [
        f"/moved/checkpoint_{index:06d}" for index in (1, 2, 3)
    ]
    assert again.pending[0].validation_kwargs == {"rows": 5}
    assert [checkpoint.path[-1] for checkpoint in again._surplus()] == ["1", "2"]


def test_a_foreign_state_is_a_value_error():
    with pytest.raises(ValueError, match="cannot be read"):
        CheckpointManager.from_json({"checkpoints": [{"index": 1}]}, CheckpointConfig(), Checkpoint)


def test_a_score_attribute_is_unused_until_the_metrics_of_a_checkpoint_have_it():
    subject = manager(by="valid/acc")
    assert subject.unused_score_attribute == "valid/acc"
    subject.register(0, at(0), {"acc": 1})
    assert subject.unused_score_attribute == "valid/acc"
    subject.register(1, at(1), {"valid": {"acc": None}})
    assert subject.unused_score_attribute is None
    assert manager().unused_score_attribute is None


def test_a_first_validation_without_the_score_is_an_error_and_stays_pending():
    subject = manager(by="acc")
    subject.register(0, at(0), {"loss": 1}, validation={})
    with pytest.raises(ValueError, match=r"Did you mean 'accu'\?.*'accu', 'loss'"):
        subject.settle_validation(0, {"accu": 1})
    assert [entry.index for entry in subject.pending] == [0]
    subject.settle_validation(0, {"acc": 1})
    subject.register(1, at(1), {"loss": 1}, validation={})
    subject.settle_validation(1, {"accu": 1})
    assert subject.pending == []
