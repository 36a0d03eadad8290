"""The line of an error that lists show."""

import pytest

from syncline.runs.causes import MAX_CAUSE_CHARACTERS, cause_line
from syncline.train.errors import ControllerError, worker_failure_message


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        raise error from cause
    except BaseException as caught:
        return caught


def test_the_first_failed_rank_names_the_cause() -> None:
    error = worker_failure_message(
        {1: raised(KeyError("label")), 0: RuntimeError("peer closed the connection")}
    )
    assert error.splitlines()[-1].endswith("peer closed the connection")
    assert cause_line(error) == "KeyError: 'label'"


def test_a_message_of_several_lines_is_cut_after_its_first() -> None:
    error = worker_failure_message({0: raised(ValueError("shapes differ:\n  [3, 4]\ncheck them"))})
    assert cause_line(error) == "ValueError: shapes differ:"


def test_the_last_of_chained_exceptions_counts() -> None:
    error = ControllerError(raised(OSError("disk is full"), raised(KeyError("x"))))
    assert cause_line(str(error)) == "OSError: disk is full"


def test_the_original_exception_of_a_data_loader_counts() -> None:
    text = (
        "RuntimeError: Caught ValueError in DataLoader worker process 0.\n"
        "Original Traceback (most recent call last):\n"
        '  File "data.py", line 3, in __getitem__\n'
        "    raise ValueError(path)\n"
        "ValueError: cat.png\n"
    )
    error = f'Traceback (most recent call last):\n  File "a.py", line 1, in f\n{text}\n'
    assert cause_line(error) == "ValueError: cat.png"


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        ("", ""),
        ("  \n ", ""),
        ("it was interrupted", "it was interrupted"),
        ("Cannot read:\nfile.json\n", "file.json"),
        (
            "syncline.exceptions.ActorDiedError: rank 1 was killed",
            "ActorDiedError: rank 1 was killed",
        ),
        (
            "syncline.exceptions.ActorDiedError: Rank 1 was killed by SIGKILL (x).",
            "Rank 1 was killed by SIGKILL (x).",
        ),
        ("[Rank 0,1 Error Snippet]:\ntorch.OutOfMemoryError", "OutOfMemoryError"),
        ("cannot open\na.b.c", "cannot open"),
        ("Traceback (most recent call last):\n  File x", "File x"),
        ("x" * 1000, "x" * MAX_CAUSE_CHARACTERS),
    ],
)
def test_other_texts(error: str, cause: str) -> None:
    assert cause_line(error) == cause
