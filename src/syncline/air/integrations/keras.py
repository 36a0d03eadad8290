"""`ReportCheckpointCallback` of `syncline.train.tensorflow.keras` at its other import path.

Imports TensorFlow.
"""

from syncline.train.tensorflow.keras import ReportCheckpointCallback

__all__ = ["ReportCheckpointCallback"]
