"""Families of metrics, and their text in the Prometheus format (version 0.0.4). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import field
from typing import Literal

from syncline.core.message import Message
from syncline.records import dataclass

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_:]")
_NOT_IN_LABELS = re.compile(r"[^a-zA-Z0-9_]")


Kind = Literal["counter", "gauge", "histogram"]
Labels = tuple[tuple[str, str], ...]
Tags = Labels
"""Labels that user code gave."""


@dataclass(frozen=True)
class HistogramValue:
    """Value of a histogram with bounds that the user chose."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    """Observations up to each bound and above the one before; the last are above all bounds."""
    total: float
    """Sum of the observations."""


class UserMetric(Message):
    """A metric of user code in one process."""

    name: str
    kind: Kind
    description: str
    series: tuple[tuple[Tags, float | HistogramValue], ...]
    """Tags as pairs, and the value since the start of the process."""


@dataclass(kw_only=True)
class Family:
    """All series of one metric."""

    name: str
    kind: Kind
    help: str
    series: list[tuple[Labels, float | HistogramValue]] = field(default_factory=list)

    def add(self, value: float | HistogramValue, **labels: object) -> None:
        """Add a series."""
        self.series.append((tuple((name, str(text)) for name, text in labels.items()), value))


def metrics_text(families: Iterable[Family]) -> str:
    """Return the text of all families. Invalid characters in names become underscores."""
    lines: list[str] = []
    for family in families:
        name = _valid(family.name, _NOT_IN_NAMES)
        help = family.help.replace("\\", "\\\\").replace("\n", "\\n")
        lines.append(f"# HELP {name} {help}")
        lines.append(f"# TYPE {name} {family.kind}")
        for labels, value in family.series:
            if isinstance(value, HistogramValue):
                lines += _histogram_lines(name, labels, value)
            else:
                lines.append(f"{name}{_label_text(labels)} {_number(value)}")
    return "\n".join([*lines, ""])


def _histogram_lines(name: str, labels: Labels, value: HistogramValue) -> Iterable[str]:
    seen = 0
    for bound, count in zip((*value.bounds, float("inf")), value.counts, strict=False):
        seen += count
        yield f"{name}_bucket{_label_text((*labels, ('le', _number(bound))))} {seen}"
    yield f"{name}_sum{_label_text(labels)} {_number(value.total)}"
    yield f"{name}_count{_label_text(labels)} {seen}"


def _label_text(labels: Labels) -> str:
    if not labels:
        return ""
    listed = ",".join(f'{_valid(name, _NOT_IN_LABELS)}="{_escaped(text)}"' for name, text in labels)
    return f"{{{listed}}}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _valid(name: str, invalid: re.Pattern[str]) -> str:
    clean = invalid.sub("_", name)
    return f"_{clean}" if not clean or clean[0].isdigit() else clean


def _number(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    if value == float("-inf"):
        return "-Inf"
    if value != value:
        return "NaN"
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(float(value))
