"""Metrics of user code in the programs of this machine (`util.metrics`): texts and table rows.

Programs answer through their control sockets; those that do not answer are left out. Texts are
untrusted: lines that are no samples are skipped, and numbers of rows are bounded.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

from syncline.core import control
from syncline.core.control import ActionFailed, Program, ProgramUnreachable
from syncline.dashboard.formatting import printable
from syncline.dashboard.serving_metrics import SAMPLE

LIMIT_S = 3.0
"""Seconds that one program may take for its answer."""
MAX_PROGRAMS = 50
MAX_BYTES = 4_000_000
"""Maximum size of the metrics of one program; larger ones are left out."""
MAX_ROWS = 200
_AT_ONCE = 8
_OF_BUCKETS = re.compile(r".*_bucket|.*_created")


def program_texts() -> dict[str, str]:
    """Return the metrics of each program of this user by PID. Blocks: call it in a thread."""
    programs = [each for each in control.programs() if control.ENGINE in (each.subjects or ())]
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        texts = list(threads.map(metrics_of, programs[:MAX_PROGRAMS]))
    return {str(program.pid): text for program, text in zip(programs, texts, strict=False) if text}


def metrics_of(program: Program) -> str:
    """Return the metrics of a program in the Prometheus format; empty if it does not answer."""
    try:
        text = control.request(program, control.ENGINE, "metrics", None, LIMIT_S)
    except (ActionFailed, ProgramUnreachable):  # it ended, is busy, or has another version
        return ""
    return text if isinstance(text, str) and len(text) <= MAX_BYTES else ""


def metric_rows(text: str) -> list[dict[str, object]]:
    """Return a table row for each sample, without the buckets of histograms."""
    rows: list[dict[str, object]] = []
    for line in text.split("\n"):
        sample = SAMPLE.fullmatch(line)
        if sample is None or _OF_BUCKETS.fullmatch(sample[1]):
            continue
        labels = printable((sample[2] or "").replace('"', "").replace(",", ", "), 200)
        rows.append(
            {"id": line, "name": printable(sample[1], 100), "tags": labels, "value": sample[3]}
        )
        if len(rows) == MAX_ROWS:
            break
    return rows
