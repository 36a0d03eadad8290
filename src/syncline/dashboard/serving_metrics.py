"""Metrics of running serves for `/metrics`, from `serve/metrics.prom` of their records.

The controller of a serve writes the text every second; here each sample gets the label `run`, and
the families of several serves, and of programs (`program_metrics`), are put together. Records are
untrusted: lines that are no samples are left out, and sizes are bounded.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from syncline.dashboard.formatting import printable
from syncline.dashboard.run_index import RunIndex

METRICS_FILE = "serve/metrics.prom"
MAX_RUNS = 20
MAX_BYTES = 4_000_000
"""Maximum bytes of one record's metrics."""
_HEADER = re.compile(r"# (HELP|TYPE) ([a-zA-Z_:][a-zA-Z0-9_:]*) ([^\x00-\x1f]{0,500})")
SAMPLE = re.compile(
    r"([a-zA-Z_:][a-zA-Z0-9_:]*)"
    r'(?:\{((?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*",?)*)\})? '
    r"([+-]?(?:[0-9.eE+-]+|Inf)|NaN)"
)
_ADDED = re.compile(r'(?:(?<=^)|(?<=,))(run|program)=(?=")')
"""Labels that are added here; those of user code are renamed, as Prometheus does."""
_OWN = ("syncline_run", "syncline_worker_")
"""Prefixes of the metrics of `prometheus`."""
_KINDS = frozenset({"counter", "gauge", "histogram"})

log = logging.getLogger("syncline.dashboard")


@dataclass(kw_only=True)
class _Family:
    kind: str = "untyped"
    help: str = ""
    samples: list[str] = field(default_factory=list)


def serving_texts(run_index: RunIndex) -> dict[str, str]:
    """Return the metrics of all running serves by run. Blocks: call it in a thread."""
    texts: dict[str, str] = {}
    rows = [row for row in run_index.running() if row.summary and row.summary.kind == "serve"]
    for row in sorted(rows, key=lambda row: row.listed, reverse=True)[:MAX_RUNS]:
        try:
            place = run_index.run_directory(*row.key)
            data = place.read_range(METRICS_FILE, 0, MAX_BYTES)
        except (ValueError, LookupError, OSError) as error:
            log.debug("Cannot read the metrics of %r: %s", row.directory, error)
            continue
        texts[printable(row.directory, 120)] = data.decode("utf-8", "replace")
    return texts


def merged(runs: Mapping[str, str], programs: Mapping[str, str] | None = None) -> str:
    """Return the families of several texts together.

    The key of each is the label `run` or `program`.
    """
    families: dict[str, _Family] = {}
    for name, texts in (("run", runs), ("program", programs or {})):
        for key, text in texts.items():
            value = key.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
            _add(families, f'{name}="{value}"', text.split("\n"))
    lines: list[str] = []
    for name, family in families.items():
        if family.samples:
            lines += (f"# HELP {name} {family.help}", f"# TYPE {name} {family.kind}")
            lines += family.samples
    return "\n".join([*lines, ""]) if lines else ""


def _add(families: dict[str, _Family], added: str, lines: Iterable[str]) -> None:
    current = ""
    for line in lines:
        header = _HEADER.fullmatch(line)
        if header is not None:
            current = header[2] if not header[2].startswith(_OWN) else ""
            if not current:
                continue
            family = families.setdefault(current, _Family())
            if header[1] == "HELP":
                family.help = header[3]
            elif header[3] in _KINDS:
                family.kind = header[3]
            continue
        sample = SAMPLE.fullmatch(line)
        if sample is not None and current and sample[1].startswith(current):
            own = _ADDED.sub(r"exported_\1=", sample[2] or "")
            labels = f"{added},{own}" if own else added
            families[current].samples.append(f"{sample[1]}{{{labels}}} {sample[3]}")
