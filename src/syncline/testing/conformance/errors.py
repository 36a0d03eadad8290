"""Errors of user code, of unpicklable arguments and results, and of dependencies."""

from __future__ import annotations

import sys
import threading
import traceback
from pathlib import Path
from typing import Any

import pytest

import syncline
from syncline.testing.conformance.suite import Suite
from syncline.testing.tasks import count_attempt, fail, get, same
from syncline.testing.waiting import eventually


class CustomError(Exception):
    """An exception whose constructor has two parameters."""

    def __init__(self, code: int, *, detail: str) -> None:
        super().__init__(f"code {code}: {detail}")
        self.code = code
        self.detail = detail


class LockedError(Exception):
    """An exception that cannot be pickled."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.lock = threading.Lock()


@syncline.remote
class Leaving:
    """An actor that leaves on demand."""

    def __init__(self, code: Any = None, log: str = "") -> None:
        if log and count_attempt(log) == 1:
            sys.exit(code)
        self.calls = 0

    def leave(self, code: Any) -> None:
        sys.exit(code)

    def add(self) -> int:
        self.calls += 1
        return self.calls


class Exits(Suite):
    """`sys.exit` in tasks and actors."""

    @pytest.mark.parametrize("code", [0, 3, "last words"])
    def test_exit_in_a_task_is_a_crash(self, code: Any) -> None:
        @syncline.remote(max_retries=0)
        def leave() -> None:
            sys.exit(code)

        with pytest.raises(syncline.exceptions.WorkerCrashedError):
            get(leave.remote())

    def test_exit_in_a_task_is_retried_like_a_crash(self, tmp_path: Path) -> None:
        log = str(tmp_path / "attempts")

        @syncline.remote(max_retries=2)
        def leave_twice() -> int:
            attempt = count_attempt(log)
            if attempt < 3:
                sys.exit(1)
            return attempt

        assert get(leave_twice.remote()) == 3

    def test_exit_in_a_method_ends_the_actor(self) -> None:
        leaving = Leaving.remote()
        assert get(leaving.add.remote()) == 1
        with pytest.raises(syncline.exceptions.ActorDiedError):
            get(leaving.leave.remote(1))
        with pytest.raises(syncline.exceptions.ActorDiedError):
            get(leaving.add.remote())

    def test_exit_in_a_method_restarts_the_actor_if_allowed(self) -> None:
        leaving = Leaving.options(max_restarts=1).remote()
        assert get([leaving.add.remote(), leaving.add.remote()]) == [1, 2]
        with pytest.raises(syncline.exceptions.RayActorError):
            get(leaving.leave.remote(1))

        def again() -> object:
            try:
                return get(leaving.add.remote())
            except syncline.exceptions.ActorUnavailableError:
                return None

        assert eventually(again) == 1

    def test_exit_with_code_zero_is_not_restarted(self) -> None:
        leaving = Leaving.options(max_restarts=1).remote()
        assert get(leaving.add.remote()) == 1
        with pytest.raises(syncline.exceptions.RayActorError):
            get(leaving.leave.remote(0))
        with pytest.raises(syncline.exceptions.ActorDiedError):
            get(leaving.add.remote())

    def test_exit_in_a_constructor_ends_the_actor(self, tmp_path: Path) -> None:
        leaving = Leaving.remote(1, str(tmp_path / "attempts"))
        with pytest.raises(syncline.exceptions.ActorDiedError):
            get(leaving.add.remote())

    def test_exit_in_an_async_method_ends_the_actor(self) -> None:
        @syncline.remote
        class Async:
            async def leave(self) -> None:
                sys.exit(1)

            async def add(self) -> int:
                return 1

        leaving = Async.remote()
        assert get(leaving.add.remote()) == 1
        with pytest.raises(syncline.exceptions.ActorDiedError):
            get(leaving.leave.remote())
        with pytest.raises(syncline.exceptions.ActorDiedError):
            get(leaving.add.remote())


class Errors(Suite):
    """Errors that `get` raises."""

    def test_exception_is_caught_as_itself_and_as_task_error(self) -> None:
        for kind in (
            KeyError,
            LookupError,
            syncline.exceptions.RayTaskError,
            syncline.exceptions.RayError,
        ):
            with pytest.raises(kind, match="missing"):
                get(fail.remote("missing"))

    def test_attributes_of_a_custom_exception_arrive(self) -> None:
        @syncline.remote
        def fail() -> None:
            raise CustomError(7, detail="seven")

        with pytest.raises(CustomError) as caught:
            syncline.get(fail.remote())
        assert (caught.value.code, caught.value.detail) == (7, "seven")
        assert isinstance(caught.value, syncline.exceptions.RayTaskError)
        assert isinstance(caught.value.cause, CustomError)

    def test_exception_class_of_the_program_itself_arrives(self) -> None:
        class Local(ValueError):
            pass

        with pytest.raises(Local, match="local class"):
            get(fail.remote("local class", Local))

    def test_traceback_shows_the_users_frames_and_not_the_engines(self) -> None:
        @syncline.remote
        def outer() -> None:
            exec(
                compile(
                    "def innermost():\n    raise ValueError('deep')\ninnermost()",
                    "user_program.py",
                    "exec",
                ),
                {},
            )

        with pytest.raises(ValueError) as caught:
            syncline.get(outer.remote())
        text = "".join(traceback.format_exception(caught.value))
        assert "innermost" in text
        assert "user_program.py" in text
        assert "core/cluster" not in text
        assert "core/embedded" not in text
        assert "core/inline" not in text

    def test_error_has_the_cause_of_an_exception(self) -> None:
        @syncline.remote
        def fail() -> None:
            try:
                raise OSError("the first")
            except OSError as error:
                raise ValueError("the second") from error

        with pytest.raises(ValueError) as caught:
            syncline.get(fail.remote())
        assert "the first" in "".join(traceback.format_exception(caught.value))

    def test_failed_dependency_fails_its_dependents(self) -> None:
        with pytest.raises(KeyError, match="origin"):
            get(same.remote(same.remote(fail.remote("origin"))))

    def test_error_inside_a_nested_task_propagates(self) -> None:
        @syncline.remote
        def outer() -> None:
            syncline.get(fail.remote("inner"))

        with pytest.raises(KeyError, match="inner"):
            get(outer.remote())

    def test_each_get_raises_anew(self) -> None:
        ref = fail.remote("again")
        for _ in range(3):
            with pytest.raises(KeyError, match="again"):
                get(ref)

    def test_unpicklable_argument_is_named(self) -> None:
        with pytest.raises(TypeError, match=r"lock"):
            same.remote({"inner": threading.Lock()})

    def test_unpicklable_closure_variable_is_named(self) -> None:
        connection = threading.Lock()

        @syncline.remote
        def use() -> object:
            return connection

        with pytest.raises(TypeError, match="connection"):
            use.remote()

    def test_unpicklable_result_is_an_error_of_the_task(self) -> None:
        @syncline.remote
        def make() -> object:
            return threading.Lock()

        with pytest.raises(TypeError, match="lock"):
            syncline.get(make.remote())

    def test_unpicklable_exception_arrives_with_its_text(self) -> None:
        with pytest.raises(syncline.exceptions.RayTaskError, match="the text stays"):
            get(fail.remote("the text stays", LockedError))

    def test_class_that_cannot_be_pickled_is_refused(self) -> None:
        lock = threading.Lock()

        @syncline.remote
        class Holder:
            def use(self) -> object:
                return lock

        with pytest.raises(TypeError, match="lock"):
            Holder.remote()

    def test_stop_iteration_and_timeouts_of_user_code_are_ordinary_errors(self) -> None:
        for kind in (TimeoutError, ConnectionError, FileNotFoundError, AssertionError):
            with pytest.raises(kind, match="ordinary"):
                get(fail.remote("ordinary", kind))
        with pytest.raises(syncline.exceptions.RayTaskError, match="ordinary"):
            get(fail.remote("ordinary", StopIteration))
