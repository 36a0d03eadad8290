"""The fault matrix: each `TrainingFault` with each way of parallelism, and the verdict of the run.

    for trial in run_matrix(directory, trials=3):
        print(trial)

A trial trains with four ranks on this machine until the record of the run has a verdict, or a
limit has passed. It needs an engine (`syncline.init(num_cpus=4)`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from syncline import runs
from syncline.core import control
from syncline.records import dataclass
from syncline.runs.verdicts import Verdict, verdicts
from syncline.testing import emulated_network
from syncline.testing.torch_training import PARALLELISMS, TIMEOUT_S, Parallelism, train_with_fault
from syncline.testing.training_faults import FaultPlan, TrainingFault
from syncline.train import FailureConfig, RunConfig, ScalingConfig
from syncline.train.torch import TorchConfig, TorchTrainer

RANKS = 4
LIMIT_S = 30.0
"""Longest wait for a verdict."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Outcome of one run with one fault, or none."""

    parallelism: Parallelism
    plan: FaultPlan
    verdict: Verdict | None
    """The last verdict when the trial ended."""
    seconds: float
    """From the step of the fault to the right verdict, or to the end of the trial."""
    error: str
    """First line of the run's error; empty if it had none."""
    steps: int

    @property
    def is_right(self) -> bool:
        """True if the verdict names the rank and the cause; without a fault, if there is none."""
        if self.plan.fault is None:
            return self.verdict is None
        return _is_right(self.plan, self.verdict)

    def __str__(self) -> str:
        mark = "right" if self.is_right else "WRONG"
        said = self.verdict.title if self.verdict is not None else "no verdict"
        return (
            f"{mark} {self.parallelism} {self.plan.fault or 'clean'} rank {self.plan.rank}: {said} "
            f"after {self.seconds:.1f} s, {self.steps} steps {self.error[:120]}"
        )


def run_matrix(
    directory: Path,
    *,
    faults: Sequence[TrainingFault | None] | None = None,
    parallelisms: Sequence[Parallelism] = PARALLELISMS,
    trials: int = 1,
    pause_s: float = 0.0,
) -> Iterator[Trial]:
    """Run the trials one after the other; the faulty rank differs between repetitions.

    Args:
        directory: Directory for the run directories.
        faults: Faults; None among them stands for a run without a fault. By default all that this
            process may inject: `TrainingFault.NETWORK_DELAY` needs root on Linux.
        parallelisms: Ways of parallelism.
        trials: Number of repetitions.
        pause_s: Least time of a step in seconds.
    """
    if faults is None:
        is_possible = emulated_network.obstacle() is None
        faults = [
            each for each in TrainingFault if is_possible or each is not TrainingFault.NETWORK_DELAY
        ]
    for repetition in range(trials):
        for fault in faults:
            for parallelism in parallelisms:
                plan = FaultPlan(fault=fault, rank=(1 + repetition) % RANKS, first_step=20)
                name = f"{parallelism}-{fault or 'clean'}-{repetition}".replace(" ", "-")
                yield run_trial(directory / name, parallelism, plan, pause_s=pause_s)


def run_trial(
    path: Path,
    parallelism: Parallelism,
    plan: FaultPlan,
    *,
    pause_s: float = 0.0,
    limit_s: float = LIMIT_S,
) -> Trial:
    """Train with a fault until the record has the right verdict or `limit_s` have passed.

    Without a fault, the training lasts for `limit_s`.
    """
    if plan.fault is not TrainingFault.NETWORK_DELAY:
        return _run_trial(path, parallelism, plan, {"pause_s": pause_s}, limit_s)
    with emulated_network.emulated_network(RANKS) as network:
        settings = {"pause_s": pause_s, "network": network}
        return _run_trial(path, parallelism, plan, settings, limit_s)


def _run_trial(
    path: Path,
    parallelism: Parallelism,
    plan: FaultPlan,
    settings: Mapping[str, object],
    limit_s: float,
) -> Trial:
    stop = path.parent / f"{path.name}.stop"
    stop.unlink(missing_ok=True)
    errors: list[BaseException] = []
    trainer = TorchTrainer(
        train_with_fault,
        train_loop_config={
            "parallelism": parallelism,
            "plan": plan.to_json(),
            "steps": 1_000_000,
            "stop": str(stop),
            **settings,
        },
        torch_config=TorchConfig(timeout_s=TIMEOUT_S),
        scaling_config=ScalingConfig(num_workers=RANKS),
        run_config=RunConfig(
            name=path.name,
            storage_path=str(path.parent),
            failure_config=FailureConfig(max_failures=0),
        ),
    )

    def fit() -> None:
        try:
            trainer.fit()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=fit, name="syncline-trial")
    thread.start()
    began = _first_step(path, plan, thread)
    verdict = None
    while True:
        is_over = not thread.is_alive() or time.monotonic() - began > limit_s
        verdict = _latest(path) or verdict
        if is_over or (plan.fault is not None and _is_right(plan, verdict)):
            break
        if plan.fault is None and verdict is not None:
            break
        time.sleep(0.05)
    seconds = time.monotonic() - began
    steps = runs.open(path).summary.reports
    stop.touch()
    _end(thread, path)
    verdict = _latest(path) or verdict
    text = str(errors[0]) if errors else ""
    return Trial(
        parallelism=parallelism,
        plan=plan,
        verdict=verdict,
        seconds=seconds,
        error=text,
        steps=steps,
    )


def _first_step(path: Path, plan: FaultPlan, thread: threading.Thread) -> float:
    """Wait for the step before the fault; return the time."""
    while thread.is_alive():
        if (path / "run.json").exists() and runs.open(path).summary.reports >= plan.first_step:
            break
        time.sleep(0.02)
    return time.monotonic()


def _latest(path: Path) -> Verdict | None:
    found = verdicts(runs.open(path).events) if (path / "run.json").exists() else []
    return found[-1] if found else None


def _is_right(plan: FaultPlan, verdict: Verdict | None) -> bool:
    return (
        verdict is not None
        and str(verdict.cause) == str(plan.fault)
        and verdict.ranks == (plan.rank,)
    )


def _end(thread: threading.Thread, path: Path) -> None:
    """End the training: by its stop file, or by a request if ranks hang."""
    thread.join(2.0)
    if thread.is_alive():
        subject = f"run:{path}"
        program = control.find(subject)
        if program is not None:
            with suppress(control.ProgramUnreachable):  # it has just ended
                control.request(program, subject, "stop", {}, 10.0)
    thread.join(60.0)
    if thread.is_alive():
        raise TimeoutError(f"the training in {path} did not end within 60 s of a stop request")
