"""Texts about failed jobs."""

from syncline.launcher.failure_text import event_texts, failure_text, last_lines, traceback_of
from syncline.launcher.messages import Failure

TRACE = """Traceback (most recent call last):
  File "/a/train.py", line 9, in <module>
    main()
  File "/a/train.py", line 5, in main
    raise ValueError("bad batch")
ValueError: bad batch"""


def failure(rank: int, exitcode: int, *, time: float = 0.0, traceback: str = "") -> Failure:
    return Failure(
        rank=rank,
        local_rank=rank,
        pid=100 + rank,
        exitcode=exitcode,
        time=time,
        traceback=traceback,
    )


def test_first_failure_comes_first_and_stopped_ranks_last():
    failures = [failure(0, -15, time=1.0), failure(1, 1, time=3.0), failure(2, -9, time=2.0)]
    text = failure_text("train.py", failures, {1: f"epoch 1\n{TRACE}\n"})
    lines = text.splitlines()
    assert lines[0].startswith("train.py failed: rank 2 (pid=102) was killed by SIGKILL")
    assert lines[1] == "rank 1 (pid=101) exited with code 1"
    assert lines[2] == "rank 0 was stopped"
    assert lines[3] == "Rank 1:"
    assert lines[-1] == "  ValueError: bad batch"


def test_recorded_traceback_wins_over_output():
    text = failure_text("x.py", [failure(0, 1, traceback=TRACE)], {0: "KeyError: other"})
    assert "ValueError: bad batch" in text
    assert "KeyError" not in text


def test_rank_that_was_terminated_from_outside_is_the_cause():
    text = failure_text("x.py", [failure(0, -15), failure(1, -15)], {})
    assert text.splitlines()[0].startswith("x.py failed: rank 0 (pid=100) was killed by SIGTERM")


def test_many_failures_are_counted():
    text = failure_text("x.py", [failure(rank, 1) for rank in range(9)], {})
    assert "5 more ranks failed" in text


def test_last_traceback_ends_with_its_error():
    output = f"{TRACE}\nlater\n{TRACE.replace('bad', 'worse')}\nexiting\n"
    assert traceback_of(output).splitlines()[-1] == "ValueError: worse batch"
    assert traceback_of("no error") == ""


def test_long_tracebacks_are_cut_at_the_front():
    frames = "".join(f'  File "a.py", line {n}, in f\n    g()\n' for n in range(20))
    text = last_lines(f"Traceback (most recent call last):\n{frames}ValueError: end\n")
    assert text.startswith("…")
    assert text.endswith("ValueError: end")


def test_event_has_causes_and_tracebacks_of_failed_ranks_only():
    texts = event_texts([failure(0, -15), failure(1, 1)], {0: TRACE, 1: TRACE})
    assert texts == {"ranks": {"1": "exited with code 1"}, "tracebacks": {"1": TRACE}}
