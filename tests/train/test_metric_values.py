"""Which values may be reported, and into what they are turned."""

import json
import math
import threading

import numpy as np
import pytest

from syncline.train.metric_values import check_score, clean, flatten, lookup, score, select


def test_numpy_scalars_become_python_numbers():
    cleaned = clean(
        {
            "a": np.float32(0.5),
            "b": np.int64(3),
            "c": np.bool_(True),
            "d": np.array(2.5),
            "e": {"f": [np.float64(1)]},
        }
    )
    assert cleaned == {"a": 0.5, "b": 3, "c": True, "d": 2.5, "e": {"f": [1.0]}}
    assert [type(cleaned[key]) for key in "abcd"] == [float, int, bool, float]
    assert type(cleaned["e"]["f"][0]) is float
    json.dumps(cleaned)


def test_keys_become_strings_and_the_input_stays_as_it_was():
    metrics = {1: {2: 3}}
    assert clean(metrics) == {"1": {"2": 3}}
    assert metrics == {1: {2: 3}}


def test_arrays_and_lists_are_copied():
    metrics = {"array": np.zeros(2), "list": [1]}
    cleaned = clean(metrics)
    metrics["array"][:] = 5
    metrics["list"][0] = 5
    assert cleaned["array"].tolist() == [0, 0]
    assert cleaned["list"] == [1]


def test_strings_none_and_tuples_pass():
    assert clean({"a": "x", "b": None, "c": (1, 2)}) == {"a": "x", "b": None, "c": (1, 2)}


@pytest.mark.parametrize("metrics", [None, 3, [("a", 1)], "loss"])
def test_anything_but_a_dictionary_is_a_type_error(metrics):
    with pytest.raises(TypeError, match=type(metrics).__name__):
        clean(metrics)


def test_a_tensor_is_refused_with_its_key_and_the_remedy():
    torch = pytest.importorskip("torch")
    with pytest.raises(
        ValueError, match=r"'loss' is a torch\.Tensor of shape \(\) on cpu.*`loss\.item\(\)`"
    ):
        clean({"loss": torch.tensor(1.0)})
    with pytest.raises(ValueError, match=r"'logits'.*\(2, 3\).*tolist"):
        clean({"logits": torch.zeros(2, 3)})
    with pytest.raises(ValueError, match=r"'all\[1\]'"):
        clean({"all": [1, torch.zeros(2)]})


def test_modules_and_state_dicts_are_refused():
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(2, 2)
    with pytest.raises(ValueError, match="'model'.*checkpoint"):
        clean({"model": model})
    with pytest.raises(ValueError, match="'state/weight'.*checkpoint"):
        clean({"state": model.state_dict()})


def test_what_cannot_be_pickled_is_refused_with_its_key():
    with pytest.raises(ValueError, match=r"'state/guards\[1\]' is a lock.*cannot be sent"):
        clean({"state": {"guards": [1, threading.Lock()]}})


def test_flatten_joins_keys():
    assert flatten({"a": {"b": 1, "c": {"d": 2}}, "e": 3, "f": {}}) == {
        "a/b": 1,
        "a/c/d": 2,
        "e": 3,
        "f": {},
    }


def test_lookup_finds_nested_values_and_prefers_the_literal_key():
    assert lookup({"a": {"b": 1}}, "a/b") == 1
    assert lookup({"a": {"b": 1}, "a/b": 2}, "a/b") == 2
    assert lookup({"a": 1}, "a/b") is None
    assert lookup({}, "a") is None


def test_score_is_higher_for_better_and_none_for_what_is_no_number():
    assert score({"x": 2}, "x", "max") == 2
    assert score({"x": 2}, "x", "min") == -2
    assert score({"x": math.nan}, "x", "max") is None
    assert score({"x": "high"}, "x", "max") is None
    assert score({"x": 10**400}, "x", "max") is None
    assert score({}, "x", "max") is None


@pytest.mark.parametrize(
    ("wanted", "selected"),
    [
        (None, {"train-loss": 1, "valid-loss": 2}),
        ("train-loss", {"train-loss": 1}),
        (["valid-loss"], {"valid-loss": 2}),
        ({"loss": "valid-loss"}, {"loss": 2}),
    ],
)
def test_select_takes_names_or_new_names(wanted, selected):
    assert select({"train-loss": 1, "valid-loss": 2}, wanted) == selected


def test_select_says_which_names_there_are():
    with pytest.raises(KeyError, match=r"auc was not logged.*train-loss"):
        select({"train-loss": 1}, {"score": "auc"})


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ({"epoch": 1, "loss": 0.5}, r"Did you mean 'loss'\? Its metrics: 'epoch', 'loss'\."),
        ({}, r"Its metrics: none\."),
        ({"lss": "high"}, "the value 'high'"),
    ],
)
def test_a_checkpoint_that_cannot_be_ranked_is_an_error(metrics, message):
    with pytest.raises(ValueError, match=f"checkpoint_score_attribute='lss'.*{message}"):
        check_score(metrics, "lss")


@pytest.mark.parametrize("metrics", [{"a": {"b": 1}}, {"a/b": None}, {"a": {"b": math.nan}}])
def test_a_checkpoint_without_a_value_for_now_can_be_ranked(metrics):
    check_score(metrics, "a/b")
