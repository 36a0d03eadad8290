"""Actors: state, order, names, life and death, threads, groups."""

from __future__ import annotations

import sys
import threading
import types
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import syncline
from syncline.testing.conformance.suite import Suite
from syncline.testing.tasks import await_free, count_attempt, get, wait_for
from syncline.testing.waiting import eventually


@syncline.remote
class Counter:
    """A counter, used by most tests."""

    def __init__(self, start: int = 0) -> None:
        self.value = start

    def add(self, n: int = 1) -> int:
        self.value += n
        return self.value

    def fail(self) -> None:
        raise ValueError("on purpose")


ONLY_HERE = """
import syncline

@syncline.remote
class Here:
    def doubled(self, x):
        return 2 * x

    @staticmethod
    def tripled(x):
        return 3 * x
"""


def _name() -> str:
    return f"actor-{uuid.uuid4().hex}"


class Actors(Suite):
    """State and calls."""

    def test_state_stays_between_calls_and_calls_keep_their_order(self) -> None:
        counter = Counter.remote(10)
        assert syncline.get([counter.add.remote(i) for i in range(20)]) == [
            10 + sum(range(i + 1)) for i in range(20)
        ]

    def test_actors_of_a_class_do_not_share_state(self) -> None:
        a, b = Counter.remote(), Counter.remote(start=5)
        assert syncline.get([a.add.remote(), b.add.remote(), a.add.remote()]) == [1, 6, 2]

    def test_reference_as_argument_of_constructor_and_method_is_its_value(self) -> None:
        counter = Counter.remote(syncline.put(3))
        assert syncline.get(counter.add.remote(n=syncline.put(4))) == 7

    def test_result_of_one_actor_is_argument_of_another(self) -> None:
        a, b = Counter.remote(1), Counter.remote(10)
        first = b.add.remote(a.add.remote(2))
        second = b.add.remote(a.add.remote(first))
        assert syncline.get([first, second]) == [10 + 3, 13 + (3 + 13)]

    def test_call_that_waits_for_its_argument_does_not_delay_other_callers(self) -> None:
        @syncline.remote
        def count(counter: Any) -> int:
            value: int = syncline.get(counter.add.remote(1))
            return value

        counter = Counter.remote()
        assert get(counter.add.remote(count.remote(counter))) == 2

    def test_worker_may_run_the_task_that_makes_the_argument_of_its_earlier_call(self) -> None:
        @syncline.remote
        def count(counter: Any) -> int:
            value: int = syncline.get(counter.add.remote(1))
            return value

        @syncline.remote
        def submit(counter: Any) -> list[Any]:
            return [counter.add.remote(count.remote(counter))]

        (later,) = get(submit.remote(Counter.remote()))
        assert get(later) == 2

    def test_call_behind_one_that_never_gets_its_argument_runs(self) -> None:
        @syncline.remote(max_retries=0)
        def fail() -> int:
            raise ValueError("no argument")

        counter = Counter.remote()
        failed = counter.add.remote(fail.remote())
        assert get(counter.add.remote(1)) == 1
        with pytest.raises(ValueError, match="no argument"):
            get(failed)

    def test_error_of_a_method_leaves_the_actor_alive(self) -> None:
        counter = Counter.remote()
        with pytest.raises(ValueError, match="on purpose"):
            syncline.get(counter.fail.remote())
        assert syncline.get(counter.add.remote()) == 1

    def test_method_that_does_not_exist_is_refused_and_near_ones_named(self) -> None:
        counter = Counter.remote()
        with pytest.raises(AttributeError, match="add"):
            counter.ad.remote()

    def test_attribute_of_the_instance_does_not_hide_the_method_of_that_name(self) -> None:
        @syncline.remote
        class Account:
            def __init__(self) -> None:
                self.total = 3
                self.kind = "instance"

            def total(self) -> int:  # type: ignore[no-redef]
                return vars(self)["total"] + 1

            @staticmethod  # type: ignore[no-redef]
            def kind() -> str:
                return "class"

        account = Account.remote()
        assert get([account.total.remote(), account.kind.remote()]) == [4, "class"]

    def test_call_with_wrong_arguments_fails_where_it_is_made(self) -> None:
        with pytest.raises(TypeError):
            Counter.remote(1, 2)
        name = _name()
        counter = Counter.options(name=name).remote()
        for handle in (counter, syncline.get_actor(name)):
            with pytest.raises(TypeError):
                handle.add.remote(1, 2)
            with pytest.raises(TypeError):
                handle.add.remote(m=1)
            with pytest.raises(TypeError):
                handle.fail.remote(1)
        assert get(counter.add.remote(n=2)) == 2

    def test_methods_are_listed_by_dir(self) -> None:
        assert {"add", "fail"} <= set(dir(Counter.remote()))

    def test_class_is_not_called_and_methods_are_not_called_directly(self) -> None:
        with pytest.raises(TypeError, match="remote"):
            Counter()
        counter = Counter.remote()
        with pytest.raises(TypeError, match="remote"):
            counter.add()

    def test_constructor_failure_is_the_error_of_every_call(self) -> None:
        @syncline.remote
        class Broken:
            def __init__(self) -> None:
                raise KeyError("constructor says no")

            def method(self) -> None: ...

        broken = Broken.remote()
        for _ in range(2):
            with pytest.raises(syncline.exceptions.RayActorError, match="constructor says no"):
                syncline.get(broken.method.remote())

    def test_methods_with_several_or_no_results(self) -> None:
        @syncline.remote
        class Giver:
            @syncline.method(num_returns=2)
            def two(self) -> object:
                return 1, 2

            def pair(self) -> object:
                return 3, 4

        giver = Giver.remote()
        assert syncline.get(giver.two.remote()) == [1, 2]
        assert syncline.get(giver.pair.options(num_returns=2).remote()) == [3, 4]
        assert syncline.get(giver.pair.remote()) == (3, 4)
        assert giver.pair.options(num_returns=0).remote() is None

    def test_inherited_static_and_class_methods_can_be_called(self) -> None:
        class Base:
            def inherited(self) -> str:
                return "base"

        @syncline.remote
        class Derived(Base):
            @staticmethod
            def static(x: int) -> int:
                return x

            @classmethod
            def of_class(cls) -> str:
                return cls.__name__

        derived = Derived.remote()
        assert syncline.get(
            [derived.inherited.remote(), derived.static.remote(3), derived.of_class.remote()]
        ) == ["base", 3, "Derived"]

    def test_handle_can_be_passed_to_tasks_and_actors(self) -> None:
        @syncline.remote
        def use(counter: Any) -> object:
            return syncline.get(counter.add.remote(5))

        @syncline.remote
        class Friend:
            def __init__(self, box: list[Any]) -> None:
                self.friend = box[0]

            def use(self) -> object:
                return syncline.get(self.friend.add.remote(1))

        counter = Counter.remote()
        assert syncline.get(use.remote(counter)) == 5
        assert syncline.get(Friend.remote([counter]).use.remote()) == 6

    def test_actor_made_in_a_task_lives_with_its_handle(self) -> None:
        @syncline.remote
        def make() -> object:
            return Counter.remote(7)

        counter = syncline.get(make.remote())
        assert syncline.get(counter.add.remote()) == 8

    def test_class_that_starts_actors_of_itself(self) -> None:
        @syncline.remote(num_cpus=0)
        class Nested:
            def __init__(self, depth: int) -> None:
                self.child = Nested.remote(depth - 1) if depth else None

            def depth(self) -> int:
                return 1 + syncline.get(self.child.depth.remote()) if self.child else 0

            def each(self) -> Iterator[int]:
                yield from range(2)

            def those_of_another(self) -> list[int]:
                return [syncline.get(ref) for ref in Nested.remote(0).each.remote()]

        nested = Nested.remote(2)
        assert syncline.get(nested.depth.remote()) == 2
        assert syncline.get(nested.those_of_another.remote()) == [0, 1]

    def test_method_of_a_handle_can_be_passed(self) -> None:
        @syncline.remote
        def call(box: list[Any]) -> object:
            return syncline.get(box[0].remote(2))

        counter = Counter.remote()
        assert syncline.get(call.remote([counter.add])) == 2

    def test_actor_knows_itself(self) -> None:
        @syncline.remote
        class Knowing:
            def me(self) -> object:
                return syncline.get_runtime_context().current_actor

            def id(self) -> object:
                return syncline.get_runtime_context().get_actor_id()

        actor = Knowing.remote()
        assert syncline.get(actor.me.remote()) == actor
        assert syncline.get(actor.id.remote()) == actor._actor_id.hex()

    def test_call_has_the_name_of_its_options(self) -> None:
        @syncline.remote
        class Named:
            def name(self) -> object:
                return syncline.get_runtime_context().get_task_name()

        named = Named.remote()
        assert get(named.name.options(name="special").remote()) == "special"
        assert str(get(named.name.remote())).endswith("Named.name")

    def test_methods_that_every_actor_has(self) -> None:
        counter = Counter.remote(4)
        assert syncline.get(counter.__ray_ready__.remote()) is True
        assert syncline.get(counter.__ray_call__.remote(lambda actor, n: actor.value + n, 3)) == 7

    def test_method_errors_are_retried_on_request(self, tmp_path: Path) -> None:
        log = str(tmp_path / "attempts")

        @syncline.remote(max_task_retries=2, max_restarts=1)
        class Flaky:
            @syncline.method(retry_exceptions=[ValueError])
            def work(self) -> int:
                attempts = count_attempt(log)
                if attempts < 3:
                    raise ValueError("not yet")
                return attempts

        assert syncline.get(Flaky.remote().work.remote()) == 3

    def test_class_of_a_module_that_only_the_program_has_brings_its_methods(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        module = types.ModuleType(f"only_here_{uuid.uuid4().hex}")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(ONLY_HERE, vars(module))
        actor = module.Here.remote()
        assert get([actor.doubled.remote(2), actor.tripled.remote(2)]) == [4, 6]
        assert module.Here.tripled(3) == 9

    def test_call_in_a_group_that_the_class_lacks_is_refused(self) -> None:
        @syncline.remote(concurrency_groups={"io": 1})
        class Grouped:
            def free(self) -> str:
                return "free"

        grouped = Grouped.remote()
        for method in (grouped.free, Counter.remote().add):
            with pytest.raises(ValueError, match="'oi'"):
                method.options(concurrency_group="oi")
        assert syncline.get(grouped.free.options(concurrency_group="io").remote()) == "free"


class ActorLives(Suite):
    """Names, handles and the end of actors."""

    init_options = {"num_cpus": 4, "resources": {"slot": 1}}

    def test_named_actor_is_found_by_its_name(self) -> None:
        name = _name()
        counter = Counter.options(name=name).remote(3)
        assert syncline.get(syncline.get_actor(name).add.remote()) == 4
        assert syncline.get(counter.add.remote()) == 5

    def test_named_actor_is_found_from_a_task(self) -> None:
        name = _name()
        counter = Counter.options(name=name).remote(1)

        @syncline.remote
        def use() -> object:
            return syncline.get(syncline.get_actor(name).add.remote())

        assert syncline.get(use.remote()) == 2
        syncline.kill(counter)

    def test_unknown_name_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="nobody"):
            syncline.get_actor("nobody")

    def test_name_can_be_taken_once_and_again_after_the_end(self) -> None:
        name = _name()
        first = Counter.options(name=name).remote(1)
        with pytest.raises(ValueError, match=name):
            Counter.options(name=name).remote()
        syncline.kill(first)

        def second() -> object:
            try:
                return Counter.options(name=name).remote(100)
            except ValueError:
                return None

        assert syncline.get(eventually(second).add.remote()) == 101

    def test_get_if_exists_gives_the_same_actor(self) -> None:
        options = {"name": _name(), "get_if_exists": True}
        first = Counter.options(**options).remote(1)
        second = Counter.options(**options).remote(50)
        assert first == second
        assert syncline.get([first.add.remote(), second.add.remote()]) == [2, 3]

    def test_namespaces_keep_names_apart(self) -> None:
        name = _name()
        here = Counter.options(name=name).remote(1)
        there = Counter.options(name=name, namespace="elsewhere").remote(100)
        assert syncline.get(syncline.get_actor(name).add.remote()) == 2
        assert syncline.get(syncline.get_actor(name, namespace="elsewhere").add.remote()) == 101
        with pytest.raises(ValueError):
            syncline.get_actor(name, namespace="nowhere")
        del here, there

    def test_detached_actor_outlives_its_handles(self) -> None:
        name = _name()
        handle = Counter.options(name=name, lifetime="detached").remote(1)
        syncline.get(handle.add.remote())
        del handle
        again = syncline.get_actor(name)
        assert syncline.get(again.add.remote()) == 3
        syncline.kill(again)

    def test_named_actors_are_listed(self) -> None:
        name = _name()
        counter = Counter.options(name=name, namespace="listed").remote()
        syncline.get(counter.__ray_ready__.remote())
        assert {"namespace": "listed", "name": name} in syncline.util.list_named_actors(
            all_namespaces=True
        )
        assert name not in syncline.util.list_named_actors()
        syncline.kill(counter)

    def test_killed_actor_does_not_answer(self) -> None:
        counter = Counter.remote()
        assert syncline.get(counter.add.remote()) == 1
        syncline.kill(counter)
        with pytest.raises(syncline.exceptions.ActorDiedError):
            get(counter.add.remote())

    def test_actor_ends_with_its_last_handle(self) -> None:
        holder = Counter.options(resources={"slot": 1}).remote()
        syncline.get(holder.add.remote())
        assert "slot" not in syncline.available_resources()
        del holder
        await_free("slot", 1)

    def test_calls_made_before_the_last_handle_went_are_answered(self) -> None:
        assert syncline.get([Counter.remote(i).add.remote() for i in range(3)]) == [1, 2, 3]

    def test_exit_actor_ends_it_without_a_restart(self) -> None:
        @syncline.remote(max_restarts=5)
        class Leaver:
            def leave(self) -> None:
                syncline.actor.exit_actor()

            def here(self) -> bool:
                return True

        leaver = Leaver.remote()
        assert syncline.get(leaver.here.remote())
        syncline.wait([leaver.leave.remote()], timeout=60)
        with pytest.raises(syncline.exceptions.ActorDiedError):
            get(leaver.here.remote())

    def test_exit_actor_outside_of_one_is_refused(self) -> None:
        with pytest.raises(RuntimeError, match="actor"):
            syncline.actor.exit_actor()

    def test_ray_terminate_ends_the_actor_after_earlier_calls(self) -> None:
        counter = Counter.remote()
        before = counter.add.remote()
        syncline.wait([counter.__ray_terminate__.remote()], timeout=60)
        assert syncline.get(before) == 1
        with pytest.raises(syncline.exceptions.ActorDiedError):
            get(counter.add.remote())

    def test_kill_that_allows_a_restart_starts_from_the_constructor(self) -> None:
        @syncline.remote(max_restarts=1)
        class Phoenix:
            def __init__(self) -> None:
                self.value = 0

            def add(self) -> int:
                self.value += 1
                return self.value

            def restarted(self) -> bool:
                return bool(syncline.get_runtime_context().was_current_actor_reconstructed)

        phoenix = Phoenix.remote()
        assert syncline.get([phoenix.add.remote(), phoenix.restarted.remote()]) == [1, False]
        syncline.kill(phoenix, no_restart=False)

        def restarted() -> bool:
            try:
                return bool(get(phoenix.restarted.remote()))
            except syncline.exceptions.ActorUnavailableError:
                return False

        eventually(restarted)
        assert syncline.get(phoenix.add.remote()) == 1

    def test_kill_of_something_that_is_no_actor_is_refused(self) -> None:
        with pytest.raises((TypeError, ValueError)):
            syncline.kill(syncline.put(1))


