"""Time breakdown of operators, and the bottleneck."""

import math

import pytest

from syncline.dashboard.operator_views import (
    OperatorSample,
    OperatorView,
    TimePart,
    find_bottleneck,
    operator_views,
    plan_of,
    time_parts,
)


def shares(sample, wall_s=10.0, *, has_inputs=True):
    return {
        part.kind: round(part.share, 6)
        for part in time_parts(sample, wall_s, has_inputs=has_inputs)
    }


def test_busy_time_is_shared_out_as_the_time_of_tasks_is():
    sample = OperatorSample(
        tasks=4,
        ended=True,
        busy_s=8.0,
        wall_s=16.0,
        read_s=4.0,
        function_s=8.0,
        waiting_input_s=1.0,
    )
    assert shares(sample) == {
        "reading": 0.2,
        "function": 0.4,
        "other": 0.2,
        "input": 0.1,
        "rest": 0.1,
    }


def test_tasks_that_have_not_come_back_yet_do_other_work():
    assert shares(OperatorSample(running=2, busy_s=10.0)) == {"other": 1.0}


@pytest.mark.parametrize(
    ("queued", "has_inputs", "kind"),
    [(0, True, "input"), (5, True, "room"), (0, False, "room")],
    ids=["nothing", "queued", "reads"],
)
def test_waiting_that_goes_on_is_for_input_or_for_room(queued, has_inputs, kind):
    sample = OperatorSample(tasks=1, busy_s=4.0, wall_s=4.0, function_s=4.0, queued_rows=queued)
    assert shares(sample, has_inputs=has_inputs) == {"function": 0.4, kind: 0.6}


def test_an_operator_without_tasks_has_no_bar():
    assert time_parts(OperatorSample(rows=100, ended=True), 10.0, has_inputs=True) == ()


@pytest.mark.parametrize("wall_s", [0.0, 1e-300, 3.0, 1e15])
def test_parts_that_exceed_the_whole_are_scaled(wall_s):
    sample = OperatorSample(
        tasks=1,
        busy_s=7.0,
        wall_s=5.0,
        read_s=50.0,
        function_s=50.0,
        waiting_input_s=9.0,
        waiting_downstream_s=9.0,
    )
    parts = time_parts(sample, wall_s, has_inputs=True)
    assert parts == () or math.isclose(sum(part.share for part in parts), 1.0)
    assert all(part.share > 0 for part in parts)


def operator(number, busy, work_s=1.0, name=None):
    parts = (TimePart(kind="other", share=1.0),)
    return OperatorView(
        number=number, name=name or f"op{number}", busy_share=busy, work_s=work_s, parts=parts
    )


def test_the_operator_that_is_busy_while_others_wait_limits():
    number, said = find_bottleneck(
        [operator(0, 0.3), operator(1, 0.98, name="map(decode)"), operator(2, 0.1)],
        1.0,
        has_rows=True,
    )
    assert (number, said) == (
        1,
        "map(decode) is the bottleneck: it is busy 98 % of the time while others wait.",
    )


def test_an_operator_alone_limits_without_others():
    assert find_bottleneck([operator(0, 0.9)], 1.0, has_rows=True) == (
        0,
        "op0 is the bottleneck: it is busy 90 % of the time.",
    )


def test_of_two_that_are_busy_all_the_time_the_one_with_more_work_limits():
    number, said = find_bottleneck(
        [operator(0, 0.99, 3.0), operator(1, 0.95, 9.0)], 1.0, has_rows=True
    )
    assert number == 1
    assert said == (
        "op1 is the bottleneck: it is busy 95 % of the time, and its tasks take 75 % of "
        "the time of all tasks."
    )


def test_a_program_that_hardly_waits_limits():
    number, said = find_bottleneck([operator(0, 0.99)], 0.05, has_rows=True)
    assert number is None
    assert said.startswith("The program is the bottleneck: it waits for rows only 5 % of the time")


def test_before_the_first_row_the_program_limits_nothing():
    assert find_bottleneck([operator(0, 0.99)], 0.05, has_rows=False)[0] == 0


def test_where_nobody_is_busy_nobody_limits():
    number, said = find_bottleneck([operator(0, 0.1), operator(1, 0.2)], 0.9, has_rows=True)
    assert number is None
    assert said.startswith("No operator is the bottleneck")


def test_nothing_is_said_of_no_time():
    assert find_bottleneck([], None, has_rows=False) == (None, "")


@pytest.mark.parametrize(
    ("sample", "is_over", "state"),
    [
        (OperatorSample(), False, "waiting"),
        (OperatorSample(running=1), False, "running"),
        (OperatorSample(rows=5), False, "passing"),
        (OperatorSample(tasks=2, rows=5), False, "waiting"),
        (OperatorSample(running=1), True, "stopped"),
        (OperatorSample(ended=True, running=1), False, "finished"),
    ],
)
def test_states_of_operators(sample, is_over, state):
    plan = plan_of({"operators": [{"name": "a"}]})
    (shown,) = operator_views(plan, [sample], [], 1.0, 1.0, is_over=is_over)
    assert shown.state == state


def test_operators_stand_one_column_after_the_last_of_their_inputs():
    inputs = [[], [0], [], [1, 2], [3]]
    assert plan_of({"operators": [{"name": "x", "inputs": each} for each in inputs]}).levels == (
        0,
        1,
        0,
        2,
        3,
    )
