"""`CometLoggerCallback` of `syncline.tune.logger.comet` at its other import path."""

from syncline.tune.logger.comet import CometLoggerCallback

__all__ = ["CometLoggerCallback"]
