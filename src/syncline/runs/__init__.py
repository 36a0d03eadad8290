"""The run directory: the record that every run leaves. Written by train, tune and data; read by
`Result.from_path`, dashboard and cli.

Format 1. Everything is JSON, or lines of JSON; times are seconds since the epoch. Readers pass over
what they do not know.

    run.json            "format", "kind" (train, tune, data), "name", "started", "config", "environment"   written once per start
    environment.json    packages, hardware, what differs from the git revision                              written once per start
    events.jsonl        what happened, a line each: {"time", "event", …}                                    only ever added to
    metrics.jsonl       reports: {"iteration", "time", "rank" or "trial", "metrics"}                        only ever added to, thinned
    latest.json         rank 0's latest report, where that is not among those that are kept                 replaced as a whole
    workers.jsonl       what a worker's process uses, and where its time went:                              only ever added to, thinned
                        {"time", "rank" or "trial", "attempt", "pid", "usage", "spent"}
    trials.jsonl        of a search, a line at each change of a trial                                       only ever added to
    trials.json         of a search, how far it is: {"trials": {status: count}, "expected", "results",      replaced as a whole
                        "best": {"trial", "iteration", "metrics"}}
    data/NAME.jsonl     of a dataset's executions: the operators, then a line every few seconds             only ever added to
    checkpoints.json    the checkpoints that are kept                                                       replaced as a whole
    outcome.json        how the run ended; until then missing, or of an earlier start ("started")           replaced as a whole
    logs/               output of the workers: rank-0.log, and before it rank-0.1.log
    profiles/           what was recorded of a live worker: flame graphs, memory, traces
    events.out.tfevents.*  rank 0's reports for TensorBoard, below 5 MB in all
    trackers/           which runs of experiment trackers belong to this one

Files of lines never hold a torn line but at their end. Where files cannot be added to, earlier
lines lie in `metrics-00001.jsonl` and so on. `metrics.jsonl` stays below 12 MB, `workers.jsonl`
below 2 MB, whatever a run reports: see `thinning`. What looks like a secret is masked before it is
written.

Files of this package, in the order in which data flows: `environment` (facts about machine and
program), `processes` (which of them lives), `counters` and `usage` (what a process uses), `values`
(any value as JSON), `secrets`, `files` (where a record is written), `lines` (files that are added
to), `thinning`, `directory` (the writer), `sending` (of what lies elsewhere), `event_file` and
`tensorboard`, `record` (the strict reader, for runs that go on); `places` and `remote` (directories
as readers see them), `follow` (files that grow), `series` (curves), `run` (the reader for those who
show runs), `finding` (all runs in a directory), `dashboards` (which of them shows a run).
"""

from syncline.runs.directory import RunDirectory
from syncline.runs.environment import environment
from syncline.runs.files import Files, LocalFiles
from syncline.runs.finding import RunSummary
from syncline.runs.record import RunRecord
from syncline.runs.run import Attempt, Run, open

__all__ = [
    "Attempt",
    "Files",
    "LocalFiles",
    "Run",
    "RunDirectory",
    "RunRecord",
    "RunSummary",
    "environment",
    "open",
]
