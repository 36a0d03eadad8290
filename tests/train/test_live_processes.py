"""Live actions on real workers, as another process asks for them: stacks of a hang, each kind of
profile, and a worker that is killed.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import syncline
from syncline import runs
from syncline.dashboard.run_control import ActionFailed, LiveRun, reach
from syncline.runs.outliers import parse_frames, stack_groups
from syncline.testing.waiting import eventually
from syncline.train import FailureConfig, RunConfig, ScalingConfig, get_context, report
from syncline.train.torch import TorchTrainer

pytestmark = pytest.mark.processes


class Training:
    """A training of two workers that goes on in a thread of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=lambda: None)

    def live(self) -> LiveRun:
        """Its running side, once its workers train."""
        return eventually(self._answers, what="the workers train")

    def _answers(self) -> LiveRun | None:
        if self.thread.is_alive() and (self.path / "run.json").exists():
            found = reach(runs.open(self.path))
            try:
                return found if found is not None and found.members() else None
            except ActionFailed:
                return None
        assert self.thread.is_alive(), self.error
        return None

    def reports(self) -> int:
        """How many there are so far."""
        return runs.open(self.path).summary.reports


@contextmanager
def training(function: Any, path: Path, **options: Any) -> Iterator[Training]:
    """Run it until the block ends; the function ends when there is a file `over` beside its run
    directory.
    """
    over = path.parent / "over"
    made = Training(path)
    trainer = TorchTrainer(
        function,
        train_loop_config={"over": str(over)},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(name=path.name, storage_path=str(path.parent), **options),
    )

    def fit() -> None:
        try:
            trainer.fit()
        except BaseException as error:
            made.error = error

    made.thread = threading.Thread(target=fit)
    made.thread.start()
    try:
        yield made
    finally:
        over.touch()
        made.thread.join(120)
        assert not made.thread.is_alive()


def steps(config: dict[str, Any]) -> None:
    """Trains something small, with a function and an allocation to be found in profiles."""
    import torch

    kept: list[Any] = []

    def squares_to_be_seen() -> int:
        return sum(number * number for number in range(20_000))

    def allocation_to_be_seen() -> None:
        kept[:] = [bytearray(3_000_000) for _ in range(3)]

    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    while not os.path.exists(config["over"]):
        squares_to_be_seen()
        allocation_to_be_seen()
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
        report({"loss": 1.0})


def hang(config: dict[str, Any]) -> None:
    """Rank 1 stays away from what rank 0 waits in."""
    import torch
    import torch.distributed as dist

    while get_context().get_world_rank() == 1 and not os.path.exists(config["over"]):
        time.sleep(0.5)  # stays away
    dist.all_reduce(torch.ones(1))


@pytest.fixture(scope="module", autouse=True)
def engine() -> None:
    syncline.init(num_cpus=2, ignore_reinit_error=True)


def test_the_rank_that_the_other_waits_for_is_the_odd_one(tmp_path: Path) -> None:
    with training(hang, tmp_path / "hang") as run:
        live = run.live()

        def waiting() -> dict[str, str] | None:
            # The line `dist.all_reduce(torch.ones(1))` is in the stack before the call, too.
            stacks = live.stacks()
            is_called = any(each.function == "all_reduce" for each in parse_frames(stacks["0"]))
            return stacks if is_called and "time.sleep" in stacks["1"] else None

        found = stack_groups(eventually(waiting, what="one rank waits, the other sleeps"))
        assert [(place.members, place.is_outlier, place.waits) for place in found] == [
            (("1",), True, False),
            (("0",), False, True),
        ]
        assert found[0].stack.lstrip().startswith(f'File "{__file__}"')
        assert list(live.stacks(["1"])) == ["1"]
    assert run.error is None


def test_profiles_of_each_kind_are_files_of_the_run_and_the_training_goes_on(
    tmp_path: Path,
) -> None:
    with training(steps, tmp_path / "steps") as run:
        live = run.live()
        assert [worker["rank"] for worker in live.members()] == [0, 1]
        eventually(run.reports, what="torch is imported and the first step is done")

        svg = run.path / live.profile(0, "cpu", seconds=2)
        assert re.fullmatch(r"\d{8}-\d{6}-rank-0-cpu\.svg", svg.name)
        assert ElementTree.parse(svg).getroot().tag.endswith("svg")
        assert "squares_to_be_seen" in svg.read_text()
        goes_on(run)

        html = (run.path / live.profile(1, "memory", seconds=1)).read_text()
        assert "allocation_to_be_seen" in html
        assert not re.search(r"<(script|link|img)[^>]*(src|href)=[\"']https?:", html)
        goes_on(run)

        trace = json.loads(
            gzip.decompress((run.path / live.profile(1, "torch", steps=3)).read_bytes())
        )
        names = [event.get("name") for event in trace["traceEvents"]]
        assert {"step 1", "step 2", "step 3"} <= set(names)
        assert "step 4" not in names
        goes_on(run)

        with pytest.raises(ActionFailed, match="only ranks 0-1"):
            live.profile(2, "cpu")
    assert run.error is None
    assert len(list((run.path / "profiles").iterdir())) == 3
    assert reach(runs.open(run.path)) is None


def goes_on(run: Training) -> None:
    before = run.reports()
    eventually(lambda: run.reports() > before, what="the training goes on")


def test_a_worker_killed_while_it_is_profiled_ends_the_profile_with_an_error(
    tmp_path: Path,
) -> None:
    failure_config = FailureConfig(max_failures=1)
    with training(steps, tmp_path / "killed", failure_config=failure_config) as run:
        live = run.live()
        pid = live.members()[1]["pid"]
        asked: list[str] = []

        def profile() -> None:
            try:
                asked.append(live.profile(1, "cpu", seconds=300))
            except ActionFailed as error:
                asked.append(str(error))

        asking = threading.Thread(target=profile)
        asking.start()
        spy = eventually(lambda: spies_on(pid), what="py-spy looks")
        os.kill(pid, signal.SIGKILL)
        asking.join(60)
        assert "ended" in asked[0]
        eventually(
            lambda: not Path(f"/proc/{spy}").exists() or is_zombie(spy),
            what="py-spy ends with what it looks at",
        )
        eventually(lambda: successor_of(pid, run.live()), what="the run goes on with other workers")
        eventually(
            lambda: "in steps" in run.live().stacks()["1"], what="they can be looked at, too"
        )
    assert run.error is None


def successor_of(pid: int, live: LiveRun) -> bool:
    """Return True once rank 1 is another process; between attempts there is none."""
    try:
        return live.members()[1]["pid"] != pid
    except ActionFailed:
        return False


def spies_on(pid: int) -> int | None:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if command[0].endswith(b"py-spy") and str(pid).encode() in command:
                return int(entry.name)
    return None


def is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
