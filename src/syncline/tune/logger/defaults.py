"""Which loggers a search has when its program says nothing of them."""

from __future__ import annotations

from collections.abc import Sequence

from syncline import settings
from syncline.tune.callback import Callback
from syncline.tune.logger.csv import CSVLoggerCallback
from syncline.tune.logger.json import JsonLoggerCallback
from syncline.tune.logger.tensorboardx import TBXLoggerCallback

DEFAULT_LOGGERS: tuple[type[Callback], ...] = (
    CSVLoggerCallback,
    JsonLoggerCallback,
    TBXLoggerCallback,
)


def default_callbacks(callbacks: Sequence[Callback] | None) -> list[Callback]:
    """The program's callbacks, and behind them the default loggers of which it has given none.

    `TUNE_DISABLE_AUTO_CALLBACK_LOGGERS=1` adds none.
    """
    given = list(callbacks or ())
    if settings.environment("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS") == "1":
        return given
    return given + [
        kind() for kind in DEFAULT_LOGGERS if not any(isinstance(one, kind) for one in given)
    ]
