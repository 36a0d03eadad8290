"""A trainable for tests of searches, whose curve is known: a hyperbolic tangent."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

from syncline.tune.registry import register_trainable
from syncline.tune.trainable import Trainable

MOCK_TRAINABLE_NAME = "mock_trainable"
MOCK_ERROR_KEY = "mock_error"


class MyTrainableClass(Trainable):
    """Reports `episode_reward_mean`: `height * tanh(step / width)`.

    Keys of the configuration: `width` and `height`, 1 by default; `sleep`, seconds of a step;
    `mock_error`, True to fail in the second step unless a checkpoint was restored, and with
    `persistent_error` afterwards, too.
    """

    def setup(self, config: dict[str, Any]) -> None:
        self.timestep = 0
        self.restored = False
        self._sleep_s = config.get("sleep", 0)
        self._fails = bool(config.get(MOCK_ERROR_KEY, False))
        self._fails_again = bool(config.get("persistent_error", False))

    def step(self) -> dict[str, Any]:
        if self._fails and self.timestep > 0 and (self._fails_again or not self.restored):
            raise RuntimeError(f"`{MOCK_ERROR_KEY}` is set: step {self.timestep + 1} fails")
        if self._sleep_s > 0:
            time.sleep(self._sleep_s)
        self.timestep += 1
        width, height = self.config.get("width", 1), self.config.get("height", 1)
        return {"episode_reward_mean": height * math.tanh(self.timestep / width)}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        state = json.dumps({"timestep": self.timestep})
        Path(checkpoint_dir, "checkpoint").write_text(state, "utf-8")

    def load_checkpoint(self, checkpoint: Any) -> None:
        state = json.loads(Path(checkpoint, "checkpoint").read_text("utf-8"))
        self.timestep = state["timestep"]
        self.restored = True


def register_mock_trainable() -> None:
    """Register the trainable as `mock_trainable`."""
    register_trainable(MOCK_TRAINABLE_NAME, MyTrainableClass)
