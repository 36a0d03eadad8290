"""`ReportCheckpointCallback` of `syncline.train.tensorflow.keras` under its other address. Imports
TensorFlow.
"""

from syncline.train.tensorflow.keras import ReportCheckpointCallback

__all__ = ["ReportCheckpointCallback"]
