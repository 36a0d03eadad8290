"""The worker's side of a TensorFlow cluster: who is in it, and which Keras `tf.keras` is.

TensorFlow connects when the training function makes its strategy, and binds this rank's port then,
on every interface of the node. The port is held until the function begins. Keras 3 cannot train
under `MultiWorkerMirroredStrategy`, so `tf.keras` is Keras 2 in the workers: the package tf_keras.
TF_USE_LEGACY_KERAS=0 in the environment makes it Keras 3, for functions with loops of their own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from syncline import settings
from syncline.optional import load, require
from syncline.train.backend import release_ports
from syncline.train.session import get_session


def join(addresses: Sequence[str]) -> None:
    """Say where this rank stands among `addresses` (by rank), and import TensorFlow.

    Raises:
        ImportError: TensorFlow or tf_keras is not installed.
    """
    rank = get_session("tensorflow.cluster.join").world_rank
    os.environ["TF_CONFIG"] = json.dumps(
        {"cluster": {"worker": list(addresses)}, "task": {"type": "worker", "index": rank}}
    )
    # These are read when TensorFlow is imported.
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    os.environ.setdefault(
        "TF_CPP_MIN_LOG_LEVEL", "1"
    )  # without it, some twenty lines about each connection
    if settings.flag("TF_USE_LEGACY_KERAS"):
        require(
            "tf_keras",
            purpose="tf.keras in the workers of TensorflowTrainer",
            install="syncline[tensorflow]",
        )
    load("tensorflow", purpose="TensorflowTrainer", install="syncline[tensorflow]")


@contextmanager
def training_context() -> Iterator[None]:
    """What the training function runs in: from here on TensorFlow may bind its port."""
    release_ports()
    yield
