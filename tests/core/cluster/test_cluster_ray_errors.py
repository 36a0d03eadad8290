"""Errors are instances of syncline's and of Ray's classes, also after several processes."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import syncline
from syncline import exceptions as ours
from syncline.core.engine import current_engine
from syncline.testing.clusters import RayCluster

ray: Any = pytest.importorskip("ray")
rays: Any = pytest.importorskip("ray.exceptions")
ray_ref: Any = pytest.importorskip("syncline.core.cluster.handles").ray_ref
translated: Any = pytest.importorskip("syncline.core.cluster.ray_errors").translated

MADE_BY_RAY = [
    ours.OutOfMemoryError,
    ours.OutOfDiskError,
    ours.ObjectStoreFullError,
    ours.NodeDiedError,
    ours.LocalRayletDiedError,
    ours.RuntimeEnvSetupError,
    ours.TaskCancelledError,
    ours.ActorUnschedulableError,
    ours.TaskUnschedulableError,
    ours.WorkerCrashedError,
    ours.GetTimeoutError,
]


def needs_cluster(test: Any) -> Any:
    return pytest.mark.cluster(pytest.mark.usefixtures("cluster")(test))


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    own_tasks = {"PYTHONPATH": str(Path(__file__).parent)}
    with RayCluster(num_cpus=4, variables=own_tasks) as cluster:
        syncline.init(address=cluster.address)
        yield
        syncline.shutdown()


@syncline.remote
def fail() -> None:
    raise KeyError("missing")


@syncline.remote(max_retries=0)
def crash() -> None:
    os._exit(3)


@syncline.remote
def sleep() -> None:
    time.sleep(600)


@syncline.remote
class Mortal:
    def die(self) -> None:
        os._exit(3)

    def fail(self) -> None:
        raise KeyError("missing")

    async def wait(self) -> None:
        await asyncio.sleep(600)


@syncline.remote
def forward(box: list[Any]) -> Any:
    return syncline.get(box[0])


def task_error() -> None:
    syncline.get(fail.remote())


def call_error() -> None:
    syncline.get(Mortal.remote().fail.remote())  # type: ignore[attr-defined]


def dead_actor() -> None:
    syncline.get(Mortal.remote().die.remote())  # type: ignore[attr-defined]


def killed_actor() -> None:
    mortal = Mortal.remote()  # type: ignore[attr-defined]
    syncline.kill(mortal)
    syncline.get(mortal.fail.remote())


def crashed_worker() -> None:
    syncline.get(crash.remote())


def late() -> None:
    syncline.get(sleep.options(num_cpus=0.1).remote(), timeout=0.01)


def rays_late() -> None:
    ray.get(ray_ref(sleep.options(num_cpus=0.1).remote()), timeout=0.01)


def cancelled() -> None:
    ref = sleep.options(num_cpus=0.1).remote()
    syncline.cancel(ref)
    syncline.get(ref, timeout=60)


def cancelled_call() -> None:
    ref = Mortal.remote().wait.remote()  # type: ignore[attr-defined]
    syncline.cancel(ref)
    syncline.get(ref, timeout=60)


ENDS = {
    task_error: (KeyError, ours.RayTaskError, rays.RayTaskError),
    call_error: (KeyError, ours.RayTaskError, rays.RayTaskError),
    dead_actor: (ours.ActorDiedError, rays.ActorDiedError),
    killed_actor: (ours.ActorDiedError, rays.ActorDiedError),
    crashed_worker: (ours.WorkerCrashedError, rays.WorkerCrashedError),
    late: (TimeoutError, ours.GetTimeoutError, rays.GetTimeoutError),
    cancelled: (ours.TaskCancelledError, rays.TaskCancelledError),
    cancelled_call: (ours.TaskCancelledError, rays.TaskCancelledError),
}


@needs_cluster
@pytest.mark.parametrize(("end", "kinds"), ENDS.items(), ids=[end.__name__ for end in ENDS])
def test_errors_are_caught_as_ours_and_as_rays(
    end: Callable[[], None], kinds: tuple[type[Exception], ...]
) -> None:
    with pytest.raises(kinds) as caught:
        end()
    for kind in (*kinds, ours.RayError, rays.RayError):
        assert isinstance(caught.value, kind)


@needs_cluster
@pytest.mark.parametrize(
    "end", [task_error, crashed_worker, dead_actor, late], ids=lambda end: end.__name__
)
def test_errors_keep_their_class_through_several_tasks(end: Callable[[], None]) -> None:
    run = syncline.remote(max_retries=0)(end)
    with pytest.raises(ENDS[end]) as first:
        end()
    for ref in (run.remote(), forward.remote([run.remote()])):
        with pytest.raises(ENDS[end]) as caught:
            syncline.get(ref, timeout=60)
        for kind in (*ENDS[end], ours.RayTaskError, rays.RayTaskError):
            assert isinstance(caught.value, kind)
        assert type(
            getattr(first.value, "cause", first.value)
            if isinstance(first.value, KeyError)
            else first.value
        ).__name__ in str(caught.value)


@needs_cluster
def test_a_timeout_inside_a_task_is_not_taken_for_a_timeout_of_get() -> None:
    with pytest.raises(rays.GetTimeoutError) as caught:
        syncline.get(syncline.remote(rays_late).remote(), timeout=60)
    assert isinstance(caught.value, ours.RayTaskError)


@needs_cluster
def test_error_that_a_task_returns_is_a_value() -> None:
    @syncline.remote
    def catch(box: list[Any]) -> Any:
        try:
            syncline.get(box[0])
        except (ours.RayError, rays.RayError) as error:
            return error

    assert isinstance(
        syncline.get(catch.remote([Mortal.remote().die.remote()]), timeout=60),  # type: ignore[attr-defined]
        ours.ActorDiedError,
    )
    returned = syncline.get(catch.remote([fail.remote()]), timeout=60)
    assert isinstance(returned, KeyError)
    assert isinstance(returned, ours.RayTaskError)


@needs_cluster
def test_generator_timeout_is_caught_as_either() -> None:
    @syncline.remote(num_cpus=0.1)
    def endless() -> Iterator[int]:
        time.sleep(600)
        yield 1

    engine = current_engine()
    stream = endless.remote()
    with pytest.raises(rays.GetTimeoutError) as caught:
        engine.next_item(stream, 0, 0.01)
    assert isinstance(caught.value, ours.GetTimeoutError)
    assert isinstance(caught.value, TimeoutError)


@pytest.mark.parametrize("ours_class", MADE_BY_RAY, ids=lambda cls: cls.__name__)
def test_rays_own_errors_are_both(
    ours_class: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    rays_class = getattr(rays, ours_class.__name__)
    monkeypatch.setattr(rays_class, "__str__", lambda self: "what Ray tells")
    error = translated(rays_class.__new__(rays_class))
    assert isinstance(error, ours_class)
    assert isinstance(error, rays_class)
    assert "what Ray tells" in str(error)


def test_an_error_that_only_ray_has_is_the_nearest_of_ours() -> None:
    error = translated(rays.ObjectReconstructionFailedError("00" * 28, "", "", ""))
    assert type(error).__bases__ == (
        ours.ObjectReconstructionFailedError,
        rays.ObjectReconstructionFailedError,
    )
