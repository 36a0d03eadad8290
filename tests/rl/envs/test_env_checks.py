"""Checks of observations, rewards and flags against spaces."""

import re

import numpy as np
import pytest
from gymnasium import spaces

from syncline.rl.envs.checks import mismatch, not_finite, out_of_bounds, reset_problem, step_problem

BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)
NESTED = spaces.Dict({"a": BOX, "b": spaces.Tuple([spaces.Discrete(3), spaces.MultiBinary(2)])})


@pytest.mark.parametrize(
    ("space", "value"),
    [
        (BOX, np.zeros(2, np.float32)),
        (BOX, np.zeros(2, np.float64)),
        (BOX, [0, 1]),
        (BOX, np.array([5.0, 0.0])),
        (spaces.Box(0, 255, (1,), np.uint8), np.array([7], np.int64)),
        (spaces.Discrete(3), 2),
        (spaces.Discrete(3, start=-1), -1),
        (spaces.Discrete(3), np.array(1)),
        (spaces.MultiDiscrete([2, 3]), [1, 2]),
        (NESTED, {"a": np.zeros(2), "b": (1, [0, 1])}),
        (spaces.Text(5), "ab"),
    ],
)
def test_values_that_fit(space, value):
    assert mismatch(space, value) is None


@pytest.mark.parametrize(
    ("space", "value", "message"),
    [
        (BOX, np.zeros(3), r"observation has the shape \(3,\), but the space has \(2,\)"),
        (BOX, np.array([0.0, np.nan]), r"observation\[1\] is nan"),
        (BOX, np.array([np.inf, 0.0]), r"observation\[0\] is inf"),
        (BOX, None, "shape"),
        (spaces.Box(0, 255, (1,), np.uint8), np.array([0.5]), "dtype float64.* uint8"),
        (spaces.Discrete(3), 3, "observation is 3, .* from 0 to 2"),
        (spaces.Discrete(3), 1.0, "takes one integer"),
        (spaces.MultiBinary(2), [0, 2], "only 0 and 1"),
        (spaces.MultiDiscrete([2, 3]), [0, 3], "MultiDiscrete"),
        (NESTED, {"a": np.zeros(2)}, r"lacks the keys \['b'\]"),
        (NESTED, {"a": np.zeros(2), "b": (0, [0, 0]), "c": 1}, r"has the keys \['c'\]"),
        (NESTED, {"a": np.zeros(2), "b": (3, [0, 0])}, r"observation\['b'\]\[0\] is 3"),
        (NESTED, {"a": np.zeros(2), "b": (0,)}, "Tuple of 2"),
        (NESTED, 5, "Dict with"),
        (spaces.Text(5), "abcdefgh", "not in the space"),
    ],
)
def test_values_that_do_not_fit(space, value, message):
    problem = mismatch(space, value)
    assert problem is not None
    assert re.search(message, problem), problem


def test_bounds_are_reported_apart():
    assert out_of_bounds(NESTED, {"a": np.zeros(2), "b": (1, [0, 1])}) is None
    found = out_of_bounds(NESTED, {"a": np.array([0.0, 1.5]), "b": (1, [0, 1])})
    assert found == "observation['a'][1] is 1.5, outside of [-1.0, 1.0]"


def test_results_of_step_and_reset():
    assert step_problem((0, 1.0, False, np.bool_(True), {})) is None
    assert step_problem((0, np.array([1.0]), 0, 1, {})) is None
    assert "tuple of 4" in (step_problem((0, 1.0, False, {})) or "")
    assert "reward is None" in (step_problem((0, None, False, False, {})) or "")
    assert "reward is nan" in (step_problem((0, float("nan"), False, False, {})) or "")
    assert "truncated is None" in (step_problem((0, 1.0, False, None, {})) or "")
    assert "info is None" in (step_problem((0, 1.0, False, False, None)) or "")
    assert reset_problem((0, {})) is None
    assert "with a dict as info" in (reset_problem(np.zeros(2)) or "")


def test_not_finite_names_step_environment_and_element():
    column = {"x": np.zeros((4, 3, 2), np.float32), "y": (np.zeros((4, 3), np.int64),)}
    assert not_finite(column) is None
    column["x"][2, 1, 0] = np.nan
    assert not_finite(column) == "observation['x'][0] of environment 1 at step 2 is nan"
    assert not_finite(np.array([[1.0, -np.inf]]), "reward") == (
        "reward of environment 1 at step 0 is -inf"
    )
    assert not_finite(np.full((2, 2), 3e38, np.float32)) is None, "the sum overflows only float32"
