"""All pages: the programs of those that have no test of their own run as written, commands exist,
and the site hangs together.
"""

import importlib
import inspect
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from syncline import runs
from syncline.testing.waiting import eventually
from tests.docs.page_commands import commands, parse
from tests.docs.page_programs import DOCS, ROOT, blocks, page, page_names, run, run_all

ALL_OF_PAGE = (
    "index",
    "get_started",
    "five_steps",
    "training",
    "dashboard",
    "engines",
    "utilities",
)
"""Pages whose programs all run here, one after the other."""
LONG = ("five_steps", "training", "dashboard")
ELSEWHERE = {
    "README": "test_readme.py",
    "data": "docs/test_docs_data.py",
    "failures": "docs/test_docs_failures.py",
    "frameworks": "docs/test_docs_frameworks.py",
    "large_models": "docs/test_docs_large_models.py",
    "rl": "docs/test_docs_rl.py",
    "serving": "docs/test_docs_serving.py",
    "tracking": "test_docs_tracking.py",
    "tuning": "docs/test_docs_tuning.py",
}
"""Tests of a page's programs, below tests."""
API = {
    "syncline": "syncline",
    "train": "syncline.train",
    "train_torch": "syncline.train.torch",
    "data": "syncline.data",
    "tune": "syncline.tune",
    "serve": "syncline.serve",
    "runs": "syncline.runs",
    "util": "syncline.util",
    "experimental": "syncline.experimental",
    "dag": "syncline.dag",
    "job_submission": "syncline.job_submission",
    "as_ray": "syncline.as_ray",
}
COMMANDS = [
    pytest.param(arguments, id=f"{name}: {shlex.join(arguments)}")
    for name in page_names()
    for arguments in commands("\n".join(blocks(page(name), "bash")))
]


@pytest.mark.processes
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.long] if name in LONG else []) for name in ALL_OF_PAGE],
)
def test_programs_of_the_page_run_as_written(name: str, tmp_path: Path) -> None:
    done = run_all(blocks(page(name), "python"), tmp_path)
    assert "Traceback" not in done.stderr


def test_every_page_with_programs_has_a_test() -> None:
    with_programs = {name for name in page_names() if blocks(page(name), "python")}
    assert with_programs == {*ALL_OF_PAGE, *ELSEWHERE, "debugging", "from_ray"}
    assert [place for place in ELSEWHERE.values() if not (ROOT / "tests" / place).exists()] == []


@pytest.mark.processes
def test_program_for_ray_is_migrated_and_runs_as_the_page_says(tmp_path: Path) -> None:
    (program,), (after,) = (
        blocks(page("from_ray"), "python", title) for title in ("train.py", "after")
    )
    script = tmp_path / "train.py"
    script.write_text(program)
    command = [sys.executable, "-m", "syncline", "migrate", "--write", str(script)]
    assert subprocess.run(command, capture_output=True, timeout=120, check=False).returncode == 0
    assert script.read_text().startswith(after)
    assert "{'x': 3.0}" in run_all([script], tmp_path).stdout


