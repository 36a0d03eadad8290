"""Outlier analysis of a hang: ranks grouped by stack, and the ranks that the others wait for."""

from __future__ import annotations

import textwrap

import pytest

from syncline.runs.outliers import (
    NO_ANSWER,
    StackGroup,
    hanging_ranks,
    members_text,
    mismatch_text,
    parse_frames,
    ranks_text,
    readable,
    stack_groups,
    stacks_text,
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
LOADER_WITHOUT_INNERMOST_FRAMES = LOADER.replace(
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


def outliers(stacks: dict[str, str]) -> list[str]:
    return [
        member for group in stack_groups(stacks) if group.is_outlier for member in group.members
    ]


def groups(stacks: dict[str, str]) -> list[tuple[str, ...]]:
    return [group.members for group in stack_groups(stacks)]


def test_one_of_eight_in_its_data_loader_is_the_outlier_and_comes_first() -> None:
    stacks = {str(rank): LOADER if rank == 3 else ALL_REDUCE for rank in range(8)}
    found = stack_groups(stacks)
    assert [(group.members, group.is_outlier, group.waits) for group in found] == [
        (("3",), True, False),
        (("0", "1", "2", "4", "5", "6", "7"), False, True),
    ]
    assert found[0].stack == LOADER


def test_of_two_ranks_the_outlier_is_the_one_that_does_not_wait_for_others() -> None:
    for waiting in (ALL_REDUCE, BACKWARD, OWN_BARRIER):
        assert outliers({"0": waiting, "1": LOADER}) == ["1"]
        assert outliers({"0": LOADER, "1": waiting}) == ["0"]


def test_an_operation_that_calls_a_helper_of_torch_waits_for_others() -> None:
    helper = f'''  File "{PACKAGES}/torch/_tensor.py", line 91, in is_complex
    return handle(self)
'''
    assert outliers({"0": ALL_REDUCE + helper, "1": LOADER}) == ["1"]


def test_a_function_of_the_program_that_an_operation_calls_does_not_wait() -> None:
    own = """  File "/home/me/train.py", line 9, in __reduce__
    return slow(self)
"""
    assert outliers({"0": ALL_REDUCE + own, "1": ALL_REDUCE}) == ["0"]


def test_ranks_that_wait_for_others_are_no_outliers() -> None:
    assert outliers({"0": ALL_REDUCE, "1": ALL_REDUCE}) == []
    assert outliers({"0": ALL_REDUCE, "1": BACKWARD}) == []
    assert outliers({"0": LOADER}) == []
    assert stack_groups({}) == []


def test_ranks_in_different_collective_operations_are_distinguished() -> None:
    stacks = {str(rank): ALL_REDUCE for rank in range(4)} | {
        "2": ALL_REDUCE.replace("all_reduce", "broadcast")
    }
    assert outliers(stacks) == ["2"]


def test_the_same_operation_called_from_another_line_of_the_program_is_another_group() -> None:
    stacks = {
        "0": ALL_REDUCE,
        "1": ALL_REDUCE,
        "2": ALL_REDUCE.replace("line 30, in fit", "line 34, in fit"),
    }
    assert outliers(stacks) == ["2"]


def test_innermost_frames_of_the_standard_library_are_not_compared() -> None:
    assert groups({"0": LOADER, "1": LOADER_WITHOUT_INNERMOST_FRAMES}) == [("0", "1")]


def test_line_numbers_within_a_library_are_not_compared() -> None:
    assert groups({"0": BACKWARD, "1": BACKWARD.replace("line 648", "line 651")}) == [("0", "1")]


def test_functions_of_libraries_are_compared_if_the_program_is_at_the_same_line() -> None:
    training = lightning(
        f'  File "{PACKAGES}/torch/distributed/distributed_c10d.py", line 5, in all_reduce\n'
    )
    loading = lightning(
        f'  File "{PACKAGES}/lightning/pytorch/loops/fetchers.py", line 134, in __next__\n'
    )
    stacks = {"0": training, "1": training, "2": loading}
    assert groups(stacks) == [("2",), ("0", "1")]
    assert outliers(stacks) == ["2"]


def test_a_module_that_is_wrapped_for_sharding_does_not_wait_while_it_computes() -> None:
    wrapped = f"""
  File "{PACKAGES}/torch/distributed/fsdp/fully_sharded_data_parallel.py", line 849, in forward
  File "/home/me/model.py", line 7, in forward
  File "{PACKAGES}/torch/nn/modules/linear.py", line 125, in forward"""
    assert not stack_groups({"0": wrapped})[0].waits


def test_a_rank_that_does_not_answer_is_a_group_of_its_own() -> None:
    stacks = {"0": ALL_REDUCE, "1": "(no answer)", "2": ALL_REDUCE}
    assert groups(stacks) == [("1",), ("0", "2")]


def test_stacks_without_source_lines_are_compared_with_those_that_have_them() -> None:
    dump = "\n".join(
        line.replace(", in ", " in ")
        for line in ALL_REDUCE.splitlines()
        if line.lstrip().startswith("File")
    )
    assert groups({"0": ALL_REDUCE, "1": dump}) == [("0", "1")]


def test_groups_are_sorted_with_outliers_first_and_then_by_size() -> None:
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
        'File "/home/me/train.py", line 1, in main\n  import big\n'
        'File "<frozen importlib._bootstrap>", line 9, in _find\n'
        'File "/home/me/big.py", line 2, in <module>\n  sleep()\n',
        "  ",
    )
    shown = readable(stack)
    assert (
        shown == 'File "/home/me/train.py", line 1, in main\n  import big\n'
        'File "/home/me/big.py", line 2, in <module>\n  sleep()'
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


def test_a_rank_outside_of_a_collective_is_the_outlier() -> None:
    assert hanging_ranks({0: "all_reduce", 1: "sleep", 2: "all_reduce"}, 3, waiting=[0]) == (1,)


def test_if_all_ranks_wait_those_outside_of_the_largest_group_are_outliers() -> None:
    assert hanging_ranks({0: "a", 1: "a", 2: "b"}, 3, waiting=[0, 1, 2]) == (2,)


def test_two_ranks_in_two_operations_are_both_outliers() -> None:
    assert hanging_ranks({0: "a", 1: "b"}, 2, waiting=[0, 1]) == (0, 1)


def test_ranks_with_equal_stacks_are_all_outliers() -> None:
    assert hanging_ranks({0: "a", 1: "a"}, 2, waiting=[0, 1]) == (0, 1)


def test_ranks_that_differ_only_in_how_they_wait_have_equal_stacks() -> None:
    def stack(line: int) -> str:
        return f"""  File "/home/me/train.py", line 7, in train
  File "/x/lib/python3.11/site-packages/torch/distributed/c10d.py", line {line}, in all_reduce"""

    assert hanging_ranks({0: stack(1), 1: stack(2), 2: "sleep"}, 3, waiting=[0]) == (2,)


def test_a_rank_without_an_answer_is_the_outlier() -> None:
    assert hanging_ranks({0: "a", 2: "a"}, 3, waiting=[0, 2]) == (1,)
    assert NO_ANSWER in stacks_text({0: "a", 2: "a"}, 3, [1])


def test_stacks_are_listed_with_the_outlier_first_and_marked() -> None:
    stacks = {0: "at all_reduce\n", 1: "at sleep\n", 2: "at all_reduce\n"}
    assert stacks_text(stacks, 3, [1]).splitlines() == [
        "[rank 1]  <-- outlier",
        "  at sleep",
        "[ranks 0, 2]",
        "  at all_reduce",
    ]


def test_no_rank_is_marked_if_all_are_outliers() -> None:
    assert "outlier" not in stacks_text({0: "a", 1: "b"}, 2, [0, 1])


def test_consecutive_ranks_are_written_as_spans() -> None:
    assert ranks_text([4]) == "rank 4"
    assert ranks_text([7, 0, 1, 2, 9, 8]) == "ranks 0-2, 7-9"


BARRIER = ALL_REDUCE.replace("line 30, in fit", "line 33, in fit").replace(
    "in all_reduce", "in barrier"
)


def test_ranks_in_different_operations_are_named_with_their_lines() -> None:
    assert mismatch_text({0: ALL_REDUCE, 1: BARRIER, 2: ALL_REDUCE}) == (
        " Ranks 0, 2 are in all_reduce (train.py:30), rank 1 in barrier (train.py:33)."
    )
    assert mismatch_text({0: OWN_BARRIER, 1: BACKWARD}) == (
        " Rank 0 is in get_checkpoint (train.py:9), rank 1 in backward (train.py:26)."
    )


def test_no_mismatch_is_named_if_a_rank_is_elsewhere_or_all_are_in_the_same_call() -> None:
    assert mismatch_text({0: ALL_REDUCE, 1: LOADER}) == ""
    assert mismatch_text({0: ALL_REDUCE, 1: ALL_REDUCE}) == ""
    assert mismatch_text({0: ALL_REDUCE, 1: NO_ANSWER}) == ""
