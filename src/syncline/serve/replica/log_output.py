"""Output of the serve loggers of a replica, as its `LoggingConfig` says.

The loggers are "ray.serve", which user code writes to, and serve's own. Without a configuration,
their records go where those of other loggers go. Access logs are not covered: proxies write them.
"""

from __future__ import annotations

import json
import logging
import os

from syncline.serve.context import request_context
from syncline.serve.logging_config import EncodingType, LoggingConfig
from syncline.serve.wire.routes import DeploymentId

LOGGERS = ("ray.serve", "syncline.serve")


class _Formatter(logging.Formatter):
    """Lines with the replica and the request, as text or as JSON objects."""

    def __init__(self, deployment: DeploymentId, replica_id: str, config: LoggingConfig) -> None:
        super().__init__()
        self._deployment = deployment
        self._replica_id = replica_id
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
                "application": self._deployment.app,
                "deployment": self._deployment.name,
                "replica": self._replica_id,
                **({"request_id": request_id} if request_id else {}),
                "message": record.message,
                **more,
                **({"exc_text": traceback} if traceback else {}),
            }
            return json.dumps(line, default=str)
        parts = [record.levelname, record.asctime, self._replica_id]
        parts += [request_id] if request_id else []
        parts += [f"{name}={value}" for name, value in more.items()]
        text = f"{' '.join(parts)} -- {record.message}"
        return f"{text}\n{traceback}" if traceback else text


class LogOutput:
    """Handler and level of the serve loggers of this process."""

    def __init__(self, deployment: DeploymentId, replica_id: str) -> None:
        self._deployment = deployment
        self._replica_id = replica_id
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
            name = f"replica_{self._replica_id.replace('#', '_').replace('/', '_')}.log"
            handler = logging.FileHandler(os.path.join(config.logs_dir, name), encoding="utf-8")
        handler.setFormatter(_Formatter(self._deployment, self._replica_id, config))
        return handler
