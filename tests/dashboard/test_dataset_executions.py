"""Views of recorded executions: passes, states, curves, and invalid lines."""

import copy
import json
import math
import random

import pytest

from syncline.dashboard.dataset_executions import (
    FEW,
    MAX_LINES,
    MAX_PASSES,
    MAX_POINTS,
    ExecutionReader,
)
from syncline.dashboard.operator_views import MAX_NUMBER, MAX_OPERATORS

NAMES = ["ReadParquet", "MapBatches(decode)"]


def beginning(number=0, *, time=1000.0, names=NAMES, **more):
    operators = [
        {"name": name, "inputs": [place - 1] if place else []} for place, name in enumerate(names)
    ]
    return {
        "time": time,
        "dataset": "train",
        "pass": number,
        "epoch": number,
        "operators": operators,
        **more,
    }


def sample(number=0, *, time=1004.0, wall_s=4.0, rows=400, operators=None, **more):
    operators = [{"rows": rows, "busy_s": 1.0, "tasks": 1}] * 2 if operators is None else operators
    line = {
        "time": time,
        "pass": number,
        "wall_s": wall_s,
        "rows": rows,
        "program_waited_s": wall_s,
        "operators": operators,
    }
    return {
        **line,
        "budget_bytes": 1000,
        "held_bytes": 300,
        "peak_bytes": 600,
        "blocks": 4,
        "size_bytes": 50,
        **more,
    }


def viewed(*lines, number=None, now=1010.0, is_live=True):
    taken = ExecutionReader()
    taken.add(lines)
    return taken.view(number, now=now, is_live=is_live)


def test_nothing_is_shown_of_nothing():
    assert (viewed().number, viewed().passes, viewed().operators) == (None, (), ())


def test_a_pass_without_samples_has_its_operators():
    shown = viewed(beginning(pid=5, hostname="node"))
    assert (shown.dataset, shown.process, shown.state) == ("train", "pid 5 on node", "running")
    assert [(each.name, each.inputs, each.level, each.state) for each in shown.operators] == [
        ("ReadParquet", (), 0, "waiting"),
        ("MapBatches(decode)", (0,), 1, "waiting"),
    ]


def test_totals_come_from_the_last_line():
    shown = viewed(beginning(), sample(time=1002.0, wall_s=2.0, rows=10), sample(ended="finished"))
    assert (shown.rows, shown.wall_s, shown.rows_per_s) == (400, 4.0, 100.0)
    assert (shown.held_bytes, shown.peak_bytes, shown.budget_bytes, shown.waited_share) == (
        300,
        600,
        1000,
        1.0,
    )


def test_while_it_runs_rates_are_those_of_the_last_two_lines():
    shown = viewed(beginning(), sample(time=1002.0, wall_s=2.0, rows=10), sample())
    assert shown.rows_per_s == 195.0
    assert [each.rows_per_s for each in shown.operators] == [195.0, 195.0]


@pytest.mark.parametrize(
    ("last", "now", "is_live", "state"),
    [
        ({"ended": "finished"}, 1e9, False, "finished"),
        ({"ended": "stopped"}, 1e9, True, "stopped"),
        ({"ended": "errored", "error": "ValueError: no"}, 1e9, True, "errored"),
        ({"ended": "???"}, 1e9, True, "stopped"),
        ({}, 1010.0, True, "running"),
        ({}, 1010.0, False, "killed"),
        ({}, 2000.0, True, "silent"),
    ],
)
def test_states(last, now, is_live, state):
    shown = viewed(beginning(), sample(**last), now=now, is_live=is_live)
    assert (shown.state, shown.passes[0].state) == (state, state)
    assert shown.error == last.get("error", "")


def test_long_executions_may_be_silent_for_longer():
    lines = beginning(), sample(time=1000.0 + 36_000, wall_s=36_000.0)
    assert viewed(*lines, now=1000.0 + 36_000 + 600).state == "running"


