"""The run record of a job, written without processes."""

import argparse
import os

import pytest

from syncline import runs
from syncline.core import control
from syncline.launcher import options
from syncline.launcher.messages import StartRank
from syncline.launcher.run_observer import RunObserver
from syncline.launcher.supervisor import RunningRank


class Output:
    """Stands for the output of a worker."""

    def __init__(self, text: str) -> None:
        self.text = text

    def tail(self) -> str:
        return self.text


def request(rank: int, restarts: int = 0, node: int = 0) -> StartRank:
    return StartRank(
        local_rank=rank,
        rank=rank,
        restarts=restarts,
        world_size=2,
        local_world_size=2,
        group_rank=node,
        command=("python", "-u", "train.py"),
        work=None,
        variables={"MASTER_ADDR": "localhost"},
        removed=(),
        stdout="",
        stderr="",
    )


def group(restarts: int = 0, text: str = "") -> dict[int, RunningRank]:
    return {
        rank: RunningRank(request=request(rank, restarts), pid=os.getpid(), output=Output(text))
        for rank in (0, 1)
    }


@pytest.fixture
def parsed(tmp_path, monkeypatch) -> argparse.Namespace:
    monkeypatch.setenv("SYNCLINE_STORAGE_PATH", str(tmp_path / "runs"))
    monkeypatch.setenv("SYNCLINE_TMPDIR", str(tmp_path / "programs"))
    line = ["-n", "2", "--max-restarts", "3", "--hang-report-s", "0", "dir/train.py", "--lr", "1"]
    return options.parse(line)


def only_run(tmp_path):
    (path,) = (tmp_path / "runs").iterdir()
    return runs.open(path)


def test_restart_is_recorded_and_printed(parsed, tmp_path, capsys):
    observer = RunObserver(parsed)
    for rank in (0, 1):
        assert observer.log(request(rank)) is not None
    first = group(text="Traceback (most recent call last):\nValueError: bad\n")
    observer.started(first, 0)
    observer.ended(first[1], 1)
    observer.ended(first[0], -15)
    observer.started(group(1), 1)
    observer.close("finished", None)
    printed = capsys.readouterr().err
    assert "train.py failed: rank 1" in printed
    assert "restarted (1 of 3)" in printed
    run = only_run(tmp_path)
    assert run.name.startswith("train-")
    assert run.state == "finished"
    one, two = run.attempts
    assert one.failures == {"1": "Traceback (most recent call last):\nValueError: bad"}
    assert two.failures == {}


def test_log_keeps_broken_characters_and_split_ones(parsed, tmp_path):
    observer = RunObserver(parsed)
    log = observer.log(request(0))
    euro = "€\n".encode()
    for data in (b"a\xff\n", euro[:1], euro[1:], b"no end"):
        log(data)
    observer.close("finished", None)
    text = (tmp_path / "runs" / only_run(tmp_path).name / "logs/rank-0.log").read_text()
    assert text == "a\ufffd\n€\nno end"


def test_other_nodes_have_records_of_their_own(parsed, tmp_path):
    parsed.name = "job"
    for node in (0, 1):
        observer = RunObserver(parsed)
        observer.log(request(node, node=node))
        observer.close("finished", None)
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["job", "job-node-1"]


def test_options_of_a_uri_do_not_belong_to_the_path(parsed, tmp_path, capsys, monkeypatch):
    served = []
    monkeypatch.setattr(control, "serve", lambda subject, _: served.append(subject) or (lambda: 0))
    parsed.name, parsed.storage_path = "job", f"file://{tmp_path}/runs?password=hunter2"
    observer = RunObserver(parsed)
    observer.log(request(0))
    assert served == [f"run:{tmp_path}/runs/job"]
    assert observer.remark().endswith("syncline logs job")
    observer.close("finished", None)
    assert capsys.readouterr().err == ""
    assert only_run(tmp_path).name == "job"
    assert "hunter2" not in (tmp_path / "runs" / "job" / "run.json").read_text()


def test_workers_are_sampled(parsed, tmp_path):
    now = [0.0]
    observer = RunObserver(parsed, lambda: now[0])
    observer.log(request(0))
    workers = group()
    observer.started(workers, 0)
    for now[0] in (0.5, 1.5, 7.0):
        observer.tick(workers)
    observer.close("finished", None)
    samples = only_run(tmp_path).samples
    assert [len(samples[rank]) for rank in ("0", "1")] == [2, 2]


def test_module_gives_the_name(parsed, tmp_path):
    parsed.module, parsed.training_script = True, "package.train"
    observer = RunObserver(parsed)
    observer.log(request(0))
    observer.close("finished", None)
    assert only_run(tmp_path).name.startswith("package.train-")
