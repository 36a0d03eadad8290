"""Retries after transient errors: lost connections, timeouts, throttled or restarting storage.

All operations in `filesystem.py` use `call_with_retries`, so uploads, commits and records share one
policy. Errors of object stores have many forms: pyarrow raises an OSError with the cause in its
text, libraries below fsspec raise their own classes with a status. `is_transient` knows these;
unknown errors count as permanent. Not covered: operations that cannot be repeated (a rename, a
user's `checkpoint_upload_fn`).
"""

from __future__ import annotations

import errno
import logging
import random
import re
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from syncline.records import dataclass

logger = logging.getLogger("syncline")
T = TypeVar("T")

_TRANSIENT_CODES = frozenset(
    {
        *(
            errno.EAGAIN,
            errno.EINTR,
            errno.EIO,
            errno.ESTALE,
            errno.EREMOTEIO,
            errno.ENOLINK,
            errno.EPIPE,
            errno.ETIMEDOUT,
        ),
        *(
            errno.ECONNABORTED,
            errno.ECONNREFUSED,
            errno.ECONNRESET,
            errno.EHOSTDOWN,
            errno.EHOSTUNREACH,
        ),
        *(errno.ENETDOWN, errno.ENETRESET, errno.ENETUNREACH, errno.ENOTCONN),
    }
)
_LASTING_TYPES = (
    FileNotFoundError,
    FileExistsError,
    PermissionError,
    NotADirectoryError,
    IsADirectoryError,
)
_TRANSIENT_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
_STATUS = re.compile(
    r"\b(?:HTTP )?status(?: code)?[ :=]+(\d{3})\b|\bHTTP (\d{3})\b|^(\d{3}),? ", re.IGNORECASE
)
_TRANSIENT_TEXT = re.compile(
    r"AWS Error (?:NETWORK_CONNECTION|INTERNAL_FAILURE|SERVICE_UNAVAILABLE|SLOW_DOWN|THROTTLING"
    r"|REQUEST_TIMEOUT|REQUEST_EXPIRED)"
    r"|Status\((?:UNAVAILABLE|DEADLINE_EXCEEDED|RESOURCE_EXHAUSTED|INTERNAL|ABORTED)"
    r"|ServerBusy|OperationTimedOut|InternalError|SlowDown|RequestTimeout"
    r"|connection (?:was )?(?:reset|refused|closed|aborted|lost)"
    r"|broken pipe|timed out|temporarily unavailable",
    re.IGNORECASE,
)
_LASTING_TEXT = re.compile(r"curlCode: (?:3|51|53|54|58|59|60|66|77|80|82|83|90|91|98)\b")
"""curl codes of malformed URLs and rejected certificates; pyarrow reports network errors."""
_TRANSIENT_NAMES = re.compile(r"Connection|Timeout|Disconnected|IncompleteRead|IncompleteBody")


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """Exponential backoff: the pauses between attempts double up to a limit."""

    attempts: int = 9
    """Maximum number of attempts."""
    first_pause_s: float = 0.25
    """Seconds before the second attempt."""
    longest_pause_s: float = 15.0
    """Maximum seconds between two attempts."""

    def pause_s(self, failures: int) -> float | None:
        """Return the pause after a number of failures (from 1); None to give up."""
        if failures >= self.attempts:
            return None
        return min(self.longest_pause_s, self.first_pause_s * 2.0 ** (failures - 1))

    @property
    def total_s(self) -> float:
        """Sum of all pauses."""
        return sum(self.pause_s(failures) or 0.0 for failures in range(1, self.attempts))


class Notices:
    """Rate limit of log messages about retries: one per period for all files and threads."""

    def __init__(
        self, *, quiet_s: float = 60.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._quiet_s = quiet_s
        self._clock = clock
        self._last: float | None = None

    def is_due(self) -> bool:
        """Return True if this failure is to be logged."""
        now = self._clock()
        if self._last is not None and now - self._last < self._quiet_s:
            return False
        self._last = now
        return True


POLICY = RetryPolicy()
"""Default policy of about 45 seconds: long enough for storage that restarts or throttles, short
enough not to hide an outage.
"""
_NOTICES = Notices()


def call_with_retries(
    operation: Callable[[], T],
    what: str,
    *,
    policy: RetryPolicy | None = None,
    sleep: Callable[[float], None] | None = None,
    spread: Callable[[float, float], float] = random.uniform,
    notices: Notices | None = None,
    patterns: Sequence[str] = (),
) -> T:
    """Return the result of `operation`; retry it after transient errors. Log the first failure and
    raise the last one unchanged.

    Args:
        operation: Operation that may be repeated, also if it took effect and only its answer was
            lost.
        what: Description for the log.
        policy: Number of attempts and pauses; `POLICY` by default.
        sleep: Waits for some seconds; `time.sleep` by default.
        spread: Draws a pause between two limits, so that ranks that failed together do not retry
            together.
        notices: Rate limit of the log; shared by the whole process by default.
        patterns: Additional transient errors; see `is_transient`.
    """
    policy = policy or POLICY
    failures = 0
    while True:
        try:
            return operation()
        except Exception as error:
            failures += 1
            pause_s = policy.pause_s(failures) if is_transient(error, patterns) else None
            if pause_s is None:
                raise
            if failures == 1 and (notices or _NOTICES).is_due():
                reason = next(iter(str(error).splitlines()), "") or type(error).__name__
                logger.warning(
                    "%s failed and is retried for about %.0f s: %s", what, policy.total_s, reason
                )
            (sleep or time.sleep)(spread(pause_s / 2, pause_s))


def is_transient(error: BaseException, patterns: Sequence[str] = ()) -> bool:
    """Return True if a retry may succeed.

    Args:
        error: The error.
        patterns: Texts or regular expressions; errors whose message contains or matches one are
            transient.
    """
    text = str(error)
    if any(pattern in text or re.search(pattern, text) is not None for pattern in patterns):
        return True
    if isinstance(error, _LASTING_TYPES):
        return False
    if isinstance(error, (ConnectionError, TimeoutError)):
        return True
    status = _status(error)
    if status is not None:
        return status in _TRANSIENT_STATUSES
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in _TRANSIENT_CODES
    if isinstance(error, OSError) and _TRANSIENT_TEXT.search(str(error)):
        return _LASTING_TEXT.search(str(error)) is None
    # Object store clients below fsspec have error classes without a common base.
    return any(_TRANSIENT_NAMES.search(kind.__name__) for kind in type(error).__mro__)


def _status(error: BaseException) -> int | None:
    """Return the HTTP status of an error: from an attribute, a response, or its text."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore
        found = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return found if isinstance(found, int) else None
    for holder in (error, response):
        for name in ("status", "status_code", "code"):
            value = getattr(holder, name, None)
            if isinstance(value, int) and 100 <= value < 600:
                return value
    match = _STATUS.search(str(error)) if isinstance(error, OSError) else None
    return int(next(filter(None, match.groups()))) if match else None
