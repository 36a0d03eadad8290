"""Networks and distributions of older releases in PPO, DQN and SAC."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from syncline.rl.algorithms.dqn import DQNConfig
from syncline.rl.algorithms.ppo import PPOConfig
from syncline.rl.algorithms.sac import SACConfig
from syncline.rl.columns.names import Columns
from syncline.rl.envs.examples.cart_poles import CartPoleWithDictObservationSpace
from syncline.rl.older.torch.action_dists import (
    TorchBeta,
    TorchCategorical,
    TorchDiagGaussian,
    TorchDistributionWrapper,
    TorchMultiCategorical,
    TorchSquashedGaussian,
    flat_actions,
)
from syncline.rl.older.torch.model_catalog import ModelCatalog
from syncline.rl.older.torch.model_v2 import (
    RecurrentNetwork,
    TorchModelV2,
    preprocessed_space,
    unpacked,
)
from syncline.rl.older.torch.networks import (
    FullyConnectedNetwork,
    GTrXLNet,
    LSTMWrapper,
    SlimFC,
    VisionNetwork,
    normc_initializer,
)


class Mine(TorchModelV2, nn.Module):
    """A network with an option, a loss of its own, and a metric."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name, width=8):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self.body = nn.Sequential(nn.Linear(int(np.prod(obs_space.shape)), width), nn.Tanh())
        self.head = nn.Linear(width, num_outputs)
        self.value = nn.Linear(width, 1)
        self.seen = None

    def forward(self, input_dict, state, seq_lens):
        self.seen = input_dict["obs"]
        self.features = self.body(input_dict["obs_flat"])
        return self.head(self.features), state

    def value_function(self):
        return self.value(self.features).squeeze(1)

    def custom_loss(self, policy_loss, loss_inputs):
        assert Columns.OBS in loss_inputs
        self.norm = sum(parameter.square().sum() for parameter in self.parameters())
        return [loss + 0.01 * self.norm for loss in policy_loss]

    def metrics(self):
        return {"norm": float(self.norm)}


class Gru(RecurrentNetwork, nn.Module):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        RecurrentNetwork.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self.gru = nn.GRU(int(np.prod(obs_space.shape)), 8, batch_first=True)
        self.head = nn.Linear(8, num_outputs)
        self.value = nn.Linear(8, 1)

    def get_initial_state(self):
        return [self.head.weight.new(1, 8).zero_().squeeze(0)]

    def forward_rnn(self, inputs, state, seq_lens):
        out, last = self.gru(inputs, state[0].unsqueeze(0))
        self.features = out.reshape(-1, 8)
        return self.head(out), [last.squeeze(0)]

    def value_function(self):
        return self.value(self.features).squeeze(1)


ModelCatalog.register_custom_model("mine", Mine)


def ppo(env, **model):
    return (
        PPOConfig()
        .environment(env)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=2)
        .training(train_batch_size=80, minibatch_size=40, num_epochs=1, model=model)
        .debugging(seed=1)
    )


def trained(config):
    algo = config.build_algo()
    result = algo.train()
    algo.stop()
    return algo, result["learners"]["default_policy"]


def test_custom_model_with_options_loss_and_metrics():
    algo, learner = trained(
        ppo("CartPole-v1", custom_model="mine", custom_model_config={"width": 5})
    )
    model = algo.get_module().model_v2
    assert model.body[0].out_features == 5
    assert learner["norm"] > 0
    assert learner["total_loss"] >= 0.01 * learner["norm"] - 5
    assert algo.get_policy().model is model
    action, _, out = algo.get_policy().compute_single_action(np.zeros(4, np.float32))
    assert action in (0, 1)
    assert out[Columns.ACTION_DIST_INPUTS].shape == (2,)


def test_custom_model_gets_nested_and_flat_observations():
    algo, _ = trained(ppo(CartPoleWithDictObservationSpace, custom_model=Mine))
    model = algo.get_module().model_v2
    space = algo.get_module().observation_space
    assert isinstance(space, gym.spaces.Dict)
    assert model.obs_space.original_space == space
    assert model.seen.keys() == space.spaces.keys()


