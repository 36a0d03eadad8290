"""Which loggers a search has, the hooks of their base class, and results as text."""

import numpy as np
import pytest

from syncline.tune.callback import Callback
from syncline.tune.logger import (
    CSVLoggerCallback,
    JsonLoggerCallback,
    LoggerCallback,
    TBXLoggerCallback,
    default_callbacks,
    pretty_print,
)
from tests.tune.logger.logged_trials import Search, make_trial


def test_the_three_loggers_are_added():
    assert [type(one) for one in default_callbacks(None)] == [
        CSVLoggerCallback,
        JsonLoggerCallback,
        TBXLoggerCallback,
    ]


def test_those_that_the_program_gives_stay_and_come_first():
    class Own(JsonLoggerCallback):
        pass

    given = [Own(), Callback()]
    callbacks = default_callbacks(given)
    assert callbacks[:2] == given
    assert [type(one) for one in callbacks[2:]] == [CSVLoggerCallback, TBXLoggerCallback]
    assert len(given) == 2


@pytest.mark.parametrize(("value", "added"), [("1", 0), ("0", 3)])
def test_the_environment_can_turn_them_off(monkeypatch, value, added):
    monkeypatch.setenv("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", value)
    assert len(default_callbacks([])) == added


def test_a_logger_hears_of_each_trial(tmp_path):
    calls = []

    class Own(LoggerCallback):
        def log_trial_start(self, trial):
            calls.append(("start", trial.trial_id))

        def log_trial_save(self, trial):
            calls.append(("save", trial.trial_id))

        def log_trial_result(self, iteration, trial, result):
            calls.append(("result", iteration, result["loss"]))

        def log_trial_end(self, trial, failed=False):
            calls.append(("end", failed))

    trial, search = make_trial(tmp_path), Search(Own())
    search.start(trial)
    search.report(trial, [1])
    search.save(trial)
    search.complete(trial)
    search.fail(trial)
    assert calls == [
        ("start", trial.trial_id),
        ("result", 1, 1.0),
        ("save", trial.trial_id),
        ("end", False),
        ("end", True),
    ]


def test_a_result_as_text():
    result = {
        "loss": np.float32(0.5),
        "config": {"lr": 1},
        "eval": {"b": [1, 2], "a": "x"},
        "done": False,
        "nothing": None,
        "pid": 3,
    }
    assert (
        pretty_print(result, exclude={"pid"})
        == "done: false\neval:\n  a: x\n  b: [1, 2]\nloss: 0.5\n"
    )
