"""TensorFlow in the program's own process: events of the callback, checkpoints of both Keras, the
environment of workers.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncline import settings, train

tft = pytest.importorskip("syncline.train.tensorflow", exc_type=ImportError)

KERAS = [name for name in ("keras", "tf_keras") if find_spec(name) is not None]


def model_of(library: str) -> Any:
    keras = pytest.importorskip(library)
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", keras.losses.MeanSquaredError())
    return model


def fit_here(**options: Any) -> train.Result:
    def loop() -> None:
        import tensorflow as tf

        from syncline.train.tensorflow.keras import ReportCheckpointCallback

        model = tf.keras.Sequential([tf.keras.layers.Input((2,)), tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse", metrics=["mae"])
        x = np.ones((8, 2), dtype=np.float32)
        model.fit(
            x,
            x[:, :1],
            epochs=2,
            batch_size=4,
            verbose=0,
            callbacks=[ReportCheckpointCallback(**options)],
        )

    return tft.TensorflowTrainer(loop, scaling_config=train.ScalingConfig(num_workers=0)).fit()


def test_every_epoch_is_reported_with_a_checkpoint() -> None:
    result = fit_here()
    assert [set(report["metrics"]) for report in result.reports] == [{"loss", "mae"}] * 2
    assert result.checkpoint is not None


@pytest.mark.parametrize(
    ("options", "reports"),
    [
        ({"report_metrics_on": ["epoch_end", "train_batch_end"]}, 2 + 4),
        ({"checkpoint_on": "train_end", "report_metrics_on": "train_end"}, 1),
        ({"checkpoint_on": [], "metrics": {"error": "mae"}}, 2),
    ],
)
def test_reports_at_selected_events(options: dict[str, Any], reports: int) -> None:
    result = fit_here(**options)
    assert len(result.reports) == reports
    assert (result.checkpoint is None) == (options.get("checkpoint_on") == [])


def test_unknown_event_is_refused() -> None:
    from syncline.train.tensorflow.keras import ReportCheckpointCallback

    with pytest.raises(
        ValueError,
        match=r"checkpoint_on='validation_end': validation_end is not an event.*epoch_begin",
    ):
        ReportCheckpointCallback(checkpoint_on="validation_end")


@pytest.mark.parametrize("library", KERAS)
def test_checkpoint_returns_model_of_either_keras(library: str) -> None:
    model = model_of(library)
    loaded = tft.TensorflowCheckpoint.from_model(model).get_model()
    assert type(loaded).__module__.partition(".")[0] == library
    assert np.array_equal(loaded.get_weights()[0], model.get_weights()[0])


def test_h5_file_becomes_checkpoint(tmp_path: Path) -> None:
    model = model_of("keras")
    model.save(tmp_path / "model.h5")
    loaded = tft.TensorflowCheckpoint.from_h5(tmp_path / "model.h5").get_model()
    assert np.array_equal(loaded.get_weights()[0], model.get_weights()[0])
    with pytest.raises(ValueError, match="no such file"):
        tft.TensorflowCheckpoint.from_h5(tmp_path / "model.keras")


@pytest.mark.skipif("tf_keras" not in KERAS, reason="only Keras 2 loads a SavedModel as a model")
def test_saved_model_becomes_checkpoint(tmp_path: Path) -> None:
    model = model_of("tf_keras")
    model.save(tmp_path / "saved", save_format="tf")
    loaded = tft.TensorflowCheckpoint.from_saved_model(tmp_path / "saved").get_model()
    assert np.array_equal(loaded.get_weights()[0], model.get_weights()[0])
    with pytest.raises(ValueError, match="no such directory"):
        tft.TensorflowCheckpoint.from_saved_model(tmp_path / "nowhere")


def test_checkpoint_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="in its metadata"):
        tft.TensorflowCheckpoint.from_directory(tmp_path).get_model()


def test_worker_gets_tf_config(monkeypatch: pytest.MonkeyPatch) -> None:
    from syncline.train.tensorflow import config

    class Session:
        world_rank = 1

    for name in ("TF_CONFIG", "TF_CPP_MIN_LOG_LEVEL"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "0")
    monkeypatch.setattr(config, "get_session", lambda _: Session)
    config.join(["10.0.0.1:1", "10.0.0.2:2"])
    assert json.loads(settings.environment("TF_CONFIG") or "") == {
        "cluster": {"worker": ["10.0.0.1:1", "10.0.0.2:2"]},
        "task": {"type": "worker", "index": 1},
    }


def test_shard_is_not_sharded_again() -> None:
    import tensorflow as tf

    shard = tft.prepare_dataset_shard(tf.data.Dataset.range(3))
    assert list(shard.as_numpy_iterator()) == [0, 1, 2]
    assert (
        shard.options().experimental_distribute.auto_shard_policy
        == tf.data.experimental.AutoShardPolicy.OFF
    )


def test_trainer_refuses_invalid_config() -> None:
    with pytest.raises(TypeError, match="`tensorflow_config` is a dict"):
        tft.TensorflowTrainer(lambda: None, tensorflow_config={})
