"""`inspect_serializability` names the part; refused names say what to use."""

from __future__ import annotations

import importlib
import io
import sys
import threading

import pytest

from syncline import util
from syncline.util import rpdb
from syncline.util.tracing import setup_local_tmp_tracing, tracing_helper


def test_part_that_cannot_be_pickled_is_found() -> None:
    lock = threading.Lock()
    output = io.StringIO()
    ok, parts = util.inspect_serializability({"a": [1, lock]}, name="config", print_file=output)
    (part,) = parts
    assert not ok
    assert part.obj is lock
    assert part.name == 'config["a"][1]'
    assert part.name in output.getvalue()


def test_value_that_can_be_pickled(capsys: pytest.CaptureFixture[str]) -> None:
    assert util.inspect_serializability(lambda: 1) == (True, set())
    assert "can be sent" in capsys.readouterr().out


def test_closure_variable_is_named() -> None:
    lock = threading.Lock()

    def f() -> object:
        return lock

    ok, parts = util.inspect_serializability(f, print_file=io.StringIO())
    assert not ok
    assert "lock" in next(iter(parts)).name


def test_refused_names_say_what_to_use() -> None:
    with pytest.raises(NotImplementedError, match="breakpoint"):
        util.ray_debugpy.set_trace()
    with pytest.raises(NotImplementedError, match="timeline"):
        setup_local_tmp_tracing.setup_tracing()
    assert not tracing_helper.is_tracing_enabled()


@pytest.mark.parametrize(
    ("name", "instead"),
    [("spark", "syncline start"), ("xgboost", "XGBoostTrainer"), ("lightgbm", "LightGBMTrainer")],
)
def test_refused_modules_say_what_to_use(name: str, instead: str) -> None:
    with pytest.raises(ImportError, match=instead):
        importlib.import_module(f"syncline.util.{name}")


def test_debugger_stops_in_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = []
    monkeypatch.setattr("pdb.Pdb.set_trace", lambda self, frame: frames.append(frame))
    rpdb.set_trace()
    assert frames == [sys._getframe()]
    assert util.pdb is rpdb
