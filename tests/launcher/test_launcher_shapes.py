"""Shapes of scripts beside torchrun: same exit codes, same output.

To add a shape, put a script into `scripts` and a row into `SHAPES`. A script prints what a launcher
could change, each line with its rank.
"""

import json
import re
from dataclasses import dataclass, replace

import pytest

# Torch 2.13 under torchrun itself aborts now and then when its gloo group ends.
pytestmark = pytest.mark.long


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One job for both launchers."""

    name: str
    arguments: tuple[str, ...]
    """Command line; FOLDER is a folder of the launcher."""
    stdin: str = ""
    code: int = 0
    stderr: tuple[str, ...] = ()
    """Texts in standard error under both launchers."""
    lines: int | None = None
    """Number of lines in standard output."""
    variables: tuple[tuple[str, str], ...] = ()
    """Environment variables."""
    says: tuple[str, ...] = ()
    """Texts in standard error of `syncline run`."""


TWO = ("--nproc-per-node", "2")
SHAPES = (
    Shape(name="ddp", arguments=(*TWO, "ddp.py"), lines=8),
    Shape(name="accumulate", arguments=("--standalone", *TWO, "accumulate.py"), lines=4),
    Shape(name="fsdp2", arguments=(*TWO, "fsdp2.py"), lines=8),
    Shape(name="dcp", arguments=(*TWO, "dcp.py", "FOLDER/checkpoint"), lines=2),
    Shape(
        name="elastic",
        arguments=(*TWO, "--max-restarts", "1", "elastic.py", "FOLDER"),
        # Otherwise the workers of torchrun 2.13 may find the addresses of their predecessors.
        variables=(("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1"),),
        lines=4,
        says=("rank 1 (pid=", "was killed by SIGKILL", "restarted (1 of 1)"),
    ),
    Shape(name="accelerate", arguments=(*TWO, "with_accelerate.py"), lines=6),
    Shape(name="lightning", arguments=(*TWO, "with_lightning.py", "FOLDER"), lines=4),
    Shape(name="transformers", arguments=(*TWO, "with_transformers.py", "FOLDER"), lines=4),
    Shape(name="spawning", arguments=(*TWO, "spawning.py"), lines=10),
    Shape(name="module", arguments=(*TWO, "-m", "tool.train", "a", "--b"), lines=4),
    Shape(name="package", arguments=(*TWO, "--module", "tool"), lines=2),
    Shape(name="directory", arguments=(*TWO, "tool"), lines=2),
    Shape(name="hidden_modules", arguments=(*TWO, "shadow/main.py"), lines=2),
    Shape(
        name="arguments",
        arguments=(*TWO, "arguments.py", "--nnodes", "3", "-n", "4", "--name", "x", "--", "-m"),
        lines=2,
    ),
    Shape(name="stdin", arguments=("reading.py",), stdin="one\ntwo\nthree\n", lines=3),
    Shape(
        name="printing", arguments=(*TWO, "printing.py"), stderr=("[1] error", "[0] shell error")
    ),
    Shape(name="ending", arguments=(*TWO, "ending.py"), lines=10),
    Shape(name="interpreter", arguments=(*TWO, "interpreter.py", "a", "--b=c"), lines=88),
    Shape(name="count_of_cpus", arguments=("--nproc-per-node", "cpu", "arguments.py")),
    Shape(name="one_worker", arguments=("interpreter.py",), lines=43),
    Shape(name="run_path", arguments=(*TWO, "--run-path", "arguments.py", "-n", "4"), lines=2),
    Shape(
        name="no_python",
        arguments=(*TWO, "--no-python", "sh", "-c", "echo [$RANK] $0 $LOCAL_RANK", "zero"),
        lines=2,
    ),
    Shape(
        name="exit_code",
        arguments=(*TWO, "exits.py", "1", "3"),
        code=1,
        says=("rank 1 (pid=", "exited with code 3", "rank 0 was stopped"),
    ),
    Shape(
        name="exit_text",
        arguments=(*TWO, "exits.py", "0", "no data"),
        code=1,
        stderr=("no data",),
        says=("rank 0 (pid=", "exited with code 1"),
    ),
    Shape(
        name="killed",
        arguments=(*TWO, "exits.py", "1", "kill"),
        code=1,
        says=("rank 1 (pid=", "was killed by SIGKILL"),
    ),
    Shape(
        name="interrupted",
        arguments=(*TWO, "exits.py", "1", "interrupt"),
        code=1,
        stderr=("KeyboardInterrupt",),
        says=("was killed by SIGINT",),
    ),
    Shape(
        name="failing",
        arguments=(*TWO, "failing.py"),
        code=1,
        stderr=(
            "KeyError: 'missing'\n\nDuring handling of the above exception, another exception",
            "RuntimeError: rank 1 failed on purpose",
        ),
        says=("failed on purpose", "exited with code 1", "syncline logs failing"),
    ),
    Shape(
        name="syntax",
        arguments=("syntax.py",),
        code=1,
        stderr=("    def broken(:\n", "SyntaxError: invalid syntax"),
    ),
    Shape(name="missing", arguments=("absent.py",), code=1, stderr=("can't open file",)),
)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_shape_gives_the_same_under_both_launchers(both, shape):
    ours, theirs = both(shape.arguments, stdin=shape.stdin, variables=dict(shape.variables))
    assert (ours.code, theirs.code) == (shape.code, shape.code), ours.stderr + theirs.stderr
    assert ours.lines == theirs.lines
    if shape.lines is not None:
        assert len(ours.lines) == shape.lines
    for text in shape.stderr:
        assert text in ours.stderr
        assert text in theirs.stderr
    for text in shape.says:
        assert text in ours.stderr
    assert "script_process" not in ours.stderr


def test_restarted_workers_find_each_other(launcher):
    one = launcher("syncline")
    ended = one.run("-n", "2", "--max-restarts", "1", "elastic.py", str(one.folder))
    assert ended.code == 0, ended.stderr
    assert len(ended.lines) == 4


def test_error_files_have_the_same_content(both, launcher):
    found = []
    for name in ("syncline", "torchrun"):
        one = launcher(name)
        file = one.folder / "error.json"
        ended = one.run(
            "--nproc-per-node", "2", "recorded.py", variables={"TORCHELASTIC_ERROR_FILE": str(file)}
        )
        assert ended.code == 1, ended.stderr
        found.append(json.loads(file.read_text())["message"])
        found[-1]["extraInfo"].pop("timestamp")
        if name == "syncline":
            assert "ValueError: rank 1 has no data" in ended.stderr
    assert found[0] == found[1]
    assert found[0]["message"] == "ValueError: rank 1 has no data"


def test_random_states_differ_between_ranks_as_in_fresh_processes(launcher):
    ended = launcher("syncline").run("-n", "2", "randoms.py")
    assert ended.code == 0, ended.stderr
    (_, *first), (_, *second) = (line.split() for line in sorted(ended.stdout.splitlines()))
    assert len(first) == 4
    assert not set(first) & set(second)


@pytest.mark.parametrize(
    "options",
    [
        ("-r", "3"),
        ("-t", "3"),
        ("-r", "0:1,1:2", "-t", "1"),
        ("-t", "3", "--local-ranks-filter", "1"),
    ],
    ids=" ".join,
)
def test_log_files_are_those_of_torchrun(both, launcher, options):
    ours, theirs = both(
        ("--nproc-per-node", "2", "--log-dir", "FOLDER/logs", *options, "printing.py")
    )
    assert (ours.code, theirs.code) == (0, 0), ours.stderr
    for prefix in ("[default0]:", "[default1]:"):  # of lines that were read from files
        assert ours.stdout.count(prefix) == theirs.stdout.count(prefix)
    plain = [
        replace(ended, stdout=re.sub(r"\[default\d\]:", "", ended.stdout)).lines
        for ended in (ours, theirs)
    ]
    assert plain[0] == plain[1]
    trees = []
    for name in ("syncline", "torchrun"):
        (attempt,) = launcher(name).folder.glob("logs/*/attempt_0")
        files = sorted(file for file in attempt.rglob("*") if file.is_file())
        trees.append({str(file.relative_to(attempt)): file.read_bytes() for file in files})
    assert trees[0] == trees[1]
    assert trees[0]
