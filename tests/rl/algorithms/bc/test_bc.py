"""Behavior cloning of a rule that a person can state."""

import numpy as np
import pytest
import torch

import syncline
from syncline import data
from syncline.rl.algorithms.bc import BC, BCConfig
from syncline.rl.columns.names import Columns
from syncline.rl.modules.default_model_config import DefaultModelConfig

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module", autouse=True)
def engine():
    syncline.init(num_cpus=2)
    yield
    syncline.shutdown()


def rule(observations):
    """Push the cart to where the pole leans."""
    return (observations[:, 2] > 0).astype(np.int64)


def demonstrations():
    generator = np.random.default_rng(0)
    observations = generator.uniform(-0.2, 0.2, (600, 4)).astype(np.float32)
    pairs = zip(observations, rule(observations), strict=True)
    return data.from_items([{"state": each, "push": action} for each, action in pairs])


def config(**options):
    return (
        BCConfig()
        .environment("CartPole-v1")
        .offline_data(
            input_=demonstrations,
            input_read_schema={Columns.OBS: "state", Columns.ACTIONS: "push"},
            **options,
        )
        .training(train_batch_size_per_learner=100, lr=0.02)
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[16]))
        .debugging(seed=1)
    )


def test_the_policy_takes_the_recorded_actions_and_survives_a_checkpoint(tmp_path):
    algorithm = config(dataset_num_iters_per_learner=5).build_algo()
    losses = [algorithm.train()["learners"]["default_policy"]["policy_loss"] for _ in range(12)]
    assert losses[-1] < 0.3 * losses[0]
    path = algorithm.save_to_path(str(tmp_path / "bc"))
    algorithm.stop()
    restored = BC.from_checkpoint(path)
    observations = np.random.default_rng(1).uniform(-0.2, 0.2, (500, 4)).astype(np.float32)
    out = restored.get_module().forward_inference({Columns.OBS: torch.as_tensor(observations)})
    chosen = out[Columns.ACTION_DIST_INPUTS].argmax(-1).numpy()
    assert (chosen == rule(observations)).mean() > 0.95
    restored.stop()


def test_an_iteration_is_a_pass_by_default():
    algorithm = config().build_algo()
    result = algorithm.train()
    assert result["learners"]["default_policy"]["num_module_steps_trained"] == 600
    algorithm.stop()


def test_memory_and_missing_data_are_refused():
    with pytest.raises(ValueError, match=r"offline_data\(input_=…\)"):
        BCConfig().environment("CartPole-v1").build_algo()
    with pytest.raises(ValueError, match="without memory"):
        config().rl_module(model_config=DefaultModelConfig(use_lstm=True)).build_algo()