@pytest.mark.parametrize("model", [Gru, LSTMWrapper, GTrXLNet])
def test_models_with_memory_train(model):
    config = ppo("CartPole-v1", custom_model=model, max_seq_len=10, fcnet_hiddens=[8])
    if model is GTrXLNet:
        config.training(
            model={
                "custom_model_config": {
                    "attention_dim": 8,
                    "memory_inference": 10,
                    "memory_training": 10,
                }
            }
        )
    algo, learner = trained(config)
    assert algo.get_module().is_stateful()
    assert np.isfinite(learner["total_loss"])


def test_default_networks_of_older_releases():
    flat = gym.spaces.Box(-1, 1, (3,))
    config = {"fcnet_hiddens": [8], "post_fcnet_hiddens": [4], "free_log_std": True}
    model = FullyConnectedNetwork(flat, flat, 6, config, "name")
    logits, state = model({"obs": torch.zeros(5, 3)})
    assert logits.shape == (5, 6)
    assert state == []
    assert model.value_function().shape == (5,)
    features = FullyConnectedNetwork(flat, flat, None, {"fcnet_hiddens": [8]}, "name")
    assert features.num_outputs == 8
    image = gym.spaces.Box(0, 255, (42, 42, 3), np.uint8)
    vision = VisionNetwork(image, flat, 6, {"conv_filters": [[4, 4, 2], [8, 11, 2]]}, "name")
    assert vision({"obs": torch.zeros(2, 42, 42, 3)})[0].shape == (2, 6)
    assert vision.value_function().shape == (2,)
    layer = SlimFC(4, 3, normc_initializer(0.5), "relu")
    norms = layer._model[0].weight.norm(dim=1)
    torch.testing.assert_close(norms, torch.full_like(norms, 0.5))


@pytest.mark.parametrize("config", [DQNConfig, SACConfig])
def test_custom_models_are_encoders_of_q_networks(config):
    made = (
        config()
        .environment("CartPole-v1" if config is DQNConfig else "Pendulum-v1")
        .env_runners(num_env_runners=0)
        .training(
            num_steps_sampled_before_learning_starts=40,
            train_batch_size=16,
            model={"custom_model": "mine", "fcnet_hiddens": [12]},
        )
        .reporting(min_sample_timesteps_per_iteration=60)
        .debugging(seed=1)
    )
    algo = made.build_algo()
    result = algo.train()
    encoders = [m for m in algo.get_module().modules() if isinstance(m, Mine)]
    assert encoders[0].head.out_features == 12
    assert np.isfinite(result["learners"]["default_policy"]["total_loss"])
    algo.stop()
    with pytest.raises(ValueError, match="has a state"):
        made.copy(copy_frozen=False).training(model={"custom_model": Gru}).build_algo()


class Pair(TorchDistributionWrapper):
    """Two numbers; the second one depends on the first, through a layer of the network."""

    @staticmethod
    def required_model_output_shape(action_space, model_config):
        return 4

    def __init__(self, inputs, model):
        super().__init__(inputs, model)
        self.first = TorchCategorical(self.inputs[:, :2])

    def second(self, first):
        return TorchCategorical(self.inputs[:, 2:] + self.model.link(first.float()[:, None]))

    def sample(self):
        first = self.first.sample()
        second = self.second(first).sample()
        self.last_sample = (first, second)
        return self.last_sample

    def deterministic_sample(self):
        first = self.first.deterministic_sample()
        return (first, self.second(first).deterministic_sample())

    def logp(self, actions):
        first = actions[:, 0]
        return self.first.logp(first) + self.second(first).logp(actions[:, 1])

    def entropy(self):
        return self.first.entropy()

    def kl(self, other):
        return self.first.kl(other.first)


class Linked(FullyConnectedNetwork):
    def __init__(self, *args):
        super().__init__(*args)
        self.link = nn.Linear(1, 2)


