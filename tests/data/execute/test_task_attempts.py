"""Whether a failed task runs again, and what the program gets otherwise."""

import pytest

from syncline.data.context import DataContext
from syncline.data.execute.data_worker import TaskCodeKey
from syncline.data.execute.driver_queues import CallQueue
from syncline.data.execute.messages import Launch, TaskId
from syncline.data.execute.task_attempts import (
    ActiveTask,
    can_restart,
    crash_error,
    should_retry,
    user_error,
)
from syncline.data.execute.task_run import TaskRequest, task_error
from syncline.exceptions import (
    ActorDiedError,
    ObjectLostError,
    UserCodeException,
    WorkerCrashedError,
)
from tests.data.execute.handmade import actors, mapped, numbers


def active(**state) -> ActiveTask:
    launch = Launch(task=TaskId(1, "task", 4), skip_rows=10)
    request = TaskRequest(number=4, skip_rows=10)
    return ActiveTask(
        launch=launch,
        blocks=(),
        key=TaskCodeKey(1, 1, "task"),
        request=request,
        layout=(),
        needs_store=False,
        **state,
    )


def test_another_attempt_leaves_out_what_was_produced():
    task = active(produced_rows=5, runner="somewhere")
    task.next_attempt()
    assert (task.request.skip_rows, task.produced_rows, task.runner) == (15, 0, None)
    task.produced_rows = 7
    task.next_attempt()
    assert task.request.skip_rows == 22


@pytest.mark.parametrize(
    ("context", "retries", "expected"),
    [
        (DataContext(), 0, False),
        (DataContext(retried_map_errors=True), 0, False),
        (DataContext(retried_map_errors=True, max_map_retries=2), 1, True),
        (DataContext(retried_map_errors=True, max_map_retries=2), 2, False),
        (DataContext(retried_map_errors=[LookupError], max_map_retries=2), 0, True),
        (DataContext(retried_map_errors=[ValueError], max_map_retries=2), 0, False),
    ],
)
def test_errors_of_functions_are_tried_again_as_the_context_says(
    context: DataContext, retries: int, expected: bool
):
    error = task_error("Map(f)", KeyError("x"))
    assert should_retry(active(retries=retries), error, mapped(len), context) is expected


def test_actors_have_a_setting_of_their_own():
    error = task_error("Map(f)", KeyError("x"))
    context = DataContext(actor_task_retry_on_errors=[KeyError])
    assert should_retry(active(retries=2), error, mapped(len, executor=actors()), context)
    assert not should_retry(active(retries=3), error, mapped(len, executor=actors()), context)
    assert not should_retry(active(), error, numbers(1, 1), context)


def test_a_task_survives_three_deaths_but_no_lost_object():
    died = ActorDiedError("It was killed.", pid=7, exit_cause="was killed by SIGKILL")
    assert can_restart(active(crashes=3), died)
    assert not can_restart(active(crashes=4), died)
    error = crash_error(active(crashes=4), died, mapped(len))
    assert isinstance(error, WorkerCrashedError)
    assert "MapBatches(len), task 4, failed 4 times" in str(error)
    assert "the process (pid=7) was killed by SIGKILL. Look for native code" in str(error)
    assert (error.pid, error.exit_cause) == (7, "was killed by SIGKILL")
    lost = ObjectLostError("It is gone.")
    assert not can_restart(active(crashes=1), lost)
    assert (
        str(crash_error(active(crashes=1), lost, mapped(len)))
        == "MapBatches(len), task 4 needs a block that was lost. It is gone."
    )


def test_the_program_gets_an_error_of_both_classes_or_the_original():
    error = task_error("Map(f)", KeyError("x"))
    both = user_error(error, DataContext())
    assert isinstance(both, UserCodeException)
    assert isinstance(both, KeyError)
    assert user_error(error, DataContext(raise_original_map_exception=True)) is error.cause
    other = TypeError("cannot be pickled")
    assert user_error(other, DataContext()) is other


def test_an_inbox_that_is_closed_lets_go_of_everything():
    inbox, done = CallQueue(), []
    inbox.put(lambda: done.append(1))
    inbox.put(lambda: done.append(2))
    inbox.run(None)
    assert done == [1, 2]
    assert not inbox.run_next()
    inbox.put(lambda: done.append(3))
    inbox.close()
    inbox.put(lambda: done.append(4))
    inbox.run(0.01)
    assert not inbox.run_next()
    assert done == [1, 2]
