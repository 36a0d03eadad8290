"""Where a training function is: only its own frames."""

from __future__ import annotations

import threading

from syncline.testing.waiting import eventually
from syncline.train.workers import stacks
from syncline.train.workers.worker import TrainWorker


def test_a_stack_begins_at_the_training_function() -> None:
    held = threading.Lock()
    held.acquire()
    waits = threading.Event()

    def train() -> None:
        waits.set()
        held.acquire()

    thread = threading.Thread(target=_as_a_worker_does(train), daemon=True)
    thread.start()
    eventually(waits.is_set)
    text = stacks.of_thread(thread)
    held.release()
    assert text.lstrip().startswith("File")
    assert "in train" in text.splitlines()[0]
    assert "threading.py" not in text.splitlines()[0]


def _as_a_worker_does(function: object) -> object:
    """A function of the name and the file of the one that calls training functions."""
    code = compile("def _train():\n    function()", TrainWorker._train.__code__.co_filename, "exec")
    names = {"function": function}
    exec(code, names)
    return names["_train"]


def test_a_thread_that_does_not_run_is_told_so() -> None:
    assert stacks.of_thread(None) == "(its training function does not run)"


def test_of_a_dump_the_training_thread_is_shown_outermost_frame_first() -> None:
    worker = TrainWorker._train.__code__.co_filename
    dump = f"""Thread 0x1 (most recent call first):
  File "threading.py", line 327 in wait

Thread 0x2 (most recent call first):
  File "re.py", line 166 in match
  File "script.py", line 5 in train
  File "{worker}", line 121 in _train
  File "threading.py", line 982 in run

Current thread 0x3 (most recent call first):
  File "reactor.py", line 86 in turn"""
    assert stacks.of_dump(dump).splitlines() == [
        '  File "script.py", line 5 in train',
        '  File "re.py", line 166 in match',
    ]


def test_a_dump_without_a_training_thread_is_shown_whole() -> None:
    assert (
        stacks.of_dump("Thread 0x1\n  File x, line 1 in f") == "Thread 0x1\n  File x, line 1 in f"
    )
