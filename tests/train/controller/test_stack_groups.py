"""Which ranks stand together and which is the odd one out, over stacks as real programs have
them.
"""

from __future__ import annotations

import textwrap

import pytest

from syncline.train.controller.outliers import (
    StackGroup,
    members_text,
    parse_frames,
    readable,
    stack_groups,
)

PACKAGES = "/env/lib/python3.11/site-packages"

ALL_REDUCE = f"""
  File "/home/me/train.py", line 41, in main
    fit(model)
  File "/home/me/train.py", line 30, in fit
    dist.all_reduce(loss)
  File "{PACKAGES}/torch/distributed/c10d_logger.py", line 83, in wrapper
    return func(*args, **kwargs)
  File "{PACKAGES}/torch/distributed/distributed_c10d.py", line 3252, in all_reduce
    work.wait()
"""
LOADER = f"""
  File "/home/me/train.py", line 41, in main
    fit(model)
  File "/home/me/train.py", line 22, in fit
    for batch in loader:
  File "{PACKAGES}/torch/utils/data/dataloader.py", line 732, in __next__
    data = self._next_data()
  File "{PACKAGES}/torch/utils/data/dataloader.py", line 1272, in _try_get_data
    data = self._data_queue.get(timeout=timeout)
  File "/usr/lib/python3.11/multiprocessing/queues.py", line 113, in get
    if not self._poll(timeout):
  File "/usr/lib/python3.11/selectors.py", line 415, in select
    fd_event_list = self._selector.poll(timeout)
"""
LOADER_WAITING_OTHERWISE = LOADER.replace(
    "line 1272, in _try_get_data", "line 1280, in _try_get_data"
).partition('  File "/usr/lib')[0]
BACKWARD = f"""
  File "/home/me/train.py", line 26, in fit
    loss.backward()
  File "{PACKAGES}/torch/_tensor.py", line 648, in backward
    torch.autograd.backward(
  File "{PACKAGES}/torch/autograd/graph.py", line 824, in _engine_run_backward
    return Variable._execution_engine.run_backward(
"""
OWN_BARRIER = f"""
  File "/home/me/train.py", line 9, in main
    checkpoint = train.get_checkpoint()
  File "{PACKAGES}/syncline/train/session.py", line 220, in get_checkpoint
    return get_session().get_checkpoint()
  File "{PACKAGES}/syncline/train/workers/worker_session.py", line 71, in counted
    return call(self, *args, **kwargs)
  File "{PACKAGES}/syncline/train/workers/worker_session.py", line 254, in get_checkpoint
    self._heard.wait_for(lambda: not self._uncommitted)
  File "/usr/lib/python3.11/threading.py", line 359, in wait_for
    self.wait(waittime)
"""


def lightning(inner: str) -> str:
    return f"""
  File "/home/me/train.py", line 12, in main
    trainer.fit(model)
  File "{PACKAGES}/lightning/pytorch/trainer/trainer.py", line 560, in fit
    call._call_and_handle_interrupt(self, self._fit_impl)
{inner}"""


def odd(stacks: dict[str, str]) -> list[str]:
    return [
        member for place in stack_groups(stacks) if place.is_outlier for member in place.members
    ]


def groups(stacks: dict[str, str]) -> list[tuple[str, ...]]:
    return [place.members for place in stack_groups(stacks)]


def test_one_of_eight_in_its_data_loader_is_the_odd_one_and_comes_first() -> None:
    stacks = {str(rank): LOADER if rank == 3 else ALL_REDUCE for rank in range(8)}
    found = stack_groups(stacks)
    assert [(place.members, place.is_outlier, place.waits) for place in found] == [
        (("3",), True, False),
        (("0", "1", "2", "4", "5", "6", "7"), False, True),
    ]
    assert found[0].stack == LOADER


def test_of_two_ranks_the_odd_one_is_the_one_that_does_not_wait_for_others() -> None:
    for waiting in (ALL_REDUCE, BACKWARD, OWN_BARRIER):
        assert odd({"0": waiting, "1": LOADER}) == ["1"]
        assert odd({"0": LOADER, "1": waiting}) == ["0"]


def test_nobody_is_odd_where_nothing_tells_them_apart() -> None:
    assert odd({"0": ALL_REDUCE, "1": ALL_REDUCE}) == []
    assert odd({"0": ALL_REDUCE, "1": BACKWARD}) == []
    assert odd({"0": LOADER}) == []
    assert stack_groups({}) == []


