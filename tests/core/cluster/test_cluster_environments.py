"""Runtime environments on a cluster: uploads from the driver, installations in workers."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import syncline
from syncline.exceptions import RuntimeEnvSetupError
from syncline.testing.clusters import RayCluster

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.processes,
    pytest.mark.timeout(400),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
]

WAIT_S = 150
"""Long, because an installation may copy the whole environment of Ray."""


@syncline.remote
def seen(module: str, file: str = "") -> Any:
    """Return a module's value, a file's text and the directory, as a worker sees them."""
    return (
        importlib.import_module(module).VALUE,
        Path(file).read_text() if file else "",
        os.getcwd(),
    )


@syncline.remote
def seen_by_child(module: str) -> Any:
    return syncline.get(seen.remote(module))


def looking() -> Any:
    """Return an actor class that is pickled by value: workers cannot import this module."""

    @syncline.remote
    class Looking:
        def seen(self, module: str) -> Any:
            return importlib.import_module(module).VALUE, os.environ.get("OF_PROGRAM")

    return Looking


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with RayCluster(num_cpus=4, variables={"RUNTIME_ENV_RETRY_TIMES": "1"}) as cluster:
        yield cluster


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory with a module, a package, data, and an ignored file."""
    directory = tmp_path / "project"
    (directory / "carried_package").mkdir(parents=True)
    (directory / "carried_module.py").write_text("VALUE = 'module'")
    (directory / "carried_package" / "__init__.py").write_text("VALUE = 'package'")
    (directory / "data.txt").write_text("data")
    (directory / "left_behind.txt").write_text("large")
    (directory / ".gitignore").write_text("left_behind.txt\n")
    return directory


def test_all_workers_use_the_programs_directory(cluster: RayCluster, project: Path) -> None:
    environment = {"working_dir": str(project), "env_vars": {"OF_PROGRAM": "yes"}}
    with syncline.init(address=cluster.address, runtime_env=environment):
        value, text, directory = syncline.get(
            seen.remote("carried_module", "data.txt"), timeout=WAIT_S
        )
        assert (value, text) == ("module", "data")
        assert Path(directory) != project
        assert syncline.get(seen_by_child.remote("carried_package"), timeout=WAIT_S)[0] == "package"
        assert syncline.get(looking().remote().seen.remote("carried_module"), timeout=WAIT_S) == (
            "module",
            "yes",
        )
        with pytest.raises(FileNotFoundError):
            syncline.get(seen.remote("carried_module", "left_behind.txt"), timeout=WAIT_S)


def test_a_tasks_environment_replaces_the_programs_except_variables(
    cluster: RayCluster, project: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "carried_module.py").write_text("VALUE = 'of the task'")
    with syncline.init(
        address=cluster.address,
        runtime_env={"working_dir": str(project), "env_vars": {"OF_PROGRAM": "yes"}},
    ):
        own = {"working_dir": str(other)}
        assert (
            syncline.get(seen.options(runtime_env=own).remote("carried_module"), timeout=WAIT_S)[0]
            == "of the task"
        )
        assert (
            syncline.get(
                seen_by_child.options(runtime_env=own).remote("carried_module"), timeout=WAIT_S
            )[0]
            == "of the task"
        )
        actor = looking().options(runtime_env=own).remote()
        assert syncline.get(actor.seen.remote("carried_module"), timeout=WAIT_S) == (
            "of the task",
            "yes",
        )
        assert syncline.get(seen.remote("carried_module"), timeout=WAIT_S)[0] == "module"


def test_modules_are_uploaded_from_paths_or_module_objects(
    cluster: RayCluster, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(project))
    package = importlib.import_module("carried_package")
    try:
        for module in (package, str(project / "carried_package")):
            with syncline.init(address=cluster.address, runtime_env={"py_modules": [module]}):
                assert syncline.get(seen.remote("carried_package"), timeout=WAIT_S)[0] == "package"
                with pytest.raises(ModuleNotFoundError):
                    syncline.get(seen.remote("carried_module"), timeout=WAIT_S)
    finally:
        del sys.modules["carried_package"]


@pytest.mark.skipif(
    importlib.util.find_spec("virtualenv") is None,
    reason="Ray installs packages with virtualenv, which is not there",
)
def test_packages_are_installed_on_request(cluster: RayCluster, tmp_path: Path) -> None:
    wheel = _wheel(tmp_path, "carried_wheel")
    with syncline.init(address=cluster.address):
        assert (
            syncline.get(
                seen.options(runtime_env={"pip": [str(wheel)]}).remote("carried_wheel"),
                timeout=WAIT_S,
            )[0]
            == "wheel"
        )
        with pytest.raises(ModuleNotFoundError):
            syncline.get(seen.remote("carried_wheel"), timeout=WAIT_S)


def test_a_failed_environment_fails_its_tasks(cluster: RayCluster) -> None:
    impossible = {"conda": "no-such-environment"}
    with syncline.init(address=cluster.address):
        for kind in (
            RuntimeEnvSetupError,
            importlib.import_module("ray.exceptions").RuntimeEnvSetupError,
        ):
            with pytest.raises(kind, match="conda"):
                syncline.get(seen.options(runtime_env=impossible).remote("os"), timeout=WAIT_S)
        actor = looking().options(runtime_env=impossible).remote()
        with pytest.raises(syncline.exceptions.RayError, match="conda"):
            syncline.get(actor.seen.remote("os"), timeout=WAIT_S)


def _wheel(directory: Path, name: str) -> Path:
    """Build a wheel of one file, which pip installs without an index."""
    about = f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": "VALUE = 'wheel'\n",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{about}/WHEEL": (
            "Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        ),
    }
    record = "".join(f"{path},,\n" for path in [*files, f"{about}/RECORD"])
    path = directory / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inside, text in {**files, f"{about}/RECORD": record}.items():
            archive.writestr(inside, text)
    return path