class TwoNumbers(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Tuple([gym.spaces.Discrete(2), gym.spaces.Discrete(2)])

    def __init__(self, config=None):
        pass

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(tuple(int(each) for each in action))
        return np.zeros(2, np.float32), float(action[0] == action[1]), False, True, {}


@pytest.mark.long
def test_autoregressive_distribution_learns():
    ModelCatalog.register_custom_action_dist("pair", Pair)
    config = ppo(
        TwoNumbers, custom_model=Linked, custom_action_dist="pair", fcnet_hiddens=[8]
    ).training(train_batch_size=200, minibatch_size=200, num_epochs=8, lr=0.02)
    algo = config.build_algo()
    for _ in range(15):
        result = algo.train()
    assert result["env_runners"]["episode_return_mean"] > 0.85
    algo.stop()


def test_unregistered_names_and_wrong_constructors_are_explained():
    with pytest.raises(ValueError, match=r"custom_model='mien'.*mine.*register_custom_model"):
        ppo("CartPole-v1", custom_model="mien").build_algo()
    with pytest.raises(TypeError, match=r"Mine\(.*wdith.*custom_model_config"):
        ppo("CartPole-v1", custom_model=Mine, custom_model_config={"wdith": 3}).build_algo()

    class NoModule(TorchModelV2):
        pass

    with pytest.raises(ValueError, match=r"nn\.Module"):
        NoModule(None, None, 2, {}, "name")


def test_nested_observations_are_restored_from_flat_ones():
    box = gym.spaces.Box(-1, 1, (2, 2), np.float32)
    space = gym.spaces.Dict({"a": gym.spaces.Discrete(3), "b": gym.spaces.Tuple([box])})
    flat = preprocessed_space(space)
    assert flat.shape == (7,)
    nested = unpacked(space, torch.arange(7.0)[None])
    assert nested["a"].tolist() == [[0, 1, 2]]
    assert nested["b"][0].tolist() == [[[3, 4], [5, 6]]]


def test_distributions_agree_with_torch():
    inputs = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    gaussian = TorchDiagGaussian(inputs, None)
    actions = gaussian.sample()
    expected = torch.distributions.Normal(inputs[:, :2], inputs[:, 2:].exp())
    torch.testing.assert_close(gaussian.logp(actions), expected.log_prob(actions).sum(-1))
    torch.testing.assert_close(gaussian.sampled_action_logp(), gaussian.logp(actions))
    torch.testing.assert_close(gaussian.kl(gaussian), torch.zeros(6))
    multi = TorchMultiCategorical(inputs, None, [1, 3])
    assert multi.sample().shape == (6, 2)
    one, two = (torch.distributions.Categorical(logits=each) for each in inputs.split((1, 3), 1))
    torch.testing.assert_close(multi.entropy(), one.entropy() + two.entropy())
    squashed = TorchSquashedGaussian(inputs, None, low=-2.0, high=2.0)
    drawn = squashed.sample()
    assert drawn.abs().max() <= 2
    assert torch.isfinite(squashed.logp(drawn)).all()
    beta = TorchBeta(inputs, None, low=1.0, high=3.0)
    assert ((beta.sample() >= 1) & (beta.sample() <= 3)).all()
    assert flat_actions((torch.ones(3), torch.zeros(3, 2))).tolist() == [[1, 0, 0]] * 3


def test_custom_preprocessor_is_a_connector():
    class Twice:
        def __init__(self, obs_space, options):
            self.observation_space = gym.spaces.Box(-1, 1, (2 * obs_space.shape[0],))

        def transform(self, observation):
            return np.concatenate([observation, observation])

    ModelCatalog.register_custom_preprocessor("twice", Twice)
    algo = ppo("CartPole-v1", custom_preprocessor="twice", fcnet_hiddens=[8]).build_algo()
    assert algo.get_module().observation_space.shape == (8,)
    algo.train()
    algo.stop()


def test_memory_gets_previous_actions_and_rewards():
    algo = ppo(
        "CartPole-v1",
        use_lstm=True,
        lstm_cell_size=8,
        lstm_use_prev_action=True,
        lstm_use_prev_reward=True,
    ).build_algo()
    space = algo.get_module().observation_space
    assert space["prev_n_actions"].shape == (2,)
    assert space["prev_n_rewards"].shape == (1,)
    algo.train()
    algo.stop()
