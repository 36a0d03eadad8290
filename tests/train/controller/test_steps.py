"""Steps of reports: what is done again after a restart has the steps that it had."""

from syncline.train.controller.run_recorder import StepCount


def test_the_first_attempt_counts_from_0():
    steps = StepCount([], 0)
    assert steps.next_step == 0
    assert steps.begin(0, None) == 0
    assert [steps.of(report) for report in range(3)] == [0, 1, 2]


def test_an_attempt_counts_on_from_the_report_of_its_checkpoint():
    steps = StepCount([], 0)
    steps.begin(0, None)
    assert steps.begin(7, 4) == 5
    assert [steps.of(report) for report in (3, 4, 6, 7, 8)] == [3, 4, 6, 5, 6]
    assert steps.begin(12, 8) == 7  # report 8 is step 6


def test_without_a_checkpoint_an_attempt_begins_anew():
    steps = StepCount([], 0)
    steps.begin(0, None)
    assert steps.begin(5, None) == 0
    assert steps.of(6) == 1


def test_another_program_knows_the_steps_of_the_earlier_ones():
    written = [{"first_report": 0, "first_step": 0}, {"first_report": 7, "first_step": 5}]
    steps = StepCount(written, 9)
    assert steps.next_step == 7
    assert steps.begin(9, 8) == 7


def test_the_next_step_is_beyond_the_highest_even_if_the_last_attempt_did_not_come_so_far():
    assert (
        StepCount(
            [{"first_report": 0, "first_step": 0}, {"first_report": 7, "first_step": 5}], 8
        ).next_step
        == 7
    )
    assert (
        StepCount(
            [{"first_report": 0, "first_step": 0}, {"first_report": 7, "first_step": 0}], 9
        ).next_step
        == 7
    )


def test_attempts_without_reports_change_nothing():
    written = [
        {"first_report": 0, "first_step": 0},
        {"first_report": 0, "first_step": 0},
        {"first_report": 4, "first_step": 2},
    ]
    assert StepCount(written, 4).next_step == 4
    assert StepCount(written[:2], 0).next_step == 0


def test_a_record_that_says_nothing_of_steps_counts_reports():
    steps = StepCount([{"number": 1}], 6)
    assert (steps.next_step, steps.of(5)) == (6, 5)
    assert steps.begin(6, 5) == 6
