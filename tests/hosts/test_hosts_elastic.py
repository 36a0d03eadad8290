"""An elastic run on several hosts: nodes join and die; each epoch has each sample once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from syncline.testing import eventually
from tests.hosts.lab import CPUS, Lab, facts_of

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.processes,
    pytest.mark.xdist_group("hosts"),
    pytest.mark.timeout(240),
]

ROWS = 240
PROGRAM = f"""
from syncline import data

data.DataContext.get_current().seed = 11


def loop():
    "Record the ids of each epoch until the test stops the run; save also in mid-epoch."
    context = train.get_context()
    rank, ranks = context.get_world_rank(), context.get_world_size()
    epoch, step, seen = 0, 0, {{}}
    checkpoint = train.get_checkpoint()
    if checkpoint is not None:
        for file in Path(checkpoint.path).glob("rank-*.json"):
            saved = json.loads(file.read_text())
            epoch, step = saved["epoch"], saved["step"]
            if saved["rank"] % ranks == rank:
                for number, ids in saved["seen"].items():
                    seen.setdefault(number, []).extend(ids)

    def save():
        with tempfile.TemporaryDirectory() as directory:
            state = {{"rank": rank, "epoch": epoch, "step": step, "seen": seen}}
            Path(directory, f"rank-{{rank}}.json").write_text(json.dumps(state))
            train.report({{"epoch": epoch}}, train.Checkpoint.from_directory(directory))
        train.collective.barrier()
        mark(f"at-{{rank}}", ranks=ranks, step=step, host=socket.gethostname())

    while not train.collective.broadcast_from_rank_zero((shared / "enough").exists()):
        for batch in train.get_dataset_shard("train").iter_batches(batch_size=6):
            seen.setdefault(str(epoch), []).extend(batch["id"].tolist())
            step += 1
            time.sleep(0.02)
            if step % 2 == 0:
                save()
        epoch, step = epoch + 1, 0
        save()


result = train.DataParallelTrainer(
    loop,
    datasets={{"train": data.range({ROWS}, override_num_blocks=4).random_shuffle(num_blocks=3)}},
    scaling_config=train.ScalingConfig(
        num_workers=(1, 4),
        resources_per_worker={{"CPU": 1, "away": 1}},
        elastic_resize_monitor_interval_s=0.2,
    ),
    run_config=train.RunConfig(
        name="run",
        storage_path=str(shared / "runs"),
        failure_config=train.FailureConfig(max_failures=1),
    ),
).fit()
tell(path=result.checkpoint.path)
"""


def _at(shared: Path, rank: int) -> dict[str, Any]:
    """Return the state of a rank at its last checkpoint."""
    mark = shared / f"at-{rank}"
    found: dict[str, Any] = json.loads(mark.read_text()) if mark.exists() else {"ranks": 0}
    return found


def _hosts_of(shared: Path, ranks: int) -> list[str]:
    """Wait until all `ranks` have saved in mid-epoch; return the host of each."""

    def found() -> list[str]:
        places = [_at(shared, rank) for rank in range(ranks)]
        return [place["host"] for place in places if place["ranks"] == ranks and place["step"]]

    return eventually(
        lambda: hosts if len(hosts := found()) == ranks else [],
        what=f"training with {ranks} workers",
    )


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Path]:
    """The program's directory; at the end, stop the run, which would outlive its program."""
    yield tmp_path
    (tmp_path / "enough").touch()


def test_the_run_grows_with_a_new_node_and_shrinks_with_a_dead_one(lab: Lab, shared: Path) -> None:
    lab.kill("second")
    with lab.program(PROGRAM, shared=shared) as program:
        before = _hosts_of(shared, CPUS)
        lab.start("second")
        joined = _hosts_of(shared, 2 * CPUS)
        lab.kill("first")
        eventually(lambda: "failed (failure 1 of 1)" in program.stderr, what="a failed attempt")
        left = _hosts_of(shared, CPUS)
        (shared / "enough").touch()
        facts = facts_of(program)
    if lab.rig.why_not is None:
        assert (set(before), set(joined), set(left)) == (
            {"host-2"},
            {"host-2", "host-3"},
            {"host-3"},
        )
    states = [json.loads(file.read_text()) for file in Path(facts["path"]).glob("rank-*.json")]
    seen = {
        epoch: Counter(number for state in states for number in state["seen"].get(epoch, ()))
        for epoch in states[0]["seen"]
    }
    assert seen == {str(epoch): Counter(range(ROWS)) for epoch in range(len(seen))}
