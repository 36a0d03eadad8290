"""Workers with packages of their own, which are installed from a directory of wheels."""

import os
import sys
import zipfile
from pathlib import Path

import pytest

import syncline
from syncline.core import package_environments, packages
from syncline.exceptions import RayActorError, RuntimeEnvSetupError
from syncline.testing.tasks import get

pytestmark = pytest.mark.processes


def write_wheel(directory: Path, name: str, version: str, code: str) -> None:
    """Write a wheel with one module."""
    directory.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": code,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(directory / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)


@pytest.fixture
def wheels(tmp_path, monkeypatch):
    """A directory with wheels; environments are made in a directory of the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for version in ("1.0", "2.0"):
        write_wheel(tmp_path / "wheels", "sl_extra", version, f"VERSION = {version!r}")
    return tmp_path / "wheels"


def packages_of(wheels, *lines):
    options = ["--no-index", "--find-links", str(wheels)]
    return {"pip": {"packages": list(lines), "pip_install_options": options}}


@syncline.remote
def look():
    import numpy
    import sl_extra  # type: ignore[import-not-found]

    return sl_extra.VERSION, sys.executable, os.path.dirname(numpy.__file__)


@syncline.remote
class Looking:
    def look(self):
        return get(look.remote())


def test_tasks_and_actors_get_packages_on_top_of_those_of_the_program(wheels, tmp_path, capfd):
    import numpy

    with syncline.init(num_cpus=2):
        refs = [
            look.options(runtime_env=packages_of(wheels, f"sl_extra=={version}")).remote()
            for version in ("1.0", "2.0", "1.0")
        ]
        actor = Looking.options(runtime_env=packages_of(wheels, "sl_extra==1.0")).remote()
        found = get([*refs, actor.look.remote()])
    assert [version for version, _, _ in found] == ["1.0", "2.0", "1.0", "1.0"]
    assert {path for _, _, path in found} == {os.path.dirname(numpy.__file__)}
    made = {Path(python).parent.parent for _, python, _ in found}
    assert {path.parent for path in made} == {tmp_path / "cache" / "syncline" / "environments"}
    assert len(made) == 2
    assert "installing sl_extra==2.0 with pip" in "".join(capfd.readouterr())


def test_packages_of_the_program_are_those_of_all_its_workers(wheels):
    with syncline.init(num_cpus=2, runtime_env=packages_of(wheels, "sl_extra>=2")):
        assert get(look.remote())[0] == "2.0"
        assert get(Looking.remote().look.remote())[0] == "2.0"
        own = packages_of(wheels, "sl_extra<2")
        assert get(look.options(runtime_env=own).remote())[0] == "1.0"


def test_packages_that_cannot_be_installed_are_an_error_with_the_reason(wheels):
    env = packages_of(wheels, "sl_extra==3.0")
    with syncline.init(num_cpus=1):
        with pytest.raises(RuntimeEnvSetupError, match=r"sl_extra==3\.0"):
            get(look.options(runtime_env=env).remote())
        with pytest.raises((RayActorError, RuntimeEnvSetupError), match=r"sl_extra==3\.0"):
            get(Looking.options(runtime_env=env).remote().look.remote())


def test_unreachable_index_is_named_with_the_remedy(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    wanted = packages.Packages(
        installer="pip",
        lines=("sl-extra-absent",),
        options=("--index-url", "http://127.0.0.1:9/simple", "--retries", "1"),
    )
    with pytest.raises(RuntimeEnvSetupError, match="no package index could be reached"):
        package_environments.python_with(wanted, print)
    assert not list((tmp_path / "syncline" / "environments").glob("*/ready"))


def test_environment_is_made_once_and_again_after_an_interruption(wheels, tmp_path):
    wanted = packages.of_environment(packages_of(wheels, "sl_extra"))
    lines = []
    python = package_environments.python_with(wanted, lines.append)
    made = len(lines)
    assert package_environments.python_with(wanted, lines.append) == python
    assert len(lines) == made
    (python.parent.parent / "ready").unlink()
    assert package_environments.python_with(wanted, lines.append) == python
    assert len(lines) == 2 * made
