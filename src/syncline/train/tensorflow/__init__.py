"""TensorFlow on a group of workers: every training function can create a
`tf.distribute.MultiWorkerMirroredStrategy` for the cluster of the workers.

Files in the order in which data flows through them:
    trainer.py       `TensorflowTrainer`
    config.py       `TensorflowConfig`, its backend, the worker's side, `prepare_dataset_shard`
    keras.py         `ReportCheckpointCallback`: reports Keras's metrics and checkpoints
    checkpoint.py    `TensorflowCheckpoint`: checkpoints of models

Importing this package raises ImportError if tensorflow is not installed. It is imported by the
workers and on first use.
"""

from syncline.optional import require
from syncline.train.tensorflow.checkpoint import TensorflowCheckpoint
from syncline.train.tensorflow.config import TensorflowConfig, prepare_dataset_shard
from syncline.train.tensorflow.trainer import TensorflowTrainer

__all__ = ["TensorflowCheckpoint", "TensorflowConfig", "TensorflowTrainer", "prepare_dataset_shard"]

require("tensorflow", purpose="syncline.train.tensorflow", install="syncline[tensorflow]")
