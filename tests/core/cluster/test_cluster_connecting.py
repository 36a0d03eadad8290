"""`init` on clusters that refuse the program, are incompatible, or die: errors and output."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

if importlib.util.find_spec("ray") is None:
    pytest.skip("Ray is not installed", allow_module_level=True)

from ray._raylet import GcsClient  # type: ignore[attr-defined]

import syncline
from syncline.core.cluster import compatibility
from syncline.exceptions import ActorDiedError
from syncline.testing import eventually
from syncline.testing.clusters import MARK, RayCluster

pytestmark = [pytest.mark.cluster, pytest.mark.processes]

LIMIT_S = 180.0

LOST_CLUSTER = """
import syncline
syncline.init()

@syncline.remote
def never():
    import time
    time.sleep(3600)

waiting, kept = never.remote(), syncline.put(b"kept")
print("ready", flush=True)
calls = (
    lambda: syncline.get(waiting),
    lambda: syncline.wait([waiting]),
    lambda: syncline.put(1),
    lambda: never.remote(),
)
for call in calls:
    try:
        print("result", call(), flush=True)
    except syncline.exceptions.LocalRayletDiedError as error:
        print("told", error, flush=True)
syncline.shutdown()
syncline.init(OTHER)
print("elsewhere", syncline.get(syncline.put("works")), flush=True)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with RayCluster(num_cpus=2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def closed_cluster() -> Iterator[RayCluster]:
    with RayCluster(num_cpus=1, asks_for_token=True) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def disconnected(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    yield
    syncline.shutdown()


def program(text: str, cluster: RayCluster, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program as a subprocess, with a user's view of its output."""
    environment = cluster.environment(**variables)
    return subprocess.run(
        [sys.executable, "-c", text],
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        stdin=subprocess.DEVNULL,
    )


def processes_of(cluster: RayCluster, name: str) -> list[psutil.Process]:
    """Return the head's processes with one name."""
    found = []
    for process in psutil.process_iter():
        try:
            if (
                process.environ().get(MARK) == f"{cluster.directory.name}:head"
                and process.name() == name
            ):
                found.append(process)
        except psutil.Error:
            continue
    return found


# -- a cluster with a token


def test_a_program_without_a_token_prints_one_error_and_no_output_of_ray(closed_cluster):
    done = program("import syncline; syncline.init()", closed_cluster, RAY_AUTH_MODE="disabled")
    assert done.returncode == 1
    assert done.stdout == ""
    message = (
        f"ConnectionError: the cluster at '{closed_cluster.address}' refuses this program: "
        f"it requires a token"
    )
    assert done.stderr.splitlines()[-1].startswith(message)
    assert "InvalidAuthToken" not in done.stderr


def test_a_wrong_token_is_named_and_the_right_one_connects(closed_cluster, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 64)
    with pytest.raises(
        ConnectionError, match="rejects the token that this program sends, from RAY_AUTH_TOKEN"
    ):
        syncline.init(closed_cluster.address)
    monkeypatch.delenv("RAY_AUTH_TOKEN")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", closed_cluster.variables["RAY_AUTH_TOKEN_PATH"])
    syncline.init(closed_cluster.address)
    assert syncline.cluster_resources()["CPU"] == 1


# -- an incompatible cluster


def test_a_cluster_of_other_versions_is_refused_before_connecting(cluster):
    gcs, key = GcsClient(address=cluster.address), (b"CLUSTER_METADATA", b"cluster")
    kept = gcs.internal_kv_get(key[0], namespace=key[1])
    gcs.internal_kv_put(
        key[0],
        b'{"ray_version": "2.9.3", "python_version": "3.8.10"}',
        overwrite=True,
        namespace=key[1],
    )
    try:
        with pytest.raises(
            RuntimeError, match=r"runs Ray 2\.9\.3 on Python 3\.8\.10, this program Ray"
        ):
            syncline.init(cluster.address)
    finally:
        gcs.internal_kv_put(key[0], kept, overwrite=True, namespace=key[1])
    assert not syncline.is_initialized()


@syncline.remote
def one():
    return 1


def one_of_an_actor():
    """Define the class here, so that it is pickled by value: workers cannot import this module."""

    @syncline.remote
    class Actor:
        def one(self):
            return 1

    return Actor.remote().one.remote()


def test_another_syncline_on_nodes_fails_the_first_task(cluster, monkeypatch):
    monkeypatch.setattr(compatibility, "SYNCLINE_VERSION", "0.0.1")
    syncline.init(cluster.address)
    with pytest.raises(
        RuntimeError, match=r"program runs syncline 0\.0\.1, but the node .* has syncline"
    ):
        syncline.get(one.remote())
    with pytest.raises(ActorDiedError, match=r"program runs syncline 0\.0\.1"):
        syncline.get(one_of_an_actor())


def test_missing_syncline_on_nodes_fails_the_first_task(tmp_path):
    (tmp_path / "syncline.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'syncline'\", name='syncline')\n"
    )
    with RayCluster(num_cpus=1, variables={"PYTHONPATH": str(tmp_path)}) as bare:
        syncline.init(bare.address)
        with pytest.raises(ModuleNotFoundError, match="nodes of this cluster have no syncline"):
            syncline.get(one.remote())
        with pytest.raises(ActorDiedError, match="nodes of this cluster have no syncline"):
            syncline.get(one_of_an_actor())
        syncline.shutdown()


def test_a_module_of_the_driver_only_is_named_with_remedies(cluster, tmp_path, monkeypatch):
    (tmp_path / "only_here.py").write_text("def f():\n    return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    import only_here  # type: ignore[import-not-found]

    syncline.init(cluster.address)
    monkeypatch.setattr(sys, "path", sys.path[1:])
    with pytest.raises(ModuleNotFoundError, match="cannot import 'only_here'.*working_dir"):
        syncline.get(syncline.remote(only_here.f).remote())


# -- a cluster that dies


def test_a_cluster_without_a_living_local_node_is_refused():
    with RayCluster(num_cpus=1) as half:
        for process in processes_of(half, "raylet"):
            process.kill()
        with pytest.raises(
            ConnectionError, match=r"none of its \d living nodes runs on this machine"
        ):
            eventually(lambda: syncline.init(half.address) and syncline.shutdown(), within_s=0.0)


def test_a_dead_head_is_reported(cluster):
    with RayCluster(num_cpus=1) as dead:
        address = dead.address
    with pytest.raises(ConnectionError, match=f"'{address}': Connection refused"):
        syncline.init(address)


def test_a_program_outlives_its_cluster_and_connects_to_another(cluster, tmp_path):
    text = f"OTHER = {cluster.address!r}\n{LOST_CLUSTER}"
    with RayCluster(num_cpus=1) as dying, (tmp_path / "output").open("w+") as output:
        driver = subprocess.Popen(
            [sys.executable, "-c", text],
            env=dying.environment(),
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
        try:
            eventually(lambda: "ready" in Path(output.name).read_text(), within_s=LIMIT_S)
            dying.stop()
            assert driver.wait(LIMIT_S) == 0
        finally:
            if driver.poll() is None:
                os.kill(driver.pid, signal.SIGKILL)
        lines = Path(output.name).read_text().splitlines()
    assert sum(line.startswith("told the cluster at") for line in lines) == 4
    assert sum(line.startswith("syncline: the cluster at") for line in lines) == 1
    assert lines[-1] == "elsewhere works"


# -- several connections in one process


def test_one_cluster_after_another(cluster):
    with RayCluster(num_cpus=3) as other:
        for address, cpus in ((cluster.address, 2), (other.address, 3), (cluster.address, 2)):
            assert not syncline.is_initialized()
            syncline.init(address)
            assert syncline.is_initialized()
            assert syncline.cluster_resources()["CPU"] == cpus
            assert syncline.get(one.remote()) == 1
            assert syncline.get(one_of_an_actor()) == 1
            syncline.shutdown()


def test_a_second_init_is_refused_by_default(cluster):
    syncline.init(cluster.address)
    with pytest.raises(RuntimeError, match="ignore_reinit_error=True"):
        syncline.init(cluster.address)
    assert (
        syncline.init(cluster.address, ignore_reinit_error=True)["gcs_address"] == cluster.address
    )


def test_older_spellings_and_variables_connect(cluster, monkeypatch):
    with pytest.warns(DeprecationWarning, match="redis_address"):
        syncline.init(redis_address=cluster.address, _redis_password="5241590000000000")
    assert syncline.cluster_resources()["CPU"] == 2
    syncline.shutdown()
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    syncline.init("auto")
    assert syncline.cluster_resources()["CPU"] == 2
    syncline.shutdown()
    monkeypatch.setenv("SYNCLINE_ADDRESS", cluster.address)
    monkeypatch.delenv("RAY_ADDRESS")
    assert syncline.get(one.remote()) == 1
    assert syncline.cluster_resources()["CPU"] == 2


def test_rays_variable_alone_selects_no_cluster(monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    syncline.init(num_cpus=1)
    assert syncline.cluster_resources()["CPU"] == 1