def test_ranks_in_different_collective_operations_are_told_apart() -> None:
    stacks = {str(rank): ALL_REDUCE for rank in range(4)} | {
        "2": ALL_REDUCE.replace("all_reduce", "broadcast")
    }
    assert odd(stacks) == ["2"]


def test_the_same_operation_called_from_another_line_of_the_program_is_another_place() -> None:
    stacks = {
        "0": ALL_REDUCE,
        "1": ALL_REDUCE,
        "2": ALL_REDUCE.replace("line 30, in fit", "line 34, in fit"),
    }
    assert odd(stacks) == ["2"]


def test_how_the_standard_library_waits_makes_no_difference() -> None:
    assert groups({"0": LOADER, "1": LOADER_WAITING_OTHERWISE}) == [("0", "1")]


def test_lines_within_a_library_make_no_difference() -> None:
    assert groups({"0": BACKWARD, "1": BACKWARD.replace("line 648", "line 651")}) == [("0", "1")]


def test_functions_of_libraries_do_where_the_program_itself_stands_at_one_line() -> None:
    training = lightning(
        f'  File "{PACKAGES}/torch/distributed/distributed_c10d.py", line 5, in all_reduce\n'
    )
    loading = lightning(
        f'  File "{PACKAGES}/lightning/pytorch/loops/fetchers.py", line 134, in __next__\n'
    )
    stacks = {"0": training, "1": training, "2": loading}
    assert groups(stacks) == [("2",), ("0", "1")]
    assert odd(stacks) == ["2"]


def test_a_module_that_is_wrapped_for_sharding_does_not_wait_while_it_computes() -> None:
    wrapped = f"""
  File "{PACKAGES}/torch/distributed/fsdp/fully_sharded_data_parallel.py", line 849, in forward
  File "/home/me/model.py", line 7, in forward
  File "{PACKAGES}/torch/nn/modules/linear.py", line 125, in forward"""
    assert not stack_groups({"0": wrapped})[0].waits


def test_a_rank_that_does_not_answer_is_a_place_of_its_own() -> None:
    stacks = {"0": ALL_REDUCE, "1": "(no answer)", "2": ALL_REDUCE}
    assert groups(stacks) == [("1",), ("0", "2")]


def test_stacks_without_source_lines_are_compared_with_those_that_have_them() -> None:
    dump = "\n".join(
        line.replace(", in ", " in ")
        for line in ALL_REDUCE.splitlines()
        if line.lstrip().startswith("File")
    )
    assert groups({"0": ALL_REDUCE, "1": dump}) == [("0", "1")]


def test_places_come_odd_ones_first_and_then_by_size() -> None:
    stacks = {str(rank): ALL_REDUCE for rank in range(5)} | {
        "10": LOADER,
        "11": LOADER,
        "9": BACKWARD,
    }
    assert groups(stacks) == [("10", "11"), ("9",), ("0", "1", "2", "3", "4")]


def test_trials_have_names() -> None:
    found: list[StackGroup] = stack_groups({"t_b": LOADER, "t_a": LOADER})
    assert members_text(found[0].members) == "t_a, t_b"


@pytest.mark.parametrize(
    ("members", "text"), [(["3"], "rank 3"), (["2", "0", "1", "5"], "ranks 0-2, 5")]
)
def test_ranks_are_named_in_spans(members: list[str], text: str) -> None:
    assert members_text(members) == text


def test_the_import_system_is_not_shown() -> None:
    stack = textwrap.indent(
        'File "/home/me/train.py", line 1, in main\n  import big\nFile "<frozen importlib._bootstrap>", line 9, in _find\n'
        'File "/home/me/big.py", line 2, in <module>\n  sleep()\n',
        "  ",
    )
    shown = readable(stack)
    assert (
        shown
        == 'File "/home/me/train.py", line 1, in main\n  import big\nFile "/home/me/big.py", line 2, in <module>\n  sleep()'
    )
    assert readable("(no answer)") == "(no answer)"


def test_frames_are_read_with_file_line_and_function() -> None:
    first = parse_frames(ALL_REDUCE)[0]
    assert (first.file, first.line, first.function, first.is_users) == (
        "/home/me/train.py",
        41,
        "main",
        True,
    )
