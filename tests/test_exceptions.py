"""Errors of tasks: both classes, attributes, pickling, and messages."""

import ast
import builtins
import importlib.util
import pickle
import threading
from pathlib import Path

import pytest

from syncline import exceptions
from syncline.core import tracebacks
from syncline.exceptions import (
    ActorDiedError,
    GetTimeoutError,
    RayActorError,
    RayError,
    RayTaskError,
    WorkerCrashedError,
)


class Awkward(Exception):
    def __init__(self, code, reason):
        super().__init__(f"{code}: {reason}")
        self.code = code


class Slotted(Exception):
    __slots__ = ("detail",)

    def __init__(self, detail):
        super().__init__(detail)
        self.detail = detail


class Final(Exception):
    def __init_subclass__(cls):
        raise TypeError("no subclasses")


def failed(error, function_name="fail"):
    try:
        raise error
    except BaseException as caught:
        return tracebacks.task_error(function_name, caught)


@pytest.mark.parametrize(
    "cause",
    [
        KeyError("missing"),
        Awkward(3, "bad"),
        Slotted("x"),
        OSError(2, "gone", "file"),
        GetTimeoutError("late"),
    ],
)
@pytest.mark.parametrize("travels", [False, True])
def test_an_error_is_caught_as_itself_and_as_a_task_error(cause, travels):
    error = failed(cause).as_instanceof_cause()
    if travels:
        error = pickle.loads(pickle.dumps(error))
    assert isinstance(error, RayTaskError)
    assert isinstance(error, type(cause))
    assert error.args == cause.args
    assert type(error).__name__ == f"RayTaskError({type(cause).__name__})"
    assert (error.function_name, error.pid) == ("fail", error.pid)
    assert type(error.cause) is type(cause)


def test_attributes_of_the_cause_are_visible():
    assert failed(Awkward(3, "bad")).as_instanceof_cause().code == 3
    assert failed(Slotted("x")).as_instanceof_cause().detail == "x"
    error = failed(OSError(2, "gone", "file")).as_instanceof_cause()
    assert (error.errno, error.strerror, error.filename) == (2, "gone", "file")
    with pytest.raises(UnicodeDecodeError) as caught:
        b"\xff".decode()
    assert failed(caught.value).as_instanceof_cause().start == 0


@pytest.mark.parametrize(
    "cause", [Final("f"), SystemExit(3), KeyboardInterrupt(), StopIteration(1)]
)
def test_classes_that_cannot_be_combined_give_a_task_error_with_a_cause(cause):
    error = failed(cause).as_instanceof_cause()
    assert type(error) is RayTaskError
    assert error.cause is cause


def test_combined_classes_are_created_once():
    assert type(failed(KeyError(1)).as_instanceof_cause()) is type(
        failed(KeyError(2)).as_instanceof_cause()
    )


def test_an_unpicklable_cause_arrives_as_a_stand_in():
    error = pickle.loads(pickle.dumps(failed(ValueError("held", threading.Lock()))))
    assert isinstance(error.as_instanceof_cause(), ValueError)
    assert "ValueError" in error.traceback_str


def test_the_first_error_counts_in_a_chain_of_tasks():
    inner = failed(KeyError("missing"), "inner").as_instanceof_cause()
    outer = failed(inner, "outer")
    assert type(outer.cause) is KeyError
    assert isinstance(outer.as_instanceof_cause(), KeyError)


def test_a_task_error_has_the_frames_of_user_code():
    error = failed(KeyError("missing"))
    assert "in fail(), pid=" in str(error)
    assert "in failed" in str(error)
    assert str(error).rstrip().endswith("KeyError: 'missing'")


def test_a_raised_task_error_names_cause_and_frames_on_one_line():
    raised = tracebacks.raisable(failed(KeyError("missing")))
    assert str(raised).startswith("KeyError: 'missing'  [in fail(), pid=")
    assert "test_exceptions.py:" in str(raised)
    assert "\n" not in str(raised)


def test_errors_about_processes_keep_their_attributes():
    error = ActorDiedError(
        "It died.",
        actor_name="counter",
        pid=12,
        exit_cause="exited with code 3",
        log_tail="last words\n",
    )
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.actor_name, copy.pid, copy.exit_cause, copy.log_tail) == (
        "counter",
        12,
        "exited with code 3",
        "last words\n",
    )
    assert str(copy) == "It died.\nThe last lines of its log:\nlast words"
    assert isinstance(copy, RayActorError)


@pytest.mark.parametrize("name", sorted(set(exceptions.__all__) - {"RayTaskError"}))
def test_every_error_accepts_a_message_and_can_be_pickled(name):
    error = getattr(exceptions, name)("message")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert "message" in str(copy)


def test_relations_between_errors():
    assert issubclass(GetTimeoutError, TimeoutError)
    assert exceptions.SynclineError is RayError
    assert not issubclass(WorkerCrashedError, RayActorError)


def rays_classes():
    """Return Ray's exception classes and their bases, from its source, if it is installed."""
    spec = importlib.util.find_spec("ray")
    if spec is None or spec.origin is None:
        pytest.skip("Ray is not installed")
    source = Path(spec.origin).with_name("exceptions.py").read_text(encoding="utf-8")
    return {
        node.name: [base.id for base in node.bases if isinstance(base, ast.Name)]
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef)
    }


def test_every_exception_of_ray_exists_with_the_same_bases():
    for name, bases in rays_classes().items():
        ours = getattr(exceptions, name)
        for base in bases:
            wanted = getattr(exceptions, base, None) or getattr(builtins, base)
            assert issubclass(ours, wanted), (name, base)


def test_system_errors_have_cause_and_traceback():
    error = exceptions.RaySystemError("lost", "the frames")
    assert (error.client_exc, error.traceback_str, str(error)) == (
        "lost", "the frames", "lost\nthe frames",
    )  # fmt: skip
    assert str(exceptions.RayChannelTimeoutError("late")) == "late"
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy)) == (exceptions.RaySystemError, str(error))


def test_a_taken_name_is_a_value_error_with_its_message():
    error = exceptions.ActorAlreadyExistsError("taken")
    assert isinstance(error, ValueError)
    assert isinstance(error, exceptions.RayError)
    assert error.error_message == "taken"
