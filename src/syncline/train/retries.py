"""Trying again what failed for a reason that passes: a lost connection, a timeout, a storage that
is too busy to answer.

Everything that `filesystem.py` does goes through `keep_trying`, so uploads, commits and the record
of a run share one policy. Errors of object stores reach Python in many shapes: pyarrow raises an
OSError whose text has the cause, libraries below fsspec raise their own classes with a status.
`is_transient` knows them; what it does not know counts as lasting. Not covered: what cannot simply
be done twice (a rename, a user's `checkpoint_upload_fn`).
"""

from __future__ import annotations

import errno
import logging
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

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
    r"AWS Error (?:NETWORK_CONNECTION|INTERNAL_FAILURE|SERVICE_UNAVAILABLE|SLOW_DOWN|THROTTLING|REQUEST_TIMEOUT|REQUEST_EXPIRED)"
    r"|Status\((?:UNAVAILABLE|DEADLINE_EXCEEDED|RESOURCE_EXHAUSTED|INTERNAL|ABORTED)"
    r"|ServerBusy|OperationTimedOut|InternalError|SlowDown|RequestTimeout"
    r"|connection (?:was )?(?:reset|refused|closed|aborted|lost)|broken pipe|timed out|temporarily unavailable",
    re.IGNORECASE,
)
_LASTING_TEXT = re.compile(r"curlCode: (?:3|51|53|54|58|59|60|66|77|80|82|83|90|91|98)\b")
"""Malformed addresses and certificates that are refused: pyarrow calls them network errors, too."""
_TRANSIENT_NAMES = re.compile(r"Connection|Timeout|Disconnected|IncompleteRead|IncompleteBody")


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """How often something is tried, and the pauses in between: they double up to a limit."""

    attempts: int = 9
    """How often it is tried at most."""
    first_pause_s: float = 0.25
    """The pause after the first failure."""
    longest_pause_s: float = 15.0
    """No pause is longer."""

    def pause_s(self, failures: int) -> float | None:
        """The pause after so many failures (from 1); None where it is not tried any more."""
        if failures >= self.attempts:
            return None
        return min(self.longest_pause_s, self.first_pause_s * 2.0 ** (failures - 1))

    @property
    def total_s(self) -> float:
        """All pauses together, in seconds."""
        return sum(self.pause_s(failures) or 0.0 for failures in range(1, self.attempts))


class Notices:
    """When to tell of failures that are tried again: the first, and then no more for a while,
    however many files and threads meet them.
    """

    def __init__(
        self, *, quiet_s: float = 60.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._quiet_s = quiet_s
        self._clock = clock
        self._last: float | None = None

    def is_due(self) -> bool:
        """Whether to tell of this one."""
        now = self._clock()
        if self._last is not None and now - self._last < self._quiet_s:
            return False
        self._last = now
        return True


POLICY = RetryPolicy()
"""About 45 seconds in all: long enough for a storage that restarts or throttles, short enough not
to hide one that is gone.
"""
_NOTICES = Notices()


def keep_trying(
    operation: Callable[[], T],
    what: str,
    *,
    policy: RetryPolicy | None = None,
    sleep: Callable[[float], None] | None = None,
    spread: Callable[[float, float], float] = random.uniform,
    notices: Notices | None = None,
) -> T:
    """What `operation` returns, tried again after transient errors. The first failure is logged,
    the last error is raised as it is.

    Args:
        operation: May be called several times, also after it took effect and only its answer was
        lost. what: What it does, for the log. policy: How often, and after which pauses; `POLICY`
        by default. sleep: Waits so many seconds; `time.sleep` by default. spread: Draws a pause
        between two limits, so that ranks which failed together do not come back together. notices:
        Whether to log the first failure; shared by the whole process by default.
    """
    policy = policy or POLICY
    failures = 0
    while True:
        try:
            return operation()
        except Exception as error:
            failures += 1
            pause_s = policy.pause_s(failures) if is_transient(error) else None
            if pause_s is None:
                raise
            if failures == 1 and (notices or _NOTICES).is_due():
                reason = next(iter(str(error).splitlines()), "") or type(error).__name__
                logger.warning(
                    "%s failed for now, and is tried again for about %.0f s: %s",
                    what,
                    policy.total_s,
                    reason,
                )
            (sleep or time.sleep)(spread(pause_s / 2, pause_s))


def is_transient(error: BaseException) -> bool:
    """Whether the same may succeed a little later."""
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
    # Clients of object stores below fsspec have errors of their own, which no type in common would
    # tell.
    return any(_TRANSIENT_NAMES.search(kind.__name__) for kind in type(error).__mro__)


def _status(error: BaseException) -> int | None:
    """The HTTP status that an error carries, as an attribute, in a response, or in its text."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore's
        found = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return found if isinstance(found, int) else None
    for holder in (error, response):
        for name in ("status", "status_code", "code"):
            value = getattr(holder, name, None)
            if isinstance(value, int) and 100 <= value < 600:
                return value
    match = _STATUS.search(str(error)) if isinstance(error, OSError) else None
    return int(next(filter(None, match.groups()))) if match else None
