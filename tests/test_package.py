"""The package: version, type marker, pins, and the command of continuous integration."""

import importlib.metadata
import os
import re
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = ROOT / "examples" / "data" / "cifar10"
SAMPLE_LIMIT_BYTES = 3_000_000


def pinned_versions() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [
        line.split(";")[0].strip().split("==")
        for line in lines
        if line and not line.startswith("#")
    ]
    return {name.lower(): version for name, version in pins}


def declared_requirements() -> list[str]:
    return importlib.metadata.requires("syncline") or []


def test_installed_version_is_the_declared_one() -> None:
    declared = re.search(
        r'^version = "(.+)"$',
        (ROOT / "pyproject.toml").read_text(encoding="utf-8"),
        flags=re.MULTILINE,
    )
    assert declared is not None
    assert importlib.metadata.version("syncline") == declared.group(1)


def test_package_has_a_type_marker() -> None:
    assert (ROOT / "src" / "syncline" / "py.typed").is_file()


def test_torch_is_not_a_dependency_of_any_extra() -> None:
    assert not [
        requirement for requirement in declared_requirements() if re.match(r"torch\b", requirement)
    ]


@pytest.mark.parametrize("name", ["cloudpickle", "numpy", "pandas", "psutil", "pyarrow", "rich"])
def test_plain_install_brings_core_data_and_train(name: str) -> None:
    plain = [
        requirement for requirement in declared_requirements() if "extra ==" not in requirement
    ]
    assert any(re.match(rf"{name}\b", requirement) for requirement in plain)


def test_every_tool_of_continuous_integration_is_pinned() -> None:
    extras = "test|lint|examples|cli|dashboard|docs"
    used = [
        requirement
        for requirement in declared_requirements()
        if re.search(rf"extra == ['\"]({extras})['\"]", requirement)
    ]
    plain = [
        requirement for requirement in declared_requirements() if "extra ==" not in requirement
    ]
    names = {re.split(r"[^\w.-]", requirement)[0].lower() for requirement in used + plain}
    assert names <= pinned_versions().keys()
    assert pinned_versions()["torch"] == "2.13.0"


def test_ci_command_is_an_executable_script() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    checked = subprocess.run(
        ["bash", "-n", str(script)], capture_output=True, text=True, timeout=60, check=False
    )
    assert checked.returncode == 0, checked.stderr


def test_make_help_lists_the_documented_targets() -> None:
    done = subprocess.run(
        ["make", "-C", str(ROOT), "help"], capture_output=True, text=True, timeout=60, check=True
    )
    for target in ("setup", "demo", "test", "lint", "bench", "bench-setup", "clean"):
        assert re.search(rf"^make {target}\s", done.stdout, flags=re.MULTILINE), target


def test_sample_images_are_small_and_laid_out_like_the_full_set() -> None:
    files = sorted(SAMPLE.rglob("*.parquet"))
    assert {file.parent.name for file in files} == {"train", "test"}
    assert sum(file.stat().st_size for file in files) <= SAMPLE_LIMIT_BYTES
    for file in files:
        table = pq.read_table(file)
        assert [(field.name, str(field.type)) for field in table.schema] == [
            ("image", "binary"),
            ("label", "int64"),
        ]
        assert set(table["label"].to_pylist()) == set(range(10))


@pytest.mark.parametrize("kind", ["", pytest.param("processes", marks=pytest.mark.processes)])
def test_failed_tests_are_not_rerun(kind: str, request: pytest.FixtureRequest) -> None:
    assert request.node.get_closest_marker("flaky") is None
    assert not request.config.getini("reruns")
