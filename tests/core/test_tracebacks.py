"""Tracebacks: user frames of the worker, then of the driver, without the engine's frames."""

import traceback

import pytest

import syncline
from syncline import settings
from syncline.core import definitions, tracebacks
from tests.core.fake_engine import running_fake_engine

ENGINE_FILE = definitions.__file__


def user_function():
    raise KeyError("missing")


def engine_frames_around(function):
    """Run `function` below a frame whose code is in a file of the engine."""
    namespace = {"function": function}
    exec(compile("def run_in_engine():\n    function()\n", ENGINE_FILE, "exec"), namespace)
    namespace["run_in_engine"]()


def stored_error():
    try:
        engine_frames_around(user_function)
    except KeyError as error:
        return tracebacks.task_error("user_function", error)


def raised_by_get(monkeypatch):
    with running_fake_engine(monkeypatch) as started:
        ref = syncline.put(None)
        started[0].values[ref.id] = tracebacks.raisable(stored_error())
        with pytest.raises(KeyError) as caught:
            syncline.get(ref)
    return "".join(
        traceback.format_exception(type(caught.value), caught.value, caught.value.__traceback__)
    )


def test_the_worker_records_user_frames_only():
    text = stored_error().traceback_str
    assert "in user_function" in text
    assert ENGINE_FILE not in text


def test_full_tracebacks_keep_everything(monkeypatch):
    monkeypatch.setenv("SYNCLINE_FULL_TRACEBACK", "1")
    assert ENGINE_FILE in stored_error().traceback_str
    assert "syncline/core/api.py" in raised_by_get(monkeypatch)


def test_causes_lose_the_engines_frames_too():
    def chained():
        try:
            engine_frames_around(user_function)
        except KeyError as error:
            raise ValueError("because") from error

    with pytest.raises(ValueError) as caught:
        chained()
    text = tracebacks.user_traceback(caught.value)
    assert text.index("in user_function") < text.index("direct cause") < text.rindex("in chained")
    assert ENGINE_FILE not in text


def test_an_error_of_the_engines_own_code_keeps_its_frames():
    with pytest.raises(TypeError) as caught:
        exec(compile("len(3)", ENGINE_FILE, "exec"), {})
    caught.value.__traceback__ = caught.value.__traceback__.tb_next
    assert ENGINE_FILE in tracebacks.user_traceback(caught.value)


def test_errors_raised_by_syncline_are_self_explanatory_unless_user_code_is_involved(monkeypatch):
    def caught(call) -> BaseException:
        with pytest.raises((ValueError, KeyError)) as info:
            call()
        info.value.__traceback__ = (
            info.value.__traceback__.tb_next
        )  # excludes the frame of this test
        return info.value

    monkeypatch.setenv("SYNCLINE_TRAIN_COLLECTIVE_TIMEOUT_S", "soon")
    on_purpose = settings.train_collective_timeout_s
    assert tracebacks.is_self_explanatory(caught(on_purpose))
    assert not tracebacks.is_self_explanatory(caught(lambda: engine_frames_around(user_function)))
    because = caught(on_purpose)
    because.__cause__ = caught(lambda: engine_frames_around(user_function))
    assert not tracebacks.is_self_explanatory(because)
    monkeypatch.setenv("SYNCLINE_FULL_TRACEBACK", "1")
    assert not tracebacks.is_self_explanatory(caught(on_purpose))


def test_get_shows_the_workers_frames_and_then_the_drivers(monkeypatch):
    text = raised_by_get(monkeypatch)
    assert (
        text.index("in user_function") < text.index("direct cause") < text.index("in raised_by_get")
    )
    assert (
        text.count("in user_function()") == 2
    )  # the title of the worker's traceback, and the last line
    assert "RayTaskError(KeyError): KeyError: 'missing'" in text.rstrip().rpartition("\n")[2]


def test_no_frame_of_the_engine_is_shown(monkeypatch):
    package = syncline.__file__.removesuffix("__init__.py")
    shown = [line for line in raised_by_get(monkeypatch).splitlines() if package in line]
    # Python 3.10 keeps the frame of the re-raise.
    assert all("in get" in line for line in shown)
    assert shown == [] or traceback.sys.version_info < (3, 11)


def test_a_refused_call_points_at_the_users_line(monkeypatch):
    with running_fake_engine(monkeypatch), pytest.raises(TypeError) as caught:
        syncline.remote(user_function).remote(1)
    assert traceback.extract_tb(caught.value.__traceback__)[
        -1
    ].line == "syncline.remote(user_function).remote(1)" or (traceback.sys.version_info < (3, 11))