@pytest.mark.long
@pytest.mark.processes
def test_the_rank_that_others_wait_for_is_named_as_the_page_says(tmp_path: Path) -> None:
    text = page("debugging")
    (program,) = blocks(text, "python", "hang.py")
    shown = re.findall(r"^```\n(\[rank 1\].*?)\n\n.*?^```$", text, flags=re.MULTILINE | re.DOTALL)[
        0
    ]
    script = tmp_path / "hang.py"
    script.write_text(program)
    variables = {
        **os.environ,
        "SYNCLINE_STORAGE_PATH": str(tmp_path / "runs"),
        "SYNCLINE_TRAIN_COLLECTIVE_TIMEOUT_S": "20",
    }

    def stacks() -> str:
        arguments = [sys.executable, "-m", "syncline", "stack", "hangs"]
        done = subprocess.run(
            arguments, env=variables, capture_output=True, text=True, timeout=60, check=False
        )
        return done.stdout.replace(f"{tmp_path}/", "")

    with subprocess.Popen(
        [sys.executable, str(script)], env=variables, stderr=subprocess.PIPE, text=True
    ) as hanging:
        assert eventually(lambda: shown in stacks(), what="the stacks are those of the page")
        _, error = hanging.communicate(timeout=120)
    assert hanging.returncode == 1
    printed = re.sub(
        r"\s+", " ", error.replace(f"{tmp_path}/", "").replace("within 20 s", "within 1800 s")
    )
    (expected,) = re.findall(r"^```\n(TimeoutError.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    assert re.sub(r"\s+", " ", expected).strip() in printed


@pytest.mark.long
@pytest.mark.processes
def test_the_slow_program_is_profiled_as_the_page_says(tmp_path: Path) -> None:
    (program,) = blocks(page("debugging"), "python", "slow.py")
    script = tmp_path / "slow.py"
    script.write_text(program)
    variables = {**os.environ, "SYNCLINE_STORAGE_PATH": str(tmp_path / "runs")}

    def is_profiled() -> bool:
        arguments = [
            sys.executable,
            "-m",
            "syncline",
            "profile",
            "slow",
            "--rank",
            "0",
            "--cpu",
            "--seconds",
            "2",
            "--output",
            "cpu.svg",
        ]
        return (
            subprocess.run(
                arguments,
                env=variables,
                cwd=tmp_path,
                capture_output=True,
                timeout=100,
                check=False,
            ).returncode
            == 0
        )

    with subprocess.Popen(
        [sys.executable, str(script)], env=variables, stderr=subprocess.DEVNULL
    ) as training:
        try:
            assert eventually(
                (tmp_path / "runs" / "slow" / "metrics.jsonl").exists, what="it has begun to report"
            )
            assert eventually(is_profiled, what="a worker is profiled")
        finally:
            training.kill()
    assert "make_batch (slow.py" in (tmp_path / "cpu.svg").read_text()


@pytest.mark.processes
def test_program_for_a_debugger_runs_as_written(tmp_path: Path) -> None:
    (program,) = (block for block in blocks(page("debugging"), "python") if "local_mode" in block)
    done = run(program, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "{'world_size': 1}" in done.stdout


@pytest.mark.parametrize("arguments", COMMANDS)
def test_command_of_a_page_exists(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    parse(arguments)


def test_make_targets_of_the_pages_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    texts = [page(name) for name in page_names()]
    texts.append((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    named = {
        target
        for text in texts
        for target in re.findall(r"(?:^|`)make ([a-z][a-z-]*)", text, flags=re.MULTILINE)
    }
    assert {"bench", "docs", "docs-serve", "setup", "test-all"} <= named
    missing = [
        target
        for target in sorted(named)
        if not re.search(rf"^{target}:", makefile, flags=re.MULTILINE)
    ]
    assert missing == []


def test_files_in_the_design_exist() -> None:
    named = re.findall(r"`((?:core|data|train|tune|runs|cli)/[\w/.]+)`", page("design"))
    assert len(named) > 10
    assert [name for name in named if not (ROOT / "src" / "syncline" / name).exists()] == []


@pytest.mark.parametrize("name", API)
def test_api_page_has_every_public_name(name: str) -> None:
    listed = re.findall(
        r"^::: (\S+)$", (DOCS / "api" / f"{name}.md").read_text(), flags=re.MULTILINE
    )
    module = importlib.import_module(API[name])
    names = {entry.removeprefix(f"{API[name]}.") for entry in listed} - {API[name]}
    # Submodules and their names have sections of their own, in a selection.
    of_submodules = {each for each in names if inspect.ismodule(getattr(module, each, module))}
    public = {each for each in module.__all__ if not inspect.ismodule(getattr(module, each))}
    assert names - of_submodules == public - {"__version__"}
    # The names of reinforcement learning are those of RLlib's many modules.
    assert {path.stem for path in (DOCS / "api").iterdir()} == {*API, "rl"}


def test_files_of_a_run_directory_are_all_on_the_page() -> None:
    documented = re.findall(
        r"^    ([\w*.]+(?:/(?=[ \w]))?)[\w.]* {2,}", runs.__doc__ or "", flags=re.MULTILINE
    )
    assert len(documented) > 12
    (table,) = re.findall(
        r"^\| file \| content \|.*?\n\n", page("dashboard"), flags=re.MULTILINE | re.DOTALL
    )
    assert [name for name in documented if f"`{name}`" not in table] == []


def test_site_fetches_nothing_from_elsewhere() -> None:
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    assert settings["theme"]["font"] is False
    assert {"extra_javascript", "extra_css"}.isdisjoint(settings)
    elsewhere = re.compile(r"!\[[^\]]*\]\((?!docs/|images/)|<(?:script|img|iframe|link)\b")
    assert [name for name in page_names() if elsewhere.search(page(name))] == []
