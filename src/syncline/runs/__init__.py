"""The run directory: record of a run, written by train, tune and data; read by `Result.from_path`,
the dashboard and the command line.

Format 1. All files contain JSON or lines of JSON; times are seconds since the epoch. Readers ignore
fields that they do not know. Written once per start:

    run.json            "format", "kind" (train, tune, data, serve, rl), "name", "started",
                        "config", "environment"
    environment.json    packages, hardware, git diff

Append-only, one JSON object per line:

    events.jsonl        {"time", "event", ...}
    metrics.jsonl       reports: {"iteration", "time", "rank" or "trial", "metrics"}; thinned
    workers.jsonl       resource usage of workers: {"time", "rank" or "trial", "attempt", "pid",
                        "usage", "spent"}; thinned
    trials.jsonl        of a search: a line for each state change of a trial
    data/NAME.jsonl     of a dataset: the operators, then a line every few seconds
    serve/NAME.jsonl    of serving: counts and histograms per deployment, slow requests, errors; a
                        file that is large is renamed to NAME.1.jsonl, and the one before dropped
    rl/episodes.jsonl   of reinforcement learning: returns and lengths of the last episodes

Replaced as a whole:

    latest.json         rank 0's latest report, if thinning dropped it
    trials.json         of a search: {"trials": {status: count}, "expected", "results",
                        "best": {"trial", "iteration", "metrics"}}
    checkpoints.json    the checkpoints that are kept
    outcome.json        status and error; missing, or of an earlier "started", while the run runs
    serve/state.json    of serving: applications, deployments and replicas
    serve/metrics.prom  of serving: the metrics as Prometheus text
    experiment.json     of `syncline run --metric`: metric, verdict, best run before it
    annotations.json    tags, note and archive mark, which users set: {"tags", "note", "archived"}

Other files:

    logs/               output of the workers: rank-0.log, and rank-0.1.log before it; rank-0.times
                        has the times of the lines
    media/              images in reports, and a TensorBoard file with images and histograms
    videos/             videos of episodes, GIF or MP4
    profiles/           profiles of live workers: flame graphs, memory, traces
    events.out.tfevents.*  rank 0's reports for TensorBoard, below 5 MB in total
    trackers/           IDs of the runs of experiment trackers that belong to this run

A file of lines has no torn line except at its end. On storage without append, earlier lines are in
`metrics-00001.jsonl` and so on. `metrics.jsonl` stays below 12 MB and `workers.jsonl` below 2 MB.
Secrets are masked before they are written.

Files of this package, in the order in which data flows: `environment` (machine, program, processes)
and `usage` (resources of a process) gather facts; `secrets` masks and `json_values` encodes them;
`record_files` (storage and append-only files), `rotating_lines` (files that keep what is recent),
`rank_log` (output of a process), `run_directory` (writer), `event_file` and `tensorboard_writer`
write the record, `media` and `media_events` its images and histograms; `run_record` is the strict
reader for resuming; `run_storage` (directories, local or remote), `tailing` (growing files),
`metric_series` (curves), `run` (lenient reader) and `run_list` (all runs in a directory) read it
for display; `log_times` and `log_index` find and merge lines of logs; `run_progress` derives the
progress and the remaining time from reports; `outliers` groups the stacks of a hanging run;
`experiments` is the ledger of runs that are compared by a metric; `verdicts` are findings about
ranks, as events; `causes` (with `durations`) finds the line of an error that names its cause;
`annotations` holds the tags and the note that users add to a run, and deletes runs; `discovery`
finds the dashboard that shows a run; `alerts` with `alert_sender` tells users of ends and stalls.
"""

from syncline.runs.environment import environment
from syncline.runs.record_files import Files, LocalFiles
from syncline.runs.run import Attempt, Run, open
from syncline.runs.run_directory import RunDirectory
from syncline.runs.run_list import RunSummary
from syncline.runs.run_record import RunRecord

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
