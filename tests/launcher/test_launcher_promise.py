"""The promise of `syncline run`: a script for torchrun runs unchanged, and leaves a record."""

import pytest

from syncline import runs


@pytest.mark.promise
def test_script_for_torchrun_runs_unchanged_and_leaves_a_record(launcher):
    one = launcher("syncline")
    ended = one.run("--nproc-per-node", "2", "--name", "job", "ddp.py")
    assert ended.code == 0, ended.stderr
    assert ended.stderr == ""
    assert len(ended.lines) == 8
    losses = {line.rpartition(" ")[2] for line in ended.lines if "epoch 2" in line}
    assert len(losses) == 2
    assert all(0 < float(loss) < 0.5 for loss in losses)
    run = runs.open(one.folder / "runs" / "job")
    assert run.state == "finished"
    assert sorted(log.member for log in run.logs) == ["rank-0", "rank-1"]
