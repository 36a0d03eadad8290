"""One job: launcher, agent and record together, and the exit code."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path
from typing import Any

from syncline.core.error_messages import exit_cause
from syncline.launcher import failure_text
from syncline.launcher.run_observer import RunObserver
from syncline.launcher.supervisor import Outcome, Supervisor
from syncline.launcher.template import StartedAgent, Template


def run(
    template: Template, agent: StartedAgent, given: argparse.Namespace, variables: dict[str, str]
) -> int:
    """Run the job of a command line, with these environment variables; return the exit code."""
    observer = RunObserver(given)
    supervisor = Supervisor(template, agent, observer, variables, _signals(given))
    observer.stop, observer.send = supervisor.stop, supervisor.send
    try:
        outcome = supervisor.run()
    except BaseException as error:
        observer.close("aborted", str(error) or type(error).__name__)
        raise
    return _end(given, observer, outcome)


def _end(given: argparse.Namespace, observer: RunObserver, outcome: Outcome) -> int:
    """Print why the job failed, complete the record, and return the exit code."""
    script = Path(given.training_script).name
    if outcome.failed is not None:
        tails = {rank: worker.output.tail() for rank, worker in outcome.workers.items()}
        text = failure_text.failure_text(script, outcome.failed.failures, tails)
        observer.failed(outcome.failed.failures, tails)
        observer.close("errored", text)
        _print(text + observer.remark())
    elif outcome.refused is not None:
        reason = outcome.refused.reason
        observer.close("aborted" if reason.startswith("stopped by") else "errored", reason)
        if outcome.refused.traceback:
            print(outcome.refused.traceback, file=sys.stderr, end="")
        _print(f"{script}: {reason}{observer.remark()}")
    elif outcome.exitcode:
        text = f"{script} failed: the agent {exit_cause(outcome.exitcode)}"
        observer.close("errored", text)
        _print(text + observer.remark())
    else:
        observer.close("finished", None)
    if outcome.exitcode >= 0:
        return outcome.exitcode
    signal.signal(-outcome.exitcode, signal.SIG_DFL)
    os.kill(os.getpid(), -outcome.exitcode)
    return 128 - outcome.exitcode


def _signals(given: argparse.Namespace) -> tuple[signal.Signals, ...]:
    names = [name.strip() for name in given.signals_to_handle.split(",")]
    known: dict[str, Any] = {each.name: each for each in signal.Signals}
    return tuple(known[name] for name in names if name in known)


def _print(text: str) -> None:
    print(f"syncline run: {text}", file=sys.stderr, flush=True)
