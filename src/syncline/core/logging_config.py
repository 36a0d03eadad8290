"""`LoggingConfig`: format and level of the log records of the program and its workers."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from syncline.core import engine as engines

_ENCODINGS = ("TEXT", "JSON")
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"asctime", "message", "taskName"}
"""Attributes of every record; others come from `extra`."""
_IDS = ("job_id", "worker_id", "node_id", "task_id", "task_name", "actor_id", "actor_name")
"""Facts about the running code that records in JSON have."""


@dataclass
class LoggingConfig:
    """Format of log records, for `init(logging_config=...)`.

    The root logger and syncline's logger write to the standard error stream of each process.
    """

    encoding: str = "TEXT"
    """"TEXT", or "JSON" for one object per line with the ids of task, actor, worker and node."""
    log_level: str | int = "INFO"
    """Least level of records."""
    additional_log_standard_attrs: Sequence[str] = field(default_factory=list)
    """Further attributes of `logging.LogRecord` to write, such as "name"."""

    def __post_init__(self) -> None:
        if self.encoding not in _ENCODINGS:
            raise ValueError(
                f"`encoding={self.encoding!r}` is unknown: use {' or '.join(_ENCODINGS)}"
            )
        unknown = set(self.additional_log_standard_attrs) - _STANDARD
        if unknown:
            raise ValueError(
                f"`additional_log_standard_attrs` has {', '.join(sorted(unknown))}, but records "
                f"have {', '.join(sorted(_STANDARD))}"
            )
        logging.Handler().setLevel(self.log_level)  # raises for an unknown level

    def apply(self) -> None:
        """Configure the root logger of this process, from which its workers take it over."""
        handler = logging.StreamHandler()
        handler.setLevel(self.log_level)
        handler.setFormatter(RecordFormatter(self.encoding, self.additional_log_standard_attrs))
        root = logging.getLogger()
        for earlier in [h for h in root.handlers if isinstance(h.formatter, RecordFormatter)]:
            root.removeHandler(earlier)
        root.addHandler(handler)
        root.setLevel(self.log_level)


class RecordFormatter(logging.Formatter):
    """Formats a record as text or as JSON."""

    def __init__(self, encoding: str, attributes: Sequence[str]) -> None:
        super().__init__("%(asctime)s\t%(levelname)s %(filename)s:%(lineno)s -- %(message)s")
        self.encoding = encoding
        self.attributes = tuple(attributes)

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record."""
        more = {name: getattr(record, name, None) for name in self.attributes}
        own = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if self.encoding == "TEXT":
            pairs = "".join(f" {name}={value}" for name, value in {**more, **own}.items())
            return super().format(record) + pairs
        row = {
            "asctime": self.formatTime(record),
            "levelname": record.levelname,
            "message": record.getMessage(),
            "filename": record.filename,
            "lineno": record.lineno,
            "process": record.process,
            **_ids(),
            **more,
            **own,
        }
        if record.exc_info:
            row["exc_text"] = self.formatException(record.exc_info)
        return json.dumps(row, default=str)


def _ids() -> dict[str, str]:
    engine = engines.current
    if engine is None:
        return {}
    info = engine.runtime_info()
    found = {name: getattr(info, name) for name in _IDS}
    return {name: value for name, value in found.items() if value is not None}
