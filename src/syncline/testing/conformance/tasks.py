"""Tasks: arguments, results, options, retries, nesting."""

from __future__ import annotations

import inspect
import time
from pathlib import Path
from typing import Any

import pytest

import syncline
from syncline.testing.conformance.suite import Suite
from syncline.testing.tasks import count_attempt, double, get, one, same, wait_for


class Tasks(Suite):
    """Remote functions."""

    def test_result_of_a_task_is_the_return_value(self) -> None:
        @syncline.remote
        def square(x: int) -> int:
            return x * x

        assert syncline.get([square.remote(i) for i in range(20)]) == [i * i for i in range(20)]

    def test_keyword_arguments_and_defaults_arrive(self) -> None:
        @syncline.remote
        def show(a: int, b: int = 2, *rest: int, c: int, **others: int) -> object:
            return a, b, rest, c, others

        assert syncline.get(show.remote(1, c=3)) == (1, 2, (), 3, {})
        assert syncline.get(show.remote(1, 5, 6, 7, c=3, d=4)) == (1, 5, (6, 7), 3, {"d": 4})

    def test_call_with_wrong_arguments_fails_where_it_is_made(self) -> None:
        with pytest.raises(TypeError):
            same.remote()
        with pytest.raises(TypeError):
            same.remote(1, y=2)

    def test_calling_a_remote_function_directly_is_refused(self) -> None:
        with pytest.raises(TypeError, match="remote"):
            one()

    def test_reference_argument_is_resolved(self) -> None:
        @syncline.remote
        def add(a: int, b: int) -> int:
            return a + b

        assert syncline.get(add.remote(syncline.put(1), b=add.remote(2, 3))) == 6

    def test_reference_inside_an_argument_stays_a_reference(self) -> None:
        @syncline.remote
        def look(box: dict[str, Any]) -> object:
            return isinstance(box["ref"], syncline.ObjectRef), syncline.get(box["ref"])

        assert syncline.get(look.remote({"ref": syncline.put("inside")})) == (True, "inside")

    def test_argument_changed_by_the_task_is_unchanged_for_the_caller(self) -> None:
        @syncline.remote
        def spoil(items: list[int]) -> list[int]:
            items.append(99)
            return items

        mine = [1]
        assert syncline.get(spoil.remote(mine)) == [1, 99]
        assert mine == [1]

    def test_closures_and_globals_travel_with_the_function(self) -> None:
        factor = 3

        @syncline.remote
        def scaled(x: int) -> int:
            return x * factor

        assert syncline.get(scaled.remote(5)) == 15

    def test_several_results_are_several_references(self) -> None:
        @syncline.remote(num_returns=3)
        def three() -> object:
            return 1, "b", [3]

        refs = three.remote()
        assert len(refs) == 3
        assert syncline.get(refs) == [1, "b", [3]]

    def test_wrong_number_of_results_is_an_error_of_every_reference(self) -> None:
        @syncline.remote(num_returns=2)
        def three() -> object:
            return 1, 2, 3

        for ref in three.remote():
            with pytest.raises(ValueError, match="2"):
                syncline.get(ref)

    def test_no_result_gives_no_reference(self, tmp_path: Path) -> None:
        @syncline.remote(num_returns=0)
        def touch(path: str) -> None:
            Path(path).touch()

        assert touch.remote(str(tmp_path / "ran")) is None

    def test_options_replace_those_of_the_decorator_for_one_call(self) -> None:
        @syncline.remote(num_returns=2)
        def pair() -> object:
            return 1, 2

        assert syncline.get(pair.options(num_returns=1).remote()) == (1, 2)
        assert len(pair.remote()) == 2

    def test_unknown_option_is_refused_and_the_near_one_named(self) -> None:
        with pytest.raises((TypeError, ValueError), match="num_cpus"):
            one.options(num_cpu=1)

    def test_signature_and_documentation_of_the_function_stay(self) -> None:
        @syncline.remote
        def documented(x: int) -> int:
            """The docstring."""
            return x

        assert documented.__name__ == "documented"
        assert documented.__doc__ == "The docstring."
        assert list(inspect.signature(documented).parameters) == ["x"]

    def test_tasks_may_submit_tasks_and_return_references(self) -> None:
        @syncline.remote
        def outer(x: int) -> object:
            return double.remote(x)

        assert get(get(outer.remote(1))) == 2

    def test_a_chain_of_tasks_hands_values_on(self) -> None:
        ref = syncline.put(1)
        for _ in range(30):
            ref = double.remote(ref)
        assert get(ref) == 2**30

    def test_function_that_submits_itself_keeps_its_defaults(self) -> None:
        @syncline.remote
        def count_down(n: int, step: int = 1) -> int:
            return 0 if n <= 0 else 1 + syncline.get(count_down.remote(n - step))

        assert syncline.get(count_down.remote(3)) == 3

    def test_lambda_and_instance_can_be_remote(self) -> None:
        assert syncline.get(syncline.remote(lambda x: x + 1).remote(1)) == 2

    def test_runtime_context_has_the_task_name(self) -> None:
        @syncline.remote
        def called() -> object:
            return syncline.get_runtime_context().get_task_name()

        assert syncline.get(called.options(name="special").remote()) == "special"