class ThreadedActors(Suite):
    """Concurrent calls in threads."""

    needs = ("parallel",)

    def test_max_concurrency_limits_concurrent_calls(self) -> None:
        @syncline.remote(max_concurrency=2)
        class Meeting:
            def __init__(self) -> None:
                self.barrier = threading.Barrier(2)

            def meet(self) -> int:
                return self.barrier.wait(60)

        meeting = Meeting.remote()
        places = get([meeting.meet.remote() for _ in range(4)])
        assert sorted(places) == [0, 0, 1, 1]

    def test_call_does_not_wait_for_the_arguments_of_an_earlier_one_on_request(
        self, tmp_path: Path
    ) -> None:
        counter = Counter.options(allow_out_of_order_execution=True).remote()
        mark = tmp_path / "mark"
        earlier = counter.__ray_call__.remote(
            lambda actor, mark: actor.add(), wait_for.remote(str(mark))
        )
        assert get(counter.add.remote()) == 1
        mark.touch()
        assert get(earlier) == 2

    def test_calls_of_an_ordinary_actor_never_overlap(self) -> None:
        @syncline.remote
        class Careful:
            def __init__(self) -> None:
                self.lock = threading.Lock()

            def enter(self) -> bool:
                free = self.lock.acquire(blocking=False)
                if free:
                    threading.Event().wait(0.002)
                    self.lock.release()
                return free

        careful = Careful.remote()
        assert all(get([careful.enter.remote() for _ in range(20)]))

    def test_coroutine_that_blocks_its_group_does_not_delay_another_group(
        self, tmp_path: Path
    ) -> None:
        mark = tmp_path / "mark"

        @syncline.remote(concurrency_groups={"io": 1})
        class Grouped:
            async def block(self) -> None:
                eventually(mark.exists)

            @syncline.method(concurrency_group="io")
            async def unblock(self) -> None:
                mark.touch()

        grouped = Grouped.remote()
        blocked = grouped.block.remote()
        get(grouped.unblock.remote())
        get(blocked)

    def test_concurrency_groups_do_not_block_each_other(self) -> None:
        @syncline.remote(concurrency_groups={"io": 1})
        class Grouped:
            def __init__(self) -> None:
                self.go = threading.Event()

            @syncline.method(concurrency_group="io")
            def wait(self) -> bool:
                return self.go.wait(60)

            def release(self) -> None:
                self.go.set()

        grouped = Grouped.remote()
        waiting = grouped.wait.remote()
        get(grouped.release.remote())
        assert get(waiting) is True
