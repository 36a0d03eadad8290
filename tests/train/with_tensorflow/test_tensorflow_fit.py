"""TensorFlow with two real workers: Keras under MultiWorkerMirroredStrategy, reported by the
callback.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import syncline
from syncline import data, train

train_tensorflow = pytest.importorskip("syncline.train.tensorflow", exc_type=ImportError)

pytestmark = [
    pytest.mark.processes,
    pytest.mark.timeout(300),
    pytest.mark.skipif(find_spec("tf_keras") is None, reason="tf.keras in the workers is tf_keras"),
]


@pytest.fixture(scope="module", autouse=True)
def engine() -> Iterator[None]:
    syncline.init(num_cpus=2)
    yield
    syncline.shutdown()


def loop(config: dict[str, Any]) -> dict[str, Any]:
    """Fits y = 2x + 1 on rows that are spread over both ranks."""
    import tensorflow as tf

    from syncline.train.tensorflow.keras import ReportCheckpointCallback

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    checkpoint = train.get_checkpoint()
    with strategy.scope():
        if checkpoint:
            model = train_tensorflow.TensorflowCheckpoint.of(checkpoint).get_model()
        else:
            model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(1,))])
            model.compile("sgd", "mse", metrics=["mae"])
    shard = train.get_dataset_shard("train").to_tf(
        feature_columns="x", label_columns="y", batch_size=8
    )
    shard = train_tensorflow.prepare_dataset_shard(shard)
    model.fit(
        shard,
        epochs=config["epochs"],
        verbose=0,
        callbacks=[ReportCheckpointCallback(metrics={"error": "mae", "loss": "loss"})],
    )
    return {
        "replicas": strategy.num_replicas_in_sync,
        "weights": [float(w.ravel()[0]) for w in model.get_weights()],
        "resumed": checkpoint is not None,
        "iterations": int(model.optimizer.iterations.numpy()),
    }


def with_target(batch: dict[str, Any]) -> dict[str, Any]:
    x = batch["data"].reshape(-1, 1)
    return {"x": x, "y": 2 * x + 1}


def fit(storage: Path, epochs: int) -> Any:
    x = np.linspace(0, 2, 64, dtype=np.float32)
    return train_tensorflow.TensorflowTrainer(
        loop,
        train_loop_config={"epochs": epochs},
        datasets={"train": data.from_numpy([x]).map_batches(with_target)},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(name="run", storage_path=str(storage)),
    ).fit()


def test_two_workers_train_one_keras_model_and_run_resumes(tmp_path: Path) -> None:
    first = fit(tmp_path, epochs=2)
    assert first.return_value["replicas"] == 2
    assert len(first.best_checkpoints) == 2
    assert set(first.metrics) == {"error", "loss"}
    saved = train_tensorflow.TensorflowCheckpoint.of(first.checkpoint).get_model()
    assert [float(w.ravel()[0]) for w in saved.get_weights()] == pytest.approx(
        first.return_value["weights"]
    )

    second = fit(tmp_path, epochs=3)
    assert second.return_value["resumed"]
    assert (
        second.return_value["iterations"] > 2 * first.return_value["iterations"]
    )  # counted by the optimizer, which was saved too
    assert second.metrics["loss"] < first.metrics["loss"]
