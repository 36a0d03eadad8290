"""Options of logs and traces: `LoggingConfig`, `TracingConfig`."""

from __future__ import annotations

import logging
from enum import Enum

from syncline.records import dataclass
from syncline.serve import option_values as check
from syncline.suggestions import suggest_arguments

_LEVELS = ("CRITICAL", "FATAL", "ERROR", "WARN", "WARNING", "INFO", "DEBUG", "NOTSET")
_RECORD_ATTRIBUTES = (
    "name",
    "msg",
    "args",
    "levelname",
    "levelno",
    "pathname",
    "filename",
    "module",
    "exc_info",
    "exc_text",
    "stack_info",
    "lineno",
    "funcName",
    "created",
    "msecs",
    "relativeCreated",
    "thread",
    "threadName",
    "processName",
    "process",
    "message",
    "asctime",
    "taskName",
)


class EncodingType(str, Enum):
    """Format of log lines."""

    TEXT = "TEXT"
    JSON = "JSON"


@suggest_arguments
@dataclass(frozen=True, kw_only=True)
class LoggingConfig:
    """Options of the logs of replicas and proxies."""

    encoding: EncodingType = EncodingType.TEXT
    """"TEXT", or "JSON" for one object per line."""
    log_level: str = "INFO"
    """Lowest level that is written: a name, or a number of the `logging` module."""
    logs_dir: str | None = None
    """Directory of the log files; None for the directory of the session."""
    enable_access_log: bool = True
    """True to write one line per request."""
    additional_log_standard_attrs: tuple[str, ...] = ()
    """Attributes of `logging.LogRecord` to add to each line."""

    def __post_init__(self) -> None:
        set_value = object.__setattr__
        set_value(self, "encoding", check.member("encoding", self.encoding, EncodingType))
        set_value(self, "log_level", _level_name(self.log_level))
        check.text("logs_dir", self.logs_dir, optional=True, empty=False)
        check.boolean("enable_access_log", self.enable_access_log)
        name = "additional_log_standard_attrs"
        names = check.texts(name, self.additional_log_standard_attrs)
        for attribute in names:
            check.choice(name, attribute, _RECORD_ATTRIBUTES)
        set_value(self, name, tuple(dict.fromkeys(names)))


def _level_name(level: object) -> str:
    if isinstance(level, int) and not isinstance(level, bool):
        name = logging.getLevelName(level)
        if name not in _LEVELS:
            raise ValueError(f"`log_level={level}` is not a standard level: give 10, 20, 30, …")
        return str(name)
    check.text("log_level", level, empty=False)
    check.choice("log_level", level, _LEVELS)
    return str(level)


@suggest_arguments
@dataclass(frozen=True, kw_only=True)
class TracingConfig:
    """Options of OpenTelemetry traces."""

    enabled: bool = False
    """True to record spans in proxies and replicas."""
    exporter_import_path: str = ""
    """Function "module:name" that returns span processors; empty for the provider that is set."""
    sampling_ratio: float = 0.01
    """Fraction of the requests without a trace context that are traced."""

    def __post_init__(self) -> None:
        check.boolean("enabled", self.enabled)
        check.text("exporter_import_path", self.exporter_import_path)
        check.number("sampling_ratio", self.sampling_ratio, least=0, most=1)
