"""QMIX: mixers, next values, masks and memory against naive versions; the two-step game."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from syncline.rl.algorithm.algorithm import Algorithm
from syncline.rl.algorithms.qmix import QMixConfig
from syncline.rl.algorithms.qmix.episode_store import EpisodeStore
from syncline.rl.algorithms.qmix.torch.mixers_torch import QMixer, VDNMixer
from syncline.rl.algorithms.qmix.torch.qmix_torch_learner import QMixTorchLearner
from syncline.rl.algorithms.qmix.torch.qmix_torch_module import (
    Q_NEXT,
    TEAM_CHOSEN,
    TEAM_NEXT,
    QMixTorchRLModule,
)
from syncline.rl.columns.fragment import Fragment
from syncline.rl.columns.names import Columns
from syncline.rl.envs.examples.games import TwoStepGame, TwoStepGameWithGroupedAgents

ENTRY = gym.spaces.Dict(
    {
        "obs": gym.spaces.Box(-9, 9, (3,)),
        "state": gym.spaces.Box(-9, 9, (4,)),
        "action_mask": gym.spaces.MultiBinary(3),
    }
)
OBS_SPACE = gym.spaces.Tuple([ENTRY, ENTRY])
ACTION_SPACE = gym.spaces.Tuple([gym.spaces.Discrete(3)] * 2)


def module(**config):
    torch.manual_seed(0)
    return QMixTorchRLModule(
        observation_space=OBS_SPACE,
        action_space=ACTION_SPACE,
        model_config={"fcnet_hiddens": [8], "fcnet_activation": "relu", **config},
    )


def observations(*shape, seed=0, mask=None):
    random = np.random.default_rng(seed)
    state = random.standard_normal((*shape, 4)).astype(np.float32)
    return tuple(
        {
            "obs": random.standard_normal((*shape, 3)).astype(np.float32),
            "state": state,
            "action_mask": np.ones((*shape, 3), np.int8) if mask is None else mask,
        }
        for _ in range(2)
    )


def tensors(tree):
    return tuple({k: torch.from_numpy(v) for k, v in each.items()} for each in tree)


def two_step_game(mixer, **config):
    return (
        QMixConfig()
        .environment(grouped_game)
        .env_runners(num_envs_per_env_runner=4)
        .training(mixer=mixer, epsilon=1.0, lr=5e-3, target_network_update_freq=200)
        .training(num_steps_sampled_before_learning_starts=200)
        .rl_module(model_config={"fcnet_hiddens": [32], "lstm_cell_size": 16, **config})
        .reporting(min_sample_timesteps_per_iteration=2000)
        .debugging(seed=1)
    )


def grouped_game(_):
    game = TwoStepGame({"one_hot_state_encoding": True, "separate_state_space": True})
    return game.with_agent_groups({"team": [0, 1]})


# -- mixers


def test_qmix_follows_its_equation_and_never_falls_with_an_agents_value():
    torch.manual_seed(3)
    mixer = QMixer(num_agents=3, state_size=4, embed_size=5)
    values = torch.randn(7, 3, requires_grad=True)
    states = torch.randn(7, 4)
    mixed = mixer(values, states)
    for row in range(7):
        first = mixer.weights_1(states[row]).abs().view(3, 5)
        hidden = torch.nn.functional.elu(values[row] @ first + mixer.bias_1(states[row]))
        expected = hidden @ mixer.weights_2(states[row]).abs() + mixer.bias_2(states[row])[0]
        torch.testing.assert_close(mixed[row], expected)
    (slopes,) = torch.autograd.grad(mixed.sum(), values)
    assert (slopes >= 0).all()
    assert (slopes > 0).any()


def test_vdn_adds_the_values():
    values = torch.tensor([[1.0, 2.0], [-1.0, 4.0]])
    assert VDNMixer()(values, torch.zeros(2, 1)).tolist() == [3.0, 3.0]


# -- values


@pytest.mark.parametrize("double_q", [True, False])
def test_next_values_are_the_targets_of_the_best_allowed_actions(double_q):
    made = module(double_q=double_q, mixer="vdn")
    for parameter in made.target_head.parameters():
        parameter.data += torch.randn_like(parameter)
    mask = np.random.default_rng(1).integers(0, 2, (4, 6, 3)).astype(np.int8)
    mask[..., 1] = 1
    obs = tensors(observations(4, 6, mask=mask))
    actions = tuple(torch.randint(3, (4, 5)) for _ in range(2))
    out = made.forward_train({Columns.OBS: obs, Columns.ACTIONS: actions})
    for s in range(4):
        for t in range(5):
            for agent in range(2):
                one = torch.cat([obs[agent]["obs"][s, t + 1], torch.eye(2)[agent]])
                batch = {Columns.OBS: one}
                online = made.head(made.encoder(batch)["encoder_out"])
                target = made.target_head(made.target_encoder(batch)["encoder_out"])
                chooser = online if double_q else target
                allowed = [a for a in range(3) if mask[s, t + 1, a]]
                best = max(allowed, key=lambda a: float(chooser[a].detach()))
                torch.testing.assert_close(out[Q_NEXT][s, t, agent], target[best])
    torch.testing.assert_close(out[TEAM_NEXT], out[Q_NEXT].sum(-1))


@pytest.mark.parametrize("kind", ["use_gru", "use_lstm"])
def test_sequences_have_the_values_of_single_steps_with_memory(kind):
    made = module(**{kind: True, "lstm_cell_size": 5})
    obs = tensors(observations(3, 4))
    whole = made._values({Columns.OBS: obs}, made.encoder, made.head)
    state = made._first_states(3)
    state = {name: leaf.view(3, 2, *leaf.shape[1:]) for name, leaf in state.items()}
    for t in range(4):
        step = tuple({k: v[:, t] for k, v in each.items()} for each in obs)
        values, state = made.compute_q_values({Columns.OBS: step, Columns.STATE_IN: state})
        torch.testing.assert_close(values, whole[:, t], rtol=1e-4, atol=1e-5)


def test_loss_is_the_mean_squared_error_of_real_steps():
    learner = object.__new__(QMixTorchLearner)

    class Metrics:
        def log_dict(self, *args, **kwargs): ...

    learner.metrics = Metrics()
    batch = {
        Columns.REWARDS: torch.tensor([[1.0, 2.0, 0.0], [3.0, 0.0, 0.0]]),
        Columns.TERMINATEDS: torch.tensor([[False, True, False], [False, False, False]]),
        Columns.LOSS_MASK: torch.tensor([[True, True, False], [True, False, False]]),
    }
    chosen = torch.tensor([[0.5, 1.0, 99.0], [1.0, 99.0, 99.0]])
    following = torch.full((2, 3), 10.0)
    out = {TEAM_CHOSEN: chosen, TEAM_NEXT: following, "q_chosen": torch.zeros(2, 3, 2)}
    loss = learner.compute_loss_for_module(
        module_id="team", config=QMixConfig().training(gamma=0.9), batch=batch, fwd_out=out
    )
    expected = ((0.5 - (1 + 9)) ** 2 + (1.0 - 2) ** 2 + (1.0 - (3 + 9)) ** 2) / 3
    assert float(loss) == pytest.approx(expected)


# -- acting


def test_exploration_takes_each_allowed_action_as_often_and_no_other():
    made = module(epsilon=1.0)
    mask = np.tile(np.array([1, 0, 1], np.int8), (4000, 1))
    acting = made.acting_policy()
    noise = np.random.default_rng(0).random((4000, acting.noise_size))
    columns, _ = acting.act(observations(4000, mask=mask), noise, explore=True)
    for actions in columns[Columns.ACTIONS]:
        counts = np.bincount(actions, minlength=3)
        assert counts[1] == 0
        assert abs(counts[0] - 2000) < 150
    greedy, _ = acting.act(observations(4000, mask=mask), noise, explore=False)
    assert all((actions != 1).all() for actions in greedy[Columns.ACTIONS])


# -- episodes


def fragment(rewards, done, env=7, first_step=0, final=()):
    """Return a fragment of one trajectory whose observations count up from the first reward."""
    length = len(rewards)
    return Fragment(
        obs=np.arange(rewards[0], rewards[0] + length + 1, dtype=np.float32)[:, None],
        columns={Columns.ACTIONS: (np.arange(length)[:, None],)},
        rewards=np.array(rewards, np.float32)[:, None],
        terminated=np.array(done)[:, None],
        truncated=np.zeros((length, 1), bool),
        final_at=np.array([(t, 0) for t in np.flatnonzero(done)], np.int64).reshape(-1, 2),
        final_obs=np.array(final, np.float32),
        first_step=np.array([first_step]),
        env=np.array([env]),
    )


def test_episodes_are_put_together_from_fragments_and_padded():
    store = EpisodeStore(capacity=10, seed=0)
    store.add(fragment([0, 1, 2], [False, True, False], final=[100]))
    store.add(fragment([3, 4, 5], [False, False, True], first_step=1, final=[200]))
    assert (len(store), store.num_steps) == (2, 6)
    drawn = store.sample(50)
    lengths = drawn[Columns.LOSS_MASK].sum(1)
    assert set(lengths) == {2, 4}
    for row, length in enumerate(lengths):
        rewards, obs = ([0, 1], [0, 1, 100]) if length == 2 else ([2, 3, 4, 5], [2, 3, 4, 5, 200])
        assert drawn[Columns.REWARDS][row].tolist() == rewards + [0] * (4 - length)
        assert drawn[Columns.OBS][row].tolist() == obs + [0] * (4 - length)
        assert drawn[Columns.TERMINATEDS][row, length - 1]


def test_full_store_forgets_the_oldest_episode():
    store = EpisodeStore(capacity=2, seed=0)
    for value in (1, 2, 3):
        store.add(fragment([value], [True], final=[0]))
    assert set(store.sample(50)[Columns.REWARDS].ravel()) == {2, 3}


def test_steps_of_an_episode_that_began_anew_are_dropped():
    store = EpisodeStore(capacity=2, seed=0)
    store.add(fragment([5, 6], [False, False]))
    store.add(fragment([1], [True], final=[0]))
    assert store.sample(1)[Columns.REWARDS].tolist() == [[1]]


def test_restored_store_draws_the_same():
    store = EpisodeStore(capacity=3, seed=0)
    for value in (1, 2, 3, 4):
        store.add(fragment([value, value], [False, True], final=[0]))
    other = EpisodeStore(capacity=3, seed=9)
    other.set_state(store.get_state())
    np.testing.assert_array_equal(
        store.sample(20)[Columns.REWARDS], other.sample(20)[Columns.REWARDS]
    )


# -- the algorithm


def test_iteration_reports_and_survives_a_checkpoint(tmp_path):
    config = two_step_game("qmix").reporting(min_sample_timesteps_per_iteration=250)
    algo = config.build_algo()
    result = algo.train()
    found = result["learners"]["default_policy"]
    assert {"qf_loss", "td_error_mean", "qf_mean", "q_team_mean"} <= set(found)
    assert found["gradients_default_optimizer_global_norm"] > 0
    assert result["replay_buffer"]["default_policy"]["num_episodes_stored"] > 100
    assert 0 <= result["env_runners"]["episode_return_mean"] <= 8
    path = algo.save_to_path(tmp_path / "checkpoint")
    restored = Algorithm.from_checkpoint(path)
    assert len(restored.store("default_policy")) == len(algo.store("default_policy"))
    before, after = (each.get_weights()["default_policy"] for each in (algo, restored))
    assert all((before[name] == after[name]).all() for name in before)
    restored.train()
    algo.stop()
    restored.stop()


def test_observations_without_dict_and_state_work():
    config = two_step_game("qmix").environment(TwoStepGameWithGroupedAgents)
    algo = config.reporting(min_sample_timesteps_per_iteration=210).build_algo()
    assert np.isfinite(algo.train()["learners"]["default_policy"]["qf_loss"])
    algo.stop()


def test_agents_that_are_no_group_are_refused():
    with pytest.raises(ValueError, match="with_agent_groups"):
        two_step_game("qmix").environment(TwoStepGame).build_algo()
    with pytest.raises(ValueError, match="`mixer='qmx'` is unknown. Did you mean 'qmix'"):
        two_step_game("qmx").build_algo()


@pytest.mark.long
@pytest.mark.parametrize(
    ("mixer", "gru", "best"), [("qmix", False, 8.0), ("qmix", True, 8.0), ("vdn", False, 7.0)]
)
def test_two_step_game(mixer, gru, best):
    algo = two_step_game(mixer, use_gru=gru).build_algo()
    for _ in range(4):
        algo.train()
    assert algo.evaluate()["env_runners"]["episode_return_mean"] == best
    algo.stop()
