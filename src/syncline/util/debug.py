"""`log_once`: messages that a loop logs only the first time."""

from __future__ import annotations

import threading
import time

_PERIOD_S = 60.0


class _Logged:
    """Keys that were logged in this process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.keys: set[str] = set()
        self.is_disabled = False
        self.is_periodic = False
        self.last_reset = 0.0


_logged = _Logged()


def log_once(key: str) -> bool:
    """Return True if the message with this key should be logged: the first time in this process.

    With `enable_periodic_logging`, also the first time in each minute.
    """
    with _logged.lock:
        now = time.monotonic()
        if _logged.is_periodic and now - _logged.last_reset > _PERIOD_S:
            _logged.keys.clear()
            _logged.last_reset = now
        if _logged.is_disabled or key in _logged.keys:
            return False
        _logged.keys.add(key)
        return True


def disable_log_once_globally() -> None:
    """Let `log_once` return False from now on."""
    _logged.is_disabled = True


def enable_periodic_logging() -> None:
    """Let `log_once` return True once a minute for each key."""
    _logged.is_periodic = True


def reset_log_once(key: str | None = None) -> None:
    """Discard a key; None: all keys."""
    with _logged.lock:
        if key is None:
            _logged.keys.clear()
        else:
            _logged.keys.discard(key)
