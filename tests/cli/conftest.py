"""What the tests of the command line share: running it in this process, a stand-in for Ray's
command, runs on disk.
"""

import json
import os
import socket
import stat
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from syncline.cli import app, engines
from syncline.runs import LocalFiles, RunDirectory

FAKE_RAY = """#!{python}
import json, os, sys
with open({record!r}, "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
print({output!r})
sys.exit({code})
"""


@pytest.fixture
def syncline_command(monkeypatch, tmp_path):
    """Runs `syncline` with arguments; on a machine where no cluster and no other program runs,
    whatever else is going on there.
    """
    monkeypatch.setattr(engines, "ray_node_runs_here", lambda: False)
    monkeypatch.setenv("SYNCLINE_TMPDIR", str(tmp_path / "programs"))

    def run(*arguments: str, **options) -> Result:
        return CliRunner().invoke(app.cli, arguments, prog_name="syncline", **options)

    return run


@pytest.fixture
def fake_ray(tmp_path, monkeypatch):
    """Puts a `ray` beside the interpreter that records its arguments; calling the fixture sets its
    output and exit code.
    """
    folder = tmp_path / "environment" / "bin"
    folder.mkdir(parents=True)
    record = tmp_path / "calls.jsonl"
    python = sys.executable
    monkeypatch.setattr(sys, "executable", str(folder / "python"))

    def install(output: str = "", code: int = 0) -> Path:
        ray = folder / "ray"
        ray.write_text(FAKE_RAY.format(python=python, record=str(record), output=output, code=code))
        ray.chmod(ray.stat().st_mode | stat.S_IXUSR)
        return record

    install()
    return install


@pytest.fixture
def write_run(tmp_path):
    """Writes the record of a run and its logs below a storage path; returns the run directory."""

    def write(
        name: str,
        *,
        outcome=None,
        error=None,
        started=1_000.0,
        pid=None,
        reports=(),
        logs=None,
        host=None,
        process=None,
    ) -> Path:
        directory = tmp_path / "runs" / name
        with RunDirectory(LocalFiles(directory), clock=lambda: started) as record:
            record.write_run(name, {})
            record.event("attempt", number=1, workers=[{"rank": 0}, {"rank": 1}])
            for iteration, metrics in enumerate(reports):
                for rank in (0, 1):
                    record.report(iteration, rank, {**metrics, "rank": rank})
            if outcome is not None:
                record.write_outcome(outcome, error)
            for rank, text in (logs or {}).items():
                Path(record.log_path(f"rank-{rank}.log")).write_text(text)
        run_json = directory / "run.json"
        text = run_json.read_text()
        if pid is not None:
            text = text.replace(f'"pid":{os.getpid()}', f'"pid":{pid}')
        if host is not None:
            text = text.replace(f'"hostname":"{socket.gethostname()}"', f'"hostname":"{host}"')
        if process is not None:
            described = json.loads(text)
            described["environment"]["process"] = process
            text = json.dumps(described)
        run_json.write_text(text)
        return directory

    return write
