"""`CometLoggerCallback` of `syncline.tune.logger.comet` under its other address."""

from syncline.tune.logger.comet import CometLoggerCallback

__all__ = ["CometLoggerCallback"]
