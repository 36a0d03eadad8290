"""`get`, `put`, `wait` and others: calls of the engine, and refused arguments."""

import asyncio
import json

import pytest

import syncline
from syncline.core import api
from syncline.core.engine import RuntimeInfo
from tests.core.fake_engine import running_fake_engine


@pytest.fixture
def engine(monkeypatch):
    with running_fake_engine(monkeypatch) as started:
        syncline.init()
        yield started[0]


class Worker:
    def work(self): ...


def test_get_of_one_and_of_many(engine):
    first, second = syncline.put(1), syncline.put(2)
    assert syncline.get(first) == 1
    assert syncline.get([first, second], timeout=3) == [1, 2]
    assert engine.calls[-1] == ("get", [first.id, second.id], 3)
    assert syncline.get([]) == []


def test_put_between_gpus_is_refused_with_advice(engine):
    with pytest.raises(ValueError, match=r"torch\.distributed"):
        syncline.put(1, _tensor_transport="nixl")
    assert syncline.get(syncline.put(1, _owner=None, _tensor_transport="object_store")) == 1


def test_get_returns_a_generator_unchanged(engine):
    generator = syncline.ObjectRefGenerator(5)
    assert syncline.get(generator) is generator


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3, "got a int .*needs no `get`"),
        ({"a": 1}, "pass a list of the references"),
        ([1], "number 0 of the list"),
        (syncline.remote(lambda: 1), r"call `.remote\(...\)` on it"),
    ],
)
def test_get_of_a_non_reference_names_the_remedy(engine, value, message):
    with pytest.raises(TypeError, match=message):
        syncline.get(value)
    with pytest.raises(ValueError):
        syncline.get(value)


def test_get_of_an_actor_names_the_remedy(engine):
    with pytest.raises(TypeError, match="call a method of the actor"):
        syncline.get(syncline.remote(Worker).remote())


@pytest.mark.parametrize(
    ("timeout", "error"),
    [(-1, ValueError), ("1", TypeError), (True, TypeError), (float("nan"), ValueError)],
)
def test_impossible_timeouts_are_refused(engine, timeout, error):
    ref = syncline.put(1)
    with pytest.raises(error, match="timeout"):
        syncline.get(ref, timeout=timeout)
    with pytest.raises(error, match="timeout"):
        syncline.wait([ref], timeout=timeout)


def test_put_refuses_references(engine):
    with pytest.raises(TypeError, match="put a list around it"):
        syncline.put(syncline.put(1))


def test_wait_passes_its_arguments_to_the_engine(engine):
    refs = [syncline.put(i) for i in range(3)]
    assert syncline.wait(refs, num_returns=2, timeout=1, fetch_local=False) == (refs[:2], refs[2:])
    assert engine.calls[-1] == ("wait", 2, 1, False)
    assert syncline.wait([]) == ([], [])


def test_wait_refuses_what_ray_refuses(engine):
    ref = syncline.put(1)
    with pytest.raises(TypeError, match=r"wait\(\[ref\]\)"):
        syncline.wait(ref)
    with pytest.raises(TypeError, match="number 1"):
        syncline.wait([ref, 3])
    with pytest.raises(ValueError, match="given twice"):
        syncline.wait([ref, ref])
    for num_returns in (0, 2):
        with pytest.raises(ValueError, match="give 1 to 1"):
            syncline.wait([ref], num_returns=num_returns)


def test_cancel_and_kill(engine):
    ref, actor = syncline.put(1), syncline.remote(Worker).remote()
    syncline.cancel(ref, force=True)
    syncline.kill(actor, no_restart=False)
    assert engine.calls[-2:] == [
        ("cancel", ref.id, True, True),
        ("kill", int(actor._actor_id), False),
    ]
    with pytest.raises(TypeError, match="`.remote\\(\\)` returned"):
        syncline.cancel(actor)
    with pytest.raises(ValueError, match="`cancel` a task"):
        syncline.kill(ref)


def test_get_actor(engine):
    assert syncline.get_actor("x")._actor_id == 99
    with pytest.raises(ValueError, match="name"):
        syncline.get_actor("")


