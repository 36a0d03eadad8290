"""Deaths of processes in the words of the program."""

from __future__ import annotations

import pickle

import pytest

from syncline.core.error_messages import actor_died, death_of
from syncline.exceptions import ActorDiedError, ActorOutOfMemoryError, WorkerCrashedError

KILLED = "was killed by SIGKILL (by a person)"


def test_an_error_of_an_actor_becomes_one_of_the_process() -> None:
    message = actor_died("TrainWorker", None, 7, KILLED, max_restarts=0)
    error = ActorDiedError(message, pid=7, exit_cause=KILLED, log_tail="last words")
    described = death_of("Rank 1", error, host="a")
    assert type(described) is ActorDiedError
    assert str(described) == (
        f"Rank 1 {KILLED}. It was process 7 on host a.\nThe last lines of its log:\nlast words"
    )
    assert str(pickle.loads(pickle.dumps(described))) == str(described)
    assert "max_restarts" in str(error)  # it may be in use elsewhere


def test_lack_of_memory_gets_a_remedy() -> None:
    error = ActorOutOfMemoryError("text", pid=7, exit_cause="was killed because memory ran out")
    assert str(death_of("Rank 1", error, less_memory="Use less.")) == (
        "Rank 1 was killed because memory ran out. It was process 7. Use less."
    )


@pytest.mark.parametrize("cause", [None, "killed"])
def test_an_error_without_an_exit_status_keeps_its_text(cause: str | None) -> None:
    error = WorkerCrashedError("Worker exit type: SYSTEM_ERROR", exit_cause=cause)
    assert str(death_of("Rank 1", error, pid=7)) == (
        "Rank 1 died: Worker exit type: SYSTEM_ERROR. It was process 7."
    )


def test_errors_of_the_program_are_returned_as_they_are() -> None:
    error = ValueError("mine")
    assert death_of("Rank 1", error) is error
