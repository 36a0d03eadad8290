"""The core through Ray Client (`ray://`); docs/engines.md lists the differences."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch

if importlib.util.find_spec("ray") is None:
    pytest.skip("Ray is not installed", allow_module_level=True)

import syncline
from syncline.core.cluster import compatibility, ray_client
from syncline.core.cluster.head import Head
from syncline.core.config import EngineConfig
from syncline.exceptions import ActorDiedError, GetTimeoutError, TaskCancelledError
from syncline.testing import eventually
from syncline.testing.clusters import HAS_CLIENT, RayCluster
from syncline.train import Checkpoint, RunConfig, ScalingConfig, get_context, report
from syncline.train.torch import TorchTrainer, prepare_model
from syncline.util.placement_group import placement_group, remove_placement_group
from syncline.util.scheduling_strategies import PlacementGroupSchedulingStrategy

clustered = [
    pytest.mark.cluster,
    pytest.mark.processes,
    pytest.mark.skipif(
        not HAS_CLIENT, reason="gRPC for Python is not installed: pip install 'ray[client]'"
    ),
]

LIMIT_S = 120.0


def test_without_grpc_the_error_names_alternatives(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    head = Head(address="ray://h:10001", host="h", port=10001, is_client=True)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "ray\[client\]".*syncline submit'):
        ray_client.connect(head, EngineConfig())


class FailingBuilder:
    """Connects after the given failures."""

    def __init__(self, *failures):
        self.failures = list(failures)
        self.attempts = 0

    def connect(self):
        self.attempts += 1
        if self.failures:
            raise ConnectionAbortedError(self.failures.pop())


@pytest.mark.parametrize(
    ("failures", "attempts", "connects"),
    [
        (["Starting Ray client server failed. See ray_client_server_23000.err"], 2, True),
        (
            ["psutil.ZombieProcess: PID still exists"] * ray_client.ATTEMPTS,
            ray_client.ATTEMPTS,
            False,
        ),
        (["Failed to create runtime_env"], 1, False),
    ],
    ids=["fork fails once", "fork always fails", "refused"],
)
def test_only_a_failed_fork_on_the_head_is_retried(monkeypatch, failures, attempts, connects):
    builder = FailingBuilder(*failures)
    monkeypatch.setattr(ray_client, "_builder", lambda head, config: builder)
    monkeypatch.setenv(ray_client.PIN_VARIABLE, "1")  # `connect` sets it: restored after the test
    head = Head(address="ray://h:10001", host="h", port=10001, is_client=True)
    with (
        nullcontext()
        if connects
        else pytest.raises(ConnectionError, match=r"ray://h:10001.*syncline submit")
    ):
        ray_client.connect(head, EngineConfig())
    assert builder.attempts == attempts


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with RayCluster(num_cpus=4) as cluster:
        yield cluster


@pytest.fixture
def connection(cluster: RayCluster) -> RayCluster:
    """A connected program, shared by the following tests because connecting takes seconds."""
    if not syncline.is_initialized():
        cluster.wait_for_client()
        syncline.init(cluster.client_address)
    return cluster


@pytest.fixture(scope="module", autouse=True)
def disconnected() -> Iterator[None]:
    yield
    syncline.shutdown()


# Defined in functions, so that they are pickled by value: workers cannot import this module.


def doubling():
    return syncline.remote(lambda x: x * 2)


def counting():
    @syncline.remote(num_returns="streaming")
    def numbers(count):
        yield from range(count)

    return numbers


def counter_class():
    class Counter:
        def __init__(self, start=0):
            self.value = start

        def add(self, amount=1):
            self.value += amount
            return self.value

        def fail(self):
            raise KeyError("no such thing")

        def count(self, count):
            yield from range(self.value, self.value + count)

        async def later(self, value):
            await asyncio.sleep(0)
            return value

    return syncline.remote(Counter)


@pytest.mark.usefixtures("connection")
class TestThroughRayClient:
    pytestmark = clustered

    def test_tasks_take_values_and_references(self):
        task = doubling()
        assert syncline.get(task.remote(task.remote(3))) == 12
        assert syncline.get([task.remote(n) for n in range(5)]) == [0, 2, 4, 6, 8]

    def test_references_inside_values_work_in_both_directions(self):
        @syncline.remote
        def pass_on(box):
            return [box[0], syncline.put(syncline.get(box[0]) + 1)]

        mine = syncline.put(1)
        back, new = syncline.get(pass_on.remote([mine]))
        assert back == mine
        assert syncline.get([back, new]) == [1, 2]

    def test_a_module_of_the_driver_only_is_named(self, tmp_path, monkeypatch):
        (tmp_path / "only_at_the_client.py").write_text("def f():\n    return 1\n")
        monkeypatch.syspath_prepend(tmp_path)
        module = importlib.import_module("only_at_the_client")
        with pytest.raises(
            ModuleNotFoundError, match="head cannot import 'only_at_the_client'.*working_dir"
        ):
            syncline.get(syncline.remote(module.f).remote())

    def test_several_returns_are_several_references(self):
        first, second = syncline.remote(lambda: (1, 2)).options(num_returns=2).remote()
        assert syncline.get([second, first]) == [2, 1]

    def test_arrays_round_trip(self):
        array = np.arange(1_000_000)
        assert np.array_equal(syncline.get(syncline.put(array)), array)

    def test_errors_are_instances_of_what_was_raised(self):
        with pytest.raises(KeyError, match="no such thing"):
            syncline.get(counter_class().remote().fail.remote())

    def test_waits_time_out(self):
        @syncline.remote
        def never():
            while True:
                time.sleep(0.01)  # Ray interrupts between calls, not inside a call

        slow, fast = never.remote(), syncline.put(1)
        assert syncline.wait([slow, fast], num_returns=2, timeout=0.5) == ([fast], [slow])
        with pytest.raises(GetTimeoutError):
            syncline.get(slow, timeout=0.5)
        syncline.cancel(slow)
        with pytest.raises(TaskCancelledError):
            syncline.get(slow, timeout=LIMIT_S)

    def test_actors_keep_their_state_until_they_are_killed(self):
        actor = counter_class().options(name="counter").remote(10)
        assert syncline.get([actor.add.remote(), actor.add.remote(5)]) == [11, 16]
        assert syncline.get(syncline.get_actor("counter").add.remote()) == 17
        assert syncline.get(actor.later.remote("x")) == "x"
        syncline.kill(actor)
        with pytest.raises(ActorDiedError):
            syncline.get(actor.add.remote(), timeout=LIMIT_S)
        with pytest.raises(ValueError, match="no living actor is named 'counter'"):
            eventually(lambda: syncline.get_actor("counter") is None, within_s=5.0)

    def test_actors_can_be_passed_to_tasks(self):
        @syncline.remote
        def use(actor):
            return syncline.get(actor.add.remote())

        assert syncline.get(use.remote(counter_class().remote(1))) == 2

    def test_generators_of_tasks_yield_items(self):
        generator = counting().remote(3)
        assert [syncline.get(ref) for ref in generator] == [0, 1, 2]

    def test_generators_of_actors_yield_items_and_errors(self):
        @syncline.remote
        class Failing:
            def items(self):
                yield 1
                raise KeyError("second")

        first, second = Failing.remote().items.options(num_returns="streaming").remote()
        assert syncline.get(first) == 1
        with pytest.raises(KeyError, match="second"):
            syncline.get(second)

    def test_generators_can_be_iterated_asynchronously(self):
        async def collect():
            return [await ref async for ref in counting().remote(3)]

        assert asyncio.run(collect()) == [0, 1, 2]

    def test_a_generator_can_be_cancelled(self):
        @syncline.remote(num_returns="streaming")
        def endless():
            yield 1
            while True:
                time.sleep(0.01)

        generator = endless.remote()
        assert syncline.get(next(generator)) == 1
        syncline.cancel(generator)
        with pytest.raises(TaskCancelledError):
            syncline.get(next(generator))

    def test_placement_groups_reserve_and_release(self):
        group = placement_group([{"CPU": 1}, {"CPU": 1}])
        assert syncline.get(group.ready(), timeout=LIMIT_S)
        inside = doubling().options(scheduling_strategy=PlacementGroupSchedulingStrategy(group))
        assert syncline.get(inside.remote(4)) == 8
        remove_placement_group(group)

    def test_infeasible_tasks_are_refused(self):
        with pytest.raises(ValueError, match="5 CPU"):
            doubling().options(num_cpus=5).remote(1)
        with pytest.raises(ValueError, match="5 CPU"):
            counting().options(num_cpus=5).remote(1)

    def test_runtime_info_is_that_of_the_cluster(self, connection):
        assert syncline.cluster_resources()["CPU"] == 4
        assert [node["Alive"] for node in syncline.nodes()] == [True]
        context = syncline.get_runtime_context()
        assert context.get_node_id() == syncline.nodes()[0]["NodeID"]
        assert context.gcs_address == connection.client_address

    def test_torch_trains_on_the_cluster_and_returns_its_checkpoint(self, tmp_path):
        def train_fn(config):
            context = get_context()
            model = prepare_model(torch.nn.Linear(2, 1, bias=False))
            torch.nn.init.constant_(model.module.weight, 0.0)
            model(torch.tensor([[1.0, float(context.get_world_rank())]])).sum().backward()
            torch.optim.SGD(model.parameters(), lr=config["lr"]).step()
            with tempfile.TemporaryDirectory() as directory:
                torch.save(model.module.weight.detach(), Path(directory, "weight.pt"))
                report(
                    {"workers": context.get_world_size()},
                    checkpoint=Checkpoint.from_directory(directory),
                )

        trainer = TorchTrainer(
            train_fn,
            train_loop_config={"lr": 1.0},
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(name="through-client", storage_path=str(tmp_path)),
        )
        result = trainer.fit()
        assert result.metrics["workers"] == 2
        assert Path(result.path).is_relative_to(tmp_path)
        with result.checkpoint.as_directory() as directory:
            assert torch.load(Path(directory, "weight.pt")).tolist() == [
                [-1.0, -0.5]
            ]  # from the mean of both ranks' gradients


class TestConnecting:
    pytestmark = clustered

    def test_successive_connections_of_both_kinds(self, cluster):
        task = doubling()
        for address in (cluster.client_address, cluster.address, cluster.client_address):
            syncline.shutdown()
            syncline.init(address)
            assert syncline.get(task.remote(2)) == 4

    def test_another_syncline_fails_the_first_task(self, cluster, monkeypatch):
        syncline.shutdown()
        monkeypatch.setattr(compatibility, "SYNCLINE_VERSION", "0.0.1")
        syncline.init(cluster.client_address)
        with pytest.raises(RuntimeError, match=r"program runs syncline 0\.0\.1"):
            syncline.get(doubling().remote(1))
        syncline.shutdown()
