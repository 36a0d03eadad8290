"""The error tree: messages, grouping, pickling."""

import pickle

import pytest

from syncline.train.errors import (
    ControllerError,
    NCCLHangError,
    PreemptionError,
    PreemptionInfo,
    TrainingFailedError,
    WorkerGroupError,
    worker_failure_message,
)


class TwoArguments(Exception):
    """Cannot be unpickled: pickle would call it with one argument."""

    def __init__(self, first, second):
        super().__init__(f"{first} {second}")


def raised(error):
    try:
        raise error
    except Exception as caught:
        return caught


def test_every_error_is_a_training_failed_error():
    for kind in (WorkerGroupError, NCCLHangError, ControllerError, PreemptionError):
        assert issubclass(kind, TrainingFailedError)
    assert issubclass(NCCLHangError, WorkerGroupError)


def test_equal_errors_are_grouped_under_one_header_with_the_traceback():
    message = worker_failure_message({1: raised(ValueError("bad")), 0: raised(ValueError("bad"))})
    lines = message.splitlines()
    assert lines[:2] == ["Training failed due to worker errors:", "[Rank 0,1 Error Snippet]:"]
    assert message.count("ValueError: bad") == 1
    assert "in raised" in message


def test_the_first_to_fail_stands_on_top_and_others_are_one_line():
    failures = {
        2: raised(ValueError("the cause")),
        0: raised(ConnectionError("peer gone")),
        1: raised(ConnectionError("peer gone")),
    }
    message = worker_failure_message(failures)
    assert message.index("[Rank 2 Error Snippet]:") < message.index("[Rank 0,1 Error Snippet]:")
    assert message.endswith("[Rank 0,1 Error Snippet]:\nConnectionError: peer gone")
    assert message.count("Traceback") == 1


def test_the_workers_own_traceback_is_preferred():
    message = worker_failure_message(
        {0: ValueError("bad")}, {0: 'Traceback …\n  File "train.py", line 3\nValueError: bad\n'}
    )
    assert message.endswith('File "train.py", line 3\nValueError: bad')


@pytest.mark.parametrize("kind", [WorkerGroupError, NCCLHangError])
def test_worker_failures_survive_pickle(kind):
    error = pickle.loads(pickle.dumps(kind("the text", {3: KeyError("x")})))
    assert type(error) is kind
    assert str(error) == "the text"
    assert repr(error.worker_failures) == "{3: KeyError('x')}"


def test_an_exception_that_cannot_be_pickled_is_replaced_by_its_description():
    for broken in (TwoArguments(1, 2), ValueError(lambda: None)):
        error = pickle.loads(pickle.dumps(WorkerGroupError("text", {0: broken})))
        assert isinstance(error.worker_failures[0], RuntimeError)
        assert type(broken).__name__ in str(error.worker_failures[0])


def test_a_controller_error_holds_its_cause():
    error = pickle.loads(pickle.dumps(ControllerError(OSError("disk full"))))
    assert isinstance(error.controller_failure, OSError)
    assert "disk full" in str(error)


def test_a_preemption_error_names_nodes_and_ranks():
    info = PreemptionInfo(deadline_ms=5, preempted_node_to_ranks={"node-b": [2, 3], "node-a": [1]})
    error = pickle.loads(pickle.dumps(PreemptionError(info, drain_timed_out=True)))
    assert (error.preemption_info, error.drain_timed_out) == (info, True)
    assert "node-a, node-b" in str(error)
    assert "[1, 2, 3]" in str(error)


@pytest.mark.parametrize(
    ("info", "ending"),
    [
        (PreemptionInfo(), "no worker had started"),
        (PreemptionInfo(5, {"a": [0]}), "every worker ended"),
    ],
)
def test_a_program_that_was_told_to_end_is_not_said_to_have_lost_machines(info, ending):
    error = pickle.loads(pickle.dumps(PreemptionError(info, program_terminated=True)))
    assert error.program_terminated
    assert "the program received SIGTERM" in str(error)
    assert "machines" not in str(error)
    assert ending in str(error)