class NestedTasks(Suite):
    """Nested tasks on one CPU."""

    init_options = {"num_cpus": 1}

    def test_tasks_that_wait_for_tasks_do_not_deadlock(self) -> None:
        @syncline.remote
        def tree(depth: int) -> int:
            if depth == 0:
                return 1
            return sum(syncline.get([tree.remote(depth - 1), tree.remote(depth - 1)]))

        assert syncline.get(tree.remote(5)) == 32

    def test_actor_that_waits_for_tasks_does_not_deadlock(self) -> None:
        @syncline.remote(num_cpus=1)
        class Waiter:
            def ask(self) -> int:
                return int(syncline.get(one.remote()))

        assert get(Waiter.remote().ask.remote()) == 1


class Retries(Suite):
    """Retries of tasks that raise."""

    def _failing_until(self, tmp_path: Path, attempt: int, **options: object) -> object:
        """Return the reference to a task that fails before this attempt."""
        log = tmp_path / "attempts"

        @syncline.remote(**{"max_retries": 3, **options})
        def work() -> int:
            made = count_attempt(log)
            if made < attempt:
                raise ValueError(f"attempt {made}")
            return made

        return work.remote()

    def test_exceptions_are_not_retried_by_default(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="attempt 1"):
            get(self._failing_until(tmp_path, 2))

    def test_retry_exceptions_tries_again(self, tmp_path: Path) -> None:
        assert get(self._failing_until(tmp_path, 3, max_retries=2, retry_exceptions=True)) == 3

    def test_the_last_attempt_gives_the_error(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="attempt 2"):
            get(self._failing_until(tmp_path, 9, max_retries=1, retry_exceptions=True))

    def test_only_listed_exceptions_are_retried(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="attempt 1"):
            get(self._failing_until(tmp_path, 2, retry_exceptions=[KeyError]))
        assert get(self._failing_until(tmp_path, 3, retry_exceptions=[KeyError, ValueError])) == 3

    def test_dependent_of_a_retried_task_sees_only_its_success(self, tmp_path: Path) -> None:
        retried = self._failing_until(tmp_path, 2, retry_exceptions=True)
        assert get(double.remote(retried)) == 4


class ParallelTasks(Suite):
    """Tasks that run concurrently with the program."""

    needs = ("parallel",)
    init_options = {"num_cpus": 2}

    def test_tasks_run_at_the_same_time(self, tmp_path: Path) -> None:
        @syncline.remote
        def meet(mine: str, theirs: str) -> bool:
            Path(mine).touch()
            while not Path(theirs).exists():
                time.sleep(0.005)
            return True

        a, b = str(tmp_path / "a"), str(tmp_path / "b")
        assert get([meet.remote(a, b), meet.remote(b, a)]) == [True, True]

    def test_remote_returns_before_the_task_has_run(self, tmp_path: Path) -> None:
        ref = wait_for.remote(str(tmp_path / "go"))
        ready, waiting = syncline.wait([ref], timeout=0)
        assert (ready, waiting) == ([], [ref])
        (tmp_path / "go").touch()
        assert get(ref)

    def test_more_tasks_than_cpus_all_run(self) -> None:
        @syncline.remote
        def short(x: int) -> int:
            time.sleep(0.001)
            return x

        assert get([short.remote(i) for i in range(50)]) == list(range(50))