def test_facts_about_the_machine(engine, tmp_path):
    assert (
        syncline.nodes()[0]["NodeID"],
        syncline.cluster_resources(),
        syncline.available_resources(),
    ) == ("n1", {"CPU": 4}, {"CPU": 3})
    assert syncline.timeline() == [{"name": "f"}]
    syncline.timeline(tmp_path / "trace.json")
    assert json.loads((tmp_path / "trace.json").read_text()) == [{"name": "f"}]


def test_gpu_indices_are_integers(engine):
    engine.info = RuntimeInfo(
        job_id="1", node_id="n", worker_id="w", namespace="d", gpu_ids=("0", "MIG-1")
    )
    assert syncline.get_gpu_ids() == [0, "MIG-1"]
    assert syncline.get_runtime_context().get_accelerator_ids() == {"GPU": ["0", "MIG-1"]}


def test_the_runtime_context_of_the_program(engine):
    context = syncline.get_runtime_context()
    assert (
        context.get_job_id(),
        context.get_node_id(),
        context.get_worker_id(),
        context.namespace,
    ) == ("01", "n1", "w1", "default")
    assert (
        context.get_task_id(),
        context.get_actor_id(),
        context.get_actor_name(),
        context.get_placement_group_id(),
    ) == (None,) * 4
    assert context.get_runtime_env_string() == "{}"
    for ask in (
        lambda: context.current_actor,
        lambda: context.was_current_actor_reconstructed,
        context.get_assigned_resources,
    ):
        with pytest.raises(RuntimeError):
            ask()


def test_ids_of_the_runtime_context_as_objects(engine):
    engine.info = RuntimeInfo(
        job_id="01", node_id="aa", worker_id="bb", namespace="d", task_id="cc", actor_id="dd",
        placement_group_id=7, captures_child_tasks=False,
    )  # fmt: skip
    context = syncline.get_runtime_context()
    ids = (context.job_id, context.node_id, context.task_id, context.actor_id)
    assert [id.hex() for id in ids] == ["01", "aa", "cc", "dd"]
    assert int(context.current_placement_group_id.hex(), 16) == 7
    assert not context.should_capture_child_tasks_in_placement_group
    assert (context.get_session_name(), context.get_temp_dir()) == ("session", ".")
    assert context.get_resource_ids() == context.get_accelerator_ids()


def test_only_tasks_and_methods_of_threads_ask_whether_they_are_cancelled(engine):
    context = syncline.get_runtime_context()
    with pytest.raises(RuntimeError, match="runs in the driver"):
        context.is_canceled()
    engine.info = RuntimeInfo(
        job_id="01", node_id="aa", worker_id="bb", namespace="d", task_id="cc"
    )
    assert context.is_canceled() is False
    engine.is_cancelled = lambda: True
    assert context.is_canceled() is True

    async def ask():
        return context.is_canceled()

    with pytest.raises(RuntimeError, match="CancelledError"):
        asyncio.run(ask())


def test_ids_without_a_task_are_none_or_null(engine):
    engine.info = RuntimeInfo(job_id="01", node_id="aa", worker_id="bb", namespace="d")
    context = syncline.get_runtime_context()
    assert (context.task_id, context.actor_id) == (None, None)
    assert context.current_placement_group_id.is_nil()
    assert context.should_capture_child_tasks_in_placement_group


def test_the_runtime_context_of_an_actor(engine):
    handle = syncline.remote(Worker).remote()
    engine.info = RuntimeInfo(
        job_id="1", node_id="n", worker_id="w", namespace="d",
        actor_id=handle._actor_id.hex(), actor=handle._syncline_record,
        was_restarted=True, placement_group_id=7, assigned_resources={"CPU": 1.0},
    )  # fmt: skip
    context = syncline.get_runtime_context()
    assert context.current_actor == handle
    assert context.was_current_actor_reconstructed
    assert (
        context.get_actor_name(),
        context.get_placement_group_id(),
        context.get_assigned_resources(),
    ) == ("", f"{7:032x}", {"CPU": 1.0})


def test_an_engine_without_listings_says_so(engine):
    assert (api.actors().actors, api.tasks().running) == ((), ())
    assert "keeps no list" in (api.actors().unknown or "")
    assert "keeps no list" in (api.tasks().unknown or "")