def test_the_latest_pass_is_shown_unless_another_one_is_chosen():
    lines = [
        line
        for number in range(3)
        for line in (beginning(number), sample(number, rows=100 + number, ended="finished"))
    ]
    shown = viewed(*lines)
    assert (shown.number, shown.rows, shown.epoch) == (2, 102, 2)
    assert [(each.number, each.rows, each.state) for each in shown.passes] == [
        (number, 100 + number, "finished") for number in range(3)
    ]
    assert viewed(*lines, number=1).rows == 101
    assert viewed(*lines, number=77).rows == 102


def test_lines_of_passes_that_go_on_at_once_are_kept_apart():
    shown = viewed(beginning(0), beginning(1), sample(1, rows=7), sample(0, rows=9), number=0)
    assert (shown.rows, shown.passes[1].rows) == (9, 7)


def test_curves_are_rates_between_lines_and_memory():
    lines = (
        beginning(),
        sample(time=1002.0, wall_s=2.0, rows=10),
        sample(),
        sample(time=1006.0, wall_s=6.0, rows=390),
    )
    shown = viewed(*lines)
    assert shown.rate_curves["delivered"] == ((1002.0, 1004.0, 1006.0), (5.0, 195.0, 0.0))
    assert set(shown.rate_curves) == {"delivered", *NAMES}
    assert shown.memory_curves["held"] == ((1002.0, 1004.0, 1006.0), (300.0,) * 3)
    assert "budget" in shown.memory_curves


def test_a_budget_that_is_far_away_does_not_flatten_the_curve():
    assert set(viewed(beginning(), sample(budget_bytes=10**9)).memory_curves) == {"held"}


def test_the_latest_pass_has_the_curves_of_all_and_a_chosen_one_its_own():
    lines = []
    for number in range(3):
        began = 1000.0 + 10 * number
        lines += [beginning(number, time=began), sample(number, time=began + 4, ended="finished")]
    assert viewed(*lines).rate_curves["delivered"] == ((1004.0, 1014.0, 1024.0), (100.0,) * 3)
    assert viewed(*lines, number=1).rate_curves["delivered"] == ((1014.0,), (100.0,))


def test_passes_over_another_plan_are_not_in_the_same_curves():
    lines = beginning(0), sample(0), beginning(1, names=["Other"]), sample(1, operators=[{}])
    assert set(viewed(*lines).rate_curves) == {"delivered", "Other"}
    assert len(viewed(*lines).rate_curves["delivered"][0]) == 1


def test_operators_of_one_name_have_a_curve_each():
    shown = viewed(
        beginning(names=["Map", "Map", "delivered"]), sample(operators=[{"rows": 1}] * 3)
    )
    assert len(shown.rate_curves) == 4


def test_many_operators_have_no_curves_of_their_own():
    shown = viewed(beginning(names=[f"Map({number})" for number in range(FEW + 1)]), sample())
    assert set(shown.rate_curves) == {"delivered"}


def test_long_records_are_thinned_and_lines_beyond_the_limit_not_taken():
    lines = (
        sample(time=1000.0 + number, wall_s=float(number), rows=number)
        for number in range(1, MAX_LINES + 500)
    )
    shown = viewed(beginning(), *lines)
    times, _ = shown.rate_curves["delivered"]
    assert len(times) <= MAX_POINTS
    assert list(times) == sorted(times)
    assert shown.rows == MAX_LINES - 1
    assert (
        len(viewed(*(beginning(number) for number in range(2 * MAX_PASSES))).passes) == MAX_PASSES
    )


# -- invalid lines

ODD = [
    None,
    True,
    -1,
    -0.5,
    10**400,
    1e308,
    math.nan,
    math.inf,
    -math.inf,
    "",
    "<script>alert(1)</script>",
    "\x00\ud800",
    [],
    [[]],
    {},
    {"a": []},
]


