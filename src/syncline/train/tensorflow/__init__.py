"""TensorFlow on a group of workers: `tf.distribute.MultiWorkerMirroredStrategy` finds its cluster
in every training function.

Files in the order in which a run meets them:
    trainer.py       `TensorflowTrainer`: what the program makes and fits
    config.py        `TensorflowConfig`, and the backend that tells the workers of each other
    cluster.py       the worker's side of that: TF_CONFIG, and which Keras `tf.keras` is
    shards.py        `prepare_dataset_shard`: a rank's share of a dataset, for Keras
    keras.py         `ReportCheckpointCallback`: reports what Keras logs, and the model as checkpoints
    checkpoint.py    `TensorflowCheckpoint`: a model as a checkpoint

ImportError where tensorflow is not installed. Where it is, it is imported by the workers and by
what needs it.
"""

from syncline.optional import require
from syncline.train.tensorflow.checkpoint import TensorflowCheckpoint
from syncline.train.tensorflow.config import TensorflowConfig
from syncline.train.tensorflow.shards import prepare_dataset_shard
from syncline.train.tensorflow.trainer import TensorflowTrainer

__all__ = ["TensorflowCheckpoint", "TensorflowConfig", "TensorflowTrainer", "prepare_dataset_shard"]

require("tensorflow", purpose="syncline.train.tensorflow", install="syncline[tensorflow]")
