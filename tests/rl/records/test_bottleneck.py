"""What limits an algorithm, and what the advice says."""

import pytest

from syncline.rl.records.bottleneck import bottleneck


def split(total=10.0, **seconds):
    return {"total_s": total, **{f"{name}_s": each for name, each in seconds.items()}}


def test_sampling_and_learning_in_turns_make_one_row_that_sums_up():
    found = bottleneck(
        split(environment=2, inference=1, sampling_other=0.5, sampling=4, learning=5, evaluation=0)
    )
    assert list(found.rows) == ["iteration"]
    assert found.rows["iteration"] == pytest.approx(
        {
            "environment": 0.2,
            "inference": 0.1,
            "connectors": 0.05,
            "learning": 0.5,
            "evaluation": 0.0,
            "waiting": 0.05,
            "other": 0.1,
        }
    )
    assert found.limit == "learning"
    assert "more env runners will not help" in found.advice
    assert "50%" in found.advice


def test_runners_beside_the_learner_make_two_rows():
    seconds = split(environment=6, inference=3, sampling=1, learning=4)
    found = bottleneck(seconds, num_env_runners=2)
    assert found.rows["env runners"]["waiting"] == pytest.approx(0.1)
    assert found.rows["learner"]["waiting"] == pytest.approx(0.6)
    assert found.limit == "environment"
    assert "`num_env_runners` (now 2)" in found.advice


def test_a_learner_that_never_idles_limits_although_runners_are_busy():
    found = bottleneck(split(environment=9.5, sampling=0.1, learning=9.9))
    assert found.limit == "learning"


@pytest.mark.parametrize(
    ("seconds", "limit", "words"),
    [
        ({"environment": 8, "sampling": 8}, "environment", "now 0"),
        ({"inference": 8, "sampling": 8}, "inference", "now 4"),
        ({"sampling_other": 8, "sampling": 8}, "connectors", "callbacks"),
        ({"sampling": 8, "environment": 1}, "waiting", "slowest"),
        ({"evaluation": 8}, "evaluation", "evaluation_interval"),
    ],
)
def test_the_largest_part_limits_and_the_advice_names_its_option(seconds, limit, words):
    found = bottleneck(split(**seconds), num_envs=4)
    assert found.limit == limit
    assert words in found.advice


def test_nothing_limits_when_all_parts_are_small():
    seconds = split(environment=2.5, inference=2.5, sampling=5, learning=2.5, evaluation=2.5)
    found = bottleneck(seconds)
    assert found.limit == ""
    assert "environment 25%" in found.advice


def test_records_that_make_no_sense_are_no_error():
    assert bottleneck({}) is None
    assert bottleneck({"total_s": float("nan")}) is None
    found = bottleneck({"total_s": 1.0, "learning_s": "much", "environment_s": -5})
    assert found.limit == ""
