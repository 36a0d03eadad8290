"""`syncline run --metric`: runs a program with a time budget and compares it with earlier runs.

    record with the diff of the working tree -> program -> verdict -> working tree kept or restored

Each step is written to the record before the next one begins, see `runs/experiments.py`. The
program is the command after `--`, or a job of the launcher: `syncline run --metric loss -n 2 a.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from syncline import faults, settings
from syncline.core.error_messages import exit_cause
from syncline.launcher import options
from syncline.launcher.experiment_process import ExperimentProcess
from syncline.launcher.metric_reader import MetricReader
from syncline.launcher.working_tree import GitError, WorkingTree
from syncline.runs.experiments import DIFF_FILE, Best, Experiment, Ledger, Revert, Verdict, best_of
from syncline.runs.json_values import JsonObject
from syncline.runs.rank_log import RankLog
from syncline.runs.record_files import LocalFiles
from syncline.runs.run_directory import RunDirectory
from syncline.runs.secrets import masked_code

CODES = {Verdict.BETTER: 0, Verdict.WORSE: 0, Verdict.OVER_BUDGET: 124}
"""Exit codes; that of the program, or 1, if it failed."""
_NAME = re.compile(r"\w[\w-]*(\.[\w-]+)*")


class ExperimentError(Exception):
    """The experiment cannot begin."""


def main(given: argparse.Namespace, arguments: Sequence[str]) -> int:
    """Run one experiment and return the exit code of the command."""
    try:
        check(given)
        return _Run(given, program(given, arguments)).run()
    except (ExperimentError, GitError, OSError) as error:
        print(f"syncline run: {error}", file=sys.stderr, flush=True)
        return 1


def check(given: argparse.Namespace) -> None:
    """Check the options of an experiment.

    Raises:
        ExperimentError: One is missing, or has no effect.
    """
    if not given.metric:
        raise ExperimentError(
            "an experiment needs the name of the metric that its output contains, such as "
            "`--metric val_loss`, because --budget, --group, --json and --keep-best compare runs"
        )
    if given.name and (not _NAME.fullmatch(given.name) or given.name.endswith(".lock")):
        raise ExperimentError(
            f"--name {given.name!r} names a directory and a reference of git: use letters, digits, "
            "`_` and `-`, with single dots between them, and no `.lock` at the end"
        )
    if given.no_record:
        raise ExperimentError("--no-record has no effect with --metric, which compares records")
    if given.storage_path and "://" in given.storage_path:
        raise ExperimentError(
            f"--storage-path {given.storage_path}: experiments are recorded in local directories "
            "only, because remote storage has no locks"
        )


def program(given: argparse.Namespace, arguments: Sequence[str]) -> list[str]:
    """Return the command line of the program: what follows `--`, or a job of the launcher."""
    rest = [given.training_script, *given.training_script_args]
    head = list(arguments[: len(arguments) - len(rest)])
    if head and head[-1] == "--":
        return rest
    kept = options.without_record(head)
    return [sys.executable, "-m", "syncline", "run", "--no-record", *kept, *rest]


class _Run:
    """One experiment."""

    def __init__(self, given: argparse.Namespace, command: Sequence[str]) -> None:
        self._given = given
        self._command = command
        self._storage = settings.local_path(given.storage_path or settings.storage_path())
        try:
            self._ledger = Ledger(self._storage)
        except OSError as error:
            raise ExperimentError(
                f"experiments cannot be recorded in {self._storage}: {error.strerror}. Pass "
                "another directory to --storage-path"
            ) from error
        self._tree = WorkingTree.around(os.getcwd(), without=self._storage)
        if given.keep_best and self._tree is None:
            raise ExperimentError(
                f"--keep-best restores files with git, but {os.getcwd()} is in no repository: run "
                "`git init`, or omit the option"
            )
        self._interrupted = False

    def run(self) -> int:
        with self._ledger.locked():
            if self._tree is not None and self._given.keep_best:
                self._finish_restoring()
            experiment, record = self._begin()
        record.event("started", continued=False, next_report=0)
        record.write_details_soon()
        faults.reach("experiment.begun")
        experiment = self._train(experiment, record)
        faults.reach("experiment.trained")
        with self._ledger.locked():
            experiment = self._decide(experiment)
            faults.reach("experiment.decided")
            if experiment.revert is Revert.PENDING and self._tree is not None:
                experiment = self._restore(experiment, self._tree)
        self._close(record, experiment)
        self._print(experiment)
        code = experiment.exit_code or 0
        return CODES.get(experiment.verdict or Verdict.FAILED, code if code > 0 else 1)

    # -- begin

    def _begin(self) -> tuple[Experiment, RunDirectory]:
        given, tree = self._given, self._tree
        words = self._command
        stem = next((word for word in words if word.endswith(".py")), words[0])
        name = given.name or options.default_name(Path(stem).stem)
        experiment = Experiment(
            run=name,
            group=given.group or (tree.root if tree is not None else os.getcwd()),
            number=0,
            command=tuple(map(masked_code, words)),
            metric=given.metric,
            mode=given.mode,
            budget_s=given.budget,
            started=time.time(),
            directory=os.getcwd(),
            keep_best=given.keep_best,
        )
        earlier = self._ledger.comparable(experiment)
        experiment = replace(experiment, number=len(earlier) + 1, best=best_of(earlier))
        directory = self._directory(experiment)
        try:
            os.mkdir(directory)
        except FileExistsError:
            raise ExperimentError(
                f"there is a run {name!r} in {self._storage}: omit --name, or choose another one"
            ) from None
        # First, so that every experiment is in the list of runs.
        record = RunDirectory(LocalFiles(directory))
        facts = {"command": list(experiment.command), "metric": experiment.metric}
        record.write_run(name, {"experiment": facts}, detailed=False)
        if tree is not None:
            snapshot = tree.snapshot()
            tree.keep(snapshot, name, f"experiment {name}: {shlex.join(words)}")
            diff = tree.diff(tree.head_tree(), snapshot)
            text = masked_code(diff.decode(errors="surrogateescape"))
            LocalFiles(directory).write(DIFF_FILE, text.encode(errors="surrogateescape"))
            experiment = replace(experiment, revision=tree.revision, tree=snapshot)
        self._ledger.write(experiment)
        return experiment, record

    # -- the program

    def _train(self, experiment: Experiment, record: RunDirectory) -> Experiment:
        log = RankLog(record.log_path("rank-0.log"))
        reports = 0

        def report(metrics: Mapping[str, float]) -> None:
            nonlocal reports
            with suppress(OSError):  # the output is read on without a record of its metrics
                record.report(reports, 0, metrics)
            reports += 1

        reader = MetricReader(experiment.metric, report)

        def on_line(line: str) -> None:
            log.write(f"{line}\n")
            reader.read(line)

        began = time.monotonic()
        shown = sys.stderr if self._given.as_json else sys.stdout
        try:
            process = ExperimentProcess(
                self._command, self._variables(experiment), (shown, sys.stderr), on_line
            )
        except OSError as error:
            log.close()
            return replace(
                experiment,
                verdict=Verdict.FAILED,
                error=f"{self._command[0]!r} cannot be started: {error.strerror}",
                took_s=0.0,
            )
        self._pass_signals(process)
        code, is_over = process.wait(experiment.budget_s)
        log.close()
        value = reader.metrics.get(experiment.metric)
        return replace(
            experiment,
            exit_code=code,
            took_s=time.monotonic() - began,
            value=value,
            metrics=dict(reader.metrics),
            verdict=Verdict.OVER_BUDGET if is_over else Verdict.FAILED if code else None,
            error=self._error(experiment, code, is_over, value, process.tail),
        )

    def _error(
        self, experiment: Experiment, code: int, is_over: bool, value: float | None, tail: str
    ) -> str:
        if is_over:
            return f"the program was ended after its budget of {experiment.budget_s:g} s"
        if self._interrupted:
            return "the experiment was interrupted"
        if code:
            return f"the program {exit_cause(code)}:\n{tail}"
        if value is None:
            return (
                f"the output contains no value of {experiment.metric!r}: print "
                f"`{experiment.metric}=VALUE`, or a JSON object with it, in a line"
            )
        return ""

    def _pass_signals(self, process: ExperimentProcess) -> None:
        def end(number: int, frame: object) -> None:
            self._interrupted = True
            process.signal(number)

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, end)

    def _variables(self, experiment: Experiment) -> dict[str, str]:
        return {
            "PYTHONUNBUFFERED": "1",
            **settings.inherited_environment(),
            "SYNCLINE_EXPERIMENT": experiment.run,
        }

    # -- verdict

    def _decide(self, experiment: Experiment) -> Experiment:
        """Compare with the best experiment, which another program may have found meanwhile."""
        best = best_of(self._ledger.comparable(experiment))
        verdict = experiment.verdict
        if verdict is None:
            value = experiment.value
            if value is None:
                verdict = Verdict.FAILED
            else:
                is_better = experiment.is_better(value, best)
                verdict = Verdict.BETTER if is_better else Verdict.WORSE
        restores = experiment.keep_best and verdict is not Verdict.BETTER
        experiment = replace(
            experiment, best=best, verdict=verdict, revert=Revert.PENDING if restores else None
        )
        self._ledger.write(experiment)
        return experiment

    # -- the working tree

    def _restore(self, experiment: Experiment, tree: WorkingTree) -> Experiment:
        """Restore the files of the best experiment, or of the commit without one."""
        best = experiment.best
        target = best.tree if best is not None and best.tree else tree.head_tree()
        assert experiment.tree is not None, "it has the files before the program started"
        left = tree.restore(experiment.tree, target)
        faults.reach("experiment.restored")
        if left:
            print(
                f"syncline run: changed during the experiment and left as they are: "
                f"{', '.join(left[:10])}{' …' if len(left) > 10 else ''}",
                file=sys.stderr,
                flush=True,
            )
        experiment = replace(experiment, revert=Revert.PARTLY if left else Revert.DONE)
        self._ledger.write(experiment)
        return experiment

    def _finish_restoring(self) -> None:
        """Restore files that a kill has prevented: those of the latest experiment here."""
        assert self._tree is not None
        here = [
            one
            for one in self._ledger.all()
            if one.keep_best and one.tree is not None and self._is_here(one)
        ]
        if here and here[-1].revert is Revert.PENDING:
            self._restore(here[-1], self._tree)

    def _is_here(self, experiment: Experiment) -> bool:
        assert self._tree is not None
        inside = os.path.relpath(experiment.directory, self._tree.root)
        return not inside.startswith("..")

    # -- end

    def _directory(self, experiment: Experiment) -> str:
        return os.path.join(self._storage, experiment.run)

    def _close(self, record: RunDirectory, experiment: Experiment) -> None:
        status = {Verdict.FAILED: "errored", Verdict.OVER_BUDGET: "aborted"}.get(
            experiment.verdict or Verdict.FAILED, "finished"
        )
        if self._interrupted:
            status = "aborted"
        record.event(status)
        record.write_outcome(status, experiment.error or None)
        record.close()

    def _print(self, experiment: Experiment) -> None:
        if self._given.as_json:
            print(json.dumps(self._as_json(experiment)), flush=True)
        else:
            print(f"syncline run: {summary(experiment)}", file=sys.stderr, flush=True)

    def _as_json(self, experiment: Experiment) -> JsonObject:
        path = self._directory(experiment)
        diff: Any = os.path.join(path, DIFF_FILE) if experiment.tree is not None else None
        return {**experiment.as_json(), "path": path, "diff": diff}


def summary(experiment: Experiment) -> str:
    """Return the verdict in one line."""
    verdict = experiment.verdict or Verdict.FAILED
    value = "" if experiment.value is None else f": {experiment.metric} {experiment.value:g}"
    parts = [f"{verdict.value}{value}", _best_text(experiment.best)]
    if experiment.error:
        parts.append(experiment.error.splitlines()[0].rstrip(":"))
    if experiment.keep_best:
        kept = "the working tree is kept" if experiment.revert is None else "its files are restored"
        parts.append(kept)
    return "; ".join(filter(None, parts))


def _best_text(best: Best | None) -> str:
    return "" if best is None else f"the best so far is {best.value:g} of {best.run}"
