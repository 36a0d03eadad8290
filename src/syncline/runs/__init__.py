"""The run directory: the record that every run leaves. Written by train, tune and data; read by `Result.from_path`, dashboard and cli.

    run.json            name, configuration, environment                              written once per start
    events.jsonl        what happened, a line each: {"time", "event", …}              only ever added to
    metrics.jsonl       every report: {"iteration", "time", "rank", "metrics"}        only ever added to
    metrics-00001.jsonl its earlier lines, where files cannot be added to             written once
    checkpoints.json    the checkpoints that are kept                                 replaced as a whole
    outcome.json        how the run ended; missing or older than run.json until then  replaced as a whole
    logs/               output of the workers

Files, in the order in which data flows: `environment` (facts about machine and program), `values` (any value as JSON), `files` (where a
record lies), `lines` (files that are added to), `directory` (the writer), `record` (the reader).
"""

from syncline.runs.directory import RunDirectory
from syncline.runs.environment import environment
from syncline.runs.files import Files, LocalFiles
from syncline.runs.record import RunRecord

__all__ = ["Files", "LocalFiles", "RunDirectory", "RunRecord", "environment"]