def _changed(line, random_):
    line = copy.deepcopy(line)
    target = line
    operators = line.get("operators")
    if isinstance(operators, list) and operators and random_.random() < 0.5:
        place = random_.randrange(len(operators))
        if random_.random() < 0.3 or not isinstance(operators[place], dict):
            operators[place] = random_.choice(ODD)
            return line
        target = operators[place] = dict(operators[place])
    key = random_.choice([*target, "ended", "total", "left_out", "error", "pid"])
    if random_.random() < 0.2:
        target.pop(key, None)
    else:
        target[key] = random_.choice(ODD)
    return line


def _is_sound(value):
    if isinstance(value, float):
        return math.isfinite(value) and 0 <= value <= 1e20
    if isinstance(value, int):
        return abs(value) <= MAX_NUMBER
    if isinstance(value, (tuple, list)):
        return all(map(_is_sound, value))
    if isinstance(value, dict):
        return all(map(_is_sound, value.values()))
    return value is None or isinstance(value, str) or _is_sound(vars(value))


@pytest.mark.parametrize("seed", range(40))
def test_lines_of_any_form_give_a_view_of_finite_numbers(seed):
    random_ = random.Random(seed)
    lines = []
    for number in range(20):
        line = (
            beginning(number % 4)
            if random_.random() < 0.3
            else sample(number % 4, time=1000.0 + number, wall_s=random_.random() * 9)
        )
        for _ in range(random_.randrange(4)):
            line = _changed(line, random_)
        lines.append(line)
    for number in (None, 0, 3, 10**6):
        shown = viewed(*lines, number=number, is_live=bool(seed % 2))
        assert _is_sound(shown)
        for operator in shown.operators:
            assert all(each < operator.number for each in operator.inputs)
            assert (
                math.isclose(sum(part.share for part in operator.parts), 1.0) or not operator.parts
            )
        json.dumps(shown, default=vars, allow_nan=False)


def test_more_operators_than_anybody_has_are_cut():
    many = [{"name": "x" * 10_000, "inputs": list(range(10_000))}] * 5000
    shown = viewed({**beginning(), "operators": many}, sample(operators=[{"rows": 1}] * 5000))
    assert len(shown.operators) == MAX_OPERATORS
    assert max(len(each.name) for each in shown.operators) < 1000
    assert max(len(each.inputs) for each in shown.operators) <= MAX_OPERATORS


def test_operators_cannot_read_themselves_or_what_comes_later():
    operators = [
        {"name": "a", "inputs": [0, 1, -1, True, 1.0, "0"]},
        {"name": "b", "inputs": [0, 0, 5]},
    ]
    assert [each.inputs for each in viewed({**beginning(), "operators": operators}).operators] == [
        (),
        (0,),
    ]


@pytest.mark.parametrize("number", [-1, True, 1.5, "0", None, 2**60])
def test_passes_without_a_number_are_passed_over(number):
    assert viewed({**beginning(), "pass": number}).passes == ()


def test_a_line_right_after_another_one_makes_no_peak():
    shown = viewed(
        beginning(),
        sample(rows=10),
        sample(time=1004.001, wall_s=4.001, rows=400, ended="finished"),
    )
    assert shown.rate_curves["delivered"] == ((1004.0,), (2.5,))


def test_headroom_relates_the_time_of_all_tasks_to_the_time_of_the_program():
    operators = [{"rows": 400, "wall_s": 1.0}, {"rows": 400, "wall_s": 3.0}]
    shown = viewed(
        beginning(),
        sample(wall_s=9.0, program_waited_s=1.0, slots=2.0, operators=operators, ended="finished"),
    )
    # 8 s without waiting, against 4 s of tasks on two slots.
    assert shown.headroom == 4.0


@pytest.mark.parametrize(
    "more", [{"slots": 0}, {"operators": [{"rows": 400}]}, {"rows": 0}, {"wall_s": 0.1}]
)
def test_headroom_is_unknown_without_tasks_slots_rows_or_time(more):
    shown = viewed(beginning(), sample(**{"slots": 2.0, "ended": "finished", **more}))
    assert shown.headroom is None
