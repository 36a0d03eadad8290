"""Output of the serve loggers of a replica or proxy, as its `LoggingConfig` says.

The loggers are "ray.serve", which user code writes to, and serve's own. Without a configuration,
their records go where those of other loggers go. Access logs are not covered: see
`monitoring.access_log`.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping

from syncline.records import dataclass
from syncline.serve.context import request_context
from syncline.serve.logging_config import EncodingType, LoggingConfig
from syncline.serve.wire.routes import DeploymentId

LOGGERS = ("ray.serve", "syncline.serve")


@dataclass(frozen=True, kw_only=True)
class LogSource:
    """The process whose log it is."""

    kind: str
    """"replica" or "proxy"."""
    id: str
    fields: Mapping[str, str]
    """Fields of JSON lines, besides the id."""

    @staticmethod
    def of_replica(deployment: DeploymentId, replica_id: str) -> LogSource:
        """Return the source of a replica."""
        fields = {"application": deployment.app, "deployment": deployment.name}
        return LogSource(kind="replica", id=replica_id, fields=fields)

    @staticmethod
    def of_proxy(proxy_id: str, node_id: str) -> LogSource:
        """Return the source of a proxy."""
        return LogSource(kind="proxy", id=proxy_id, fields={"node_id": node_id})


class _Formatter(logging.Formatter):
    """Lines with the process and the request, as text or as JSON objects."""

    def __init__(self, source: LogSource, config: LoggingConfig) -> None:
        super().__init__()
        self._source = source
        self._is_json = config.encoding is EncodingType.JSON
        self._attributes = config.additional_log_standard_attrs

    def format(self, record: logging.LogRecord) -> str:
        """Return one line, and lines of a traceback below a text line."""
        record.message = record.getMessage()
        record.asctime = self.formatTime(record)
        request = request_context.get()
        request_id = request.request_id if request is not None else ""
        more = {name: getattr(record, name, None) for name in self._attributes}
        traceback = self.formatException(record.exc_info) if record.exc_info else ""
        if self._is_json:
            line = {
                "levelname": record.levelname,
                "asctime": record.asctime,
                **self._source.fields,
                self._source.kind: self._source.id,
                **({"request_id": request_id} if request_id else {}),
                "message": record.message,
                **more,
                **({"exc_text": traceback} if traceback else {}),
            }
            return json.dumps(line, default=str)
        parts = [record.levelname, record.asctime, self._source.id]
        parts += [request_id] if request_id else []
        parts += [f"{name}={value}" for name, value in more.items()]
        text = f"{' '.join(parts)} -- {record.message}"
        return f"{text}\n{traceback}" if traceback else text


class LogOutput:
    """Handler and level of the serve loggers of this process."""

    def __init__(self, source: LogSource) -> None:
        self._source = source
        self._config: LoggingConfig | None = None
        self._handler: logging.Handler | None = None

    def apply(self, config: LoggingConfig | None) -> None:
        """Use other options; None restores the loggers. Raises OSError for `logs_dir`."""
        if config == self._config:
            return
        handler = None if config is None else self._new_handler(config)
        for name in LOGGERS:
            logger = logging.getLogger(name)
            if self._handler is not None:
                logger.removeHandler(self._handler)
            if handler is not None:
                logger.addHandler(handler)
            logger.propagate = handler is None
            logger.setLevel(logging.NOTSET if config is None else config.log_level)
        if self._handler is not None:
            self._handler.close()
        self._config, self._handler = config, handler

    def _new_handler(self, config: LoggingConfig) -> logging.Handler:
        handler: logging.Handler = logging.StreamHandler()
        if config.logs_dir is not None:
            os.makedirs(config.logs_dir, exist_ok=True)
            id = self._source.id.replace("#", "_").replace("/", "_")
            name = f"{self._source.kind}_{id}.log"
            handler = logging.FileHandler(os.path.join(config.logs_dir, name), encoding="utf-8")
        handler.setFormatter(_Formatter(self._source, config))
        return handler
