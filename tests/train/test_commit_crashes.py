"""SIGKILL at every step of every commit: what the list names is whole then, and the next start
leaves nothing else.

One program forks a process for each kill, so that hundreds of them take seconds; it is itself
without threads.
"""

from __future__ import annotations

import pytest

from syncline.testing.programs import run_program

pytestmark = pytest.mark.processes

PROGRAM = """
import itertools, os, signal, sys
from pathlib import Path

from pyarrow import fs

from syncline import faults
from syncline.train import Checkpoint, CheckpointConfig, Result, RunConfig, ScalingConfig
from syncline.train.backend import BackendConfig
from syncline.train.controller.attempt import CompleteReport
from syncline.train.controller.run_recorder import RunRecorder
from syncline.train.workers.messages import CheckpointPart, Reported
from syncline.train.workers.spec import RunSpec

KIND, NAME = sys.argv[1], sys.argv[2] or None
RANKS, FILES, REPORTS = 2, 2, 2
POINTS = sys.argv[3].split()


def spec(root):
    here = fs.LocalFileSystem()
    if KIND != "local":
        here = fs.SubTreeFileSystem(str(root), here)
    config = RunConfig(
        name="run",
        storage_path=str(root / "storage") if KIND == "local" else "storage",
        storage_filesystem=here,
        checkpoint_config=CheckpointConfig(num_to_keep=1),
    )
    return RunSpec(
        train_function=print, takes_config=False, train_config={},
        backend_config=BackendConfig(), scaling_config=ScalingConfig(),
        run_config=config, resume_from_checkpoint=None, metadata=None, validation_config=None,
    )


def report(recorder, root, index):
    parts = []
    for rank in range(RANKS):
        source = root / f"source-{os.getpid()}-{index}-{rank}"
        source.mkdir()
        for number in range(FILES):
            (source / f"file-{rank}-{number}").write_text(f"report {index}")
        name = NAME or f"checkpoint_{index:06d}"
        token = f"{os.getpid()}-{index}"
        staged = recorder.storage.stage(Checkpoint(str(source)), name, rank=rank, token=token)
        parts.append(CheckpointPart(dir_name=name, staged=staged))
    recorder.record(0, Reported(index=index, metrics={"index": index}, time=1.0))
    complete = CompleteReport(index=index, metrics=({"index": index},) * RANKS, parts=tuple(parts))
    recorder.commit(complete)


def train(root, point, time):
    faults.configure(f"{point}=kill:{time}")
    recorder = RunRecorder(spec(root))
    for index in range(REPORTS):
        report(recorder, root, index)
    recorder.close("finished")


def whole(checkpoint):
    with checkpoint.as_directory() as directory:
        contents = {path.name: path.read_text() for path in Path(directory).iterdir()}
    expected = [f"file-{rank}-{number}" for rank in range(RANKS) for number in range(FILES)]
    assert sorted(contents) == expected, contents
    assert len(set(contents.values())) == 1, contents


def look(root, point, time):
    run = root / "storage" / "run"
    config = spec(root).run_config
    before = Result.from_path(f"{config.storage_path}/run", config.storage_filesystem)
    if before.checkpoint is not None:
        whole(before.checkpoint)
    for checkpoint, _ in before.best_checkpoints:
        whole(checkpoint)
    unfinished = set(run.glob(".tmp-*"))
    recorder = RunRecorder(spec(root))
    assert recorder.latest == before.checkpoint, (recorder.latest, before.checkpoint)
    listed = {Path(entry.checkpoint.path).name for entry in recorder.manager.registered}
    found = {path.name for path in run.iterdir() if path.is_dir()}
    assert found == listed, (found, listed)
    assert not unfinished & set(run.glob(".tmp-*")), list(run.iterdir())
    report(recorder, root, recorder.next_index)
    whole(recorder.latest)
    assert len(recorder.manager.registered) == 1
    assert len([path for path in run.iterdir() if path.is_dir()]) == 1, list(run.iterdir())


def in_process(function, *args):
    child = os.fork()
    if child == 0:
        try:
            function(*args)
            os._exit(0)
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


for point in POINTS:
    for time in itertools.count(1):
        root = Path(f"{point}-{time}").absolute()
        root.mkdir()
        code = in_process(train, root, point, time)
        if code == 0:
            break
        assert code == -signal.SIGKILL, (point, time, code)
        assert in_process(look, root, point, time) == 0, (point, time)
    print(point, time - 1, "kills")
    assert time > 1, f"{point} is never reached"
print("done")
"""

LOCAL = (
    "train.stage.file train.before_commit train.commit.merged train.commit.marked "
    "train.after_commit train.listed train.confirmed train.delete.hidden train.surplus_deleted"
)
REPLACING = "train.commit.marked train.commit.exchanged train.after_commit train.listed"
REMOTE = (
    "train.stage.file train.before_commit train.after_commit train.listed train.confirmed "
    "train.surplus_deleted"
)


@pytest.mark.promise
@pytest.mark.parametrize(
    ("kind", "name", "points"),
    [
        ("local", "", LOCAL),
        ("local", "last", REPLACING),
        ("remote", "", REMOTE),
        ("remote", "last", REMOTE),
    ],
    ids=["local", "local, one name", "remote", "remote, one name"],
)
def test_a_kill_at_any_step_leaves_whole_checkpoints_and_the_next_start_nothing_else(
    kind: str, name: str, points: str
) -> None:
    with run_program(PROGRAM, kind, name, points) as program:
        assert "done" in program.wait().check().stdout
