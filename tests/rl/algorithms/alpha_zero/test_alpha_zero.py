"""AlphaZero: games and their outcomes, the loss, exact resume; tic-tac-toe and sparse CartPole."""

import functools

import gymnasium as gym
import numpy as np
import pytest
import torch

from syncline.rl.algorithm.algorithm import Algorithm
from syncline.rl.algorithms.alpha_zero import AlphaZeroConfig
from syncline.rl.algorithms.alpha_zero.alpha_zero_env_runner import (
    MCTS_POLICIES,
    AlphaZeroEnvRunner,
    value_targets,
)
from syncline.rl.algorithms.alpha_zero.simulator import ONLY_PLAYER, Simulator
from syncline.rl.algorithms.alpha_zero.torch.alpha_zero_torch_learner import AlphaZeroTorchLearner
from syncline.rl.columns.names import Columns
from syncline.rl.envs.examples.cart_poles import CartPoleSparseRewards
from syncline.rl.envs.examples.games import RockPaperScissors, TicTacToe

MASKED = {"action_mask": True}


def tic_tac_toe(**training):
    return (
        AlphaZeroConfig()
        .environment(TicTacToe, env_config=MASKED)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=8, rollout_fragment_length=60)
        .training(
            mcts_config={"num_simulations": 6, "temperature": 1.0},
            lr=0.003,
            train_batch_size=100,
            minibatch_size=50,
            num_epochs=1,
            num_steps_sampled_before_learning_starts=0,
        )
        .training(**training)
        .rl_module(model_config={"fcnet_hiddens": [16], "fcnet_activation": "relu"})
        .debugging(seed=1)
    )


# -- the simulator


def test_any_earlier_position_can_be_continued():
    simulator = Simulator(TicTacToe(MASKED), "game")
    first = simulator.reset(seed=0)
    left, right = simulator.step(first, 0), simulator.step(first, 8)
    assert left.player == right.player != first.player
    assert left.obs["obs"].tolist() == [-1, 0, 0, 0, 0, 0, 0, 0, 0]
    assert right.mask.tolist() == [True] * 8 + [False]
    again = simulator.step(left, 4)
    assert again.obs["obs"].tolist() == [1, 0, 0, 0, -1, 0, 0, 0, 0]


def test_end_has_the_movers_reward_and_all_returns():
    simulator = Simulator(TicTacToe(MASKED), "game")
    position = simulator.reset(seed=0)
    winner = position.player
    for action in (0, 3, 1, 4):
        position = simulator.step(position, action)
    end = simulator.step(position, 2)
    assert (end.is_over, end.reward, end.player) == (True, 1.0, winner)
    assert sorted(end.returns.values()) == [-1.0, 1.0]
    assert end.returns[winner] == 1.0


def test_environments_without_states_of_their_own_are_saved_by_their_attributes():
    simulator = Simulator(gym.make("CartPole-v1"), "CartPole")
    first = simulator.reset(seed=3)
    one, two = simulator.step(first, 1), simulator.step(first, 1)
    np.testing.assert_array_equal(one.obs, two.obs)
    assert one.returns == {ONLY_PLAYER: 1.0}


def test_players_must_act_in_turns_with_discrete_actions():
    with pytest.raises(Exception, match=r"turn-based.*'player1', 'player2'"):
        Simulator(RockPaperScissors(), "game").reset(seed=0)
    with pytest.raises(Exception, match="needs Discrete actions"):
        Simulator(gym.make("Pendulum-v1"), "Pendulum")


# -- outcomes and loss


def test_value_targets_are_the_outcome_for_each_mover():
    class Made:
        def __init__(self, player=None, reward=0.0, is_over=False, returns=()):
            self.player, self.reward, self.is_over = player, reward, is_over
            self.returns = dict(enumerate(returns))
            self.position = self

    moves = [Made("a"), Made("b", 0.5), Made("a"), Made("a", 1.0)]
    end = Made("a", 1.0, True)
    # From the end: a 1; a 0 + .5; b .5 - .25; a 0 - .125.
    assert value_targets(moves, end, 0.5, None) == [-0.125, 0.25, 0.5, 1.0]
    assert value_targets(moves, Made("a", 1.0, True, [7.0]), 0.5, 6.0) == [1.0] * 4
    assert value_targets(moves, Made("a", 1.0, True, [7.0]), 0.5, 8.0) == [-1.0] * 4


def test_loss_is_squared_error_and_cross_entropy():
    learner = object.__new__(AlphaZeroTorchLearner)

    class Metrics:
        def log_dict(self, *args, **kwargs): ...

    learner.metrics = Metrics()
    logits = torch.tensor([[0.0, 1.0, torch.finfo(torch.float32).min], [2.0, 0.0, 1.0]])
    found = torch.tensor([[0.25, 0.75, 0.0], [1.0, 0.0, 0.0]])
    values, targets = torch.tensor([0.5, -1.0]), torch.tensor([1.0, 1.0])
    loss = learner.compute_loss_for_module(
        module_id="m",
        config=AlphaZeroConfig().training(vf_loss_coeff=2.0),
        batch={MCTS_POLICIES: found, Columns.VALUE_TARGETS: targets},
        fwd_out={Columns.ACTION_DIST_INPUTS: logits, Columns.VF_PREDS: values},
    )
    p = [np.exp([0.0, 1.0]) / np.exp([0.0, 1.0]).sum(), np.exp([2, 0, 1]) / np.exp([2, 0, 1]).sum()]
    entropy = -(0.25 * np.log(p[0][0]) + 0.75 * np.log(p[0][1]) + np.log(p[1][0])) / 2
    assert float(loss) == pytest.approx(entropy + 2.0 * (0.25 + 4.0) / 2, rel=1e-5)


def test_runner_hands_over_complete_games_and_keeps_the_others():
    runner = AlphaZeroEnvRunner(config=tic_tac_toe())
    sample = runner.sample_complete(40)
    (fragment,) = sample.fragments.values()
    assert fragment.num_steps == sample.env_steps == sum(e.length for e in sample.episodes) >= 40
    assert fragment.terminated.sum() == len(sample.episodes)
    assert len(runner._games) == 8
    rows = fragment.columns
    np.testing.assert_allclose(rows[MCTS_POLICIES].sum(-1), 1.0, rtol=1e-6)
    assert set(rows[Columns.VALUE_TARGETS].ravel()) <= {-1.0, 0.0, 1.0}
    taken = fragment.obs["action_mask"][:-1, 0][np.arange(40), rows[Columns.ACTIONS][:40, 0]]
    assert (taken == 1).all()
    lengths = [e.length for e in sample.episodes]
    if rows[Columns.VALUE_TARGETS][lengths[0] - 1, 0] == 1.0:  # who ended the first game won it
        signs = rows[Columns.VALUE_TARGETS][: lengths[0], 0]
        assert (signs[:-1] == -signs[1:]).all()


# -- the algorithm


def test_iteration_reports_and_trains_on_recent_games():
    algo = tic_tac_toe(replay_buffer_config={"capacity": 5}).build_algo()
    before = {k: v.copy() for k, v in algo.get_weights()["default_policy"].items()}
    result = algo.train()
    assert len(algo._episodes) == 5
    assert result["env_runners"]["num_episodes"] > 5
    assert result["num_env_steps_sampled_lifetime"] >= 60
    assert {"policy_loss", "vf_loss", "entropy"} <= set(result["learners"]["default_policy"])
    assert any((before[k] != v).any() for k, v in algo.get_weights()["default_policy"].items())
    algo.stop()


@pytest.mark.parametrize("one_player", [False, True])
def test_restored_algorithm_ends_with_the_same_weights(one_player, tmp_path):
    config = tic_tac_toe()
    if one_player:
        config.environment(CartPoleSparseRewards, env_config={})
    algo = config.build_algo()
    algo.train()
    path = algo.save_to_path(tmp_path / "checkpoint")
    expected = algo.train()
    restored = Algorithm.from_checkpoint(path)
    found = restored.train()
    assert found["env_runners"]["episode_len_mean"] == expected["env_runners"]["episode_len_mean"]
    one, other = (each.get_weights()["default_policy"] for each in (algo, restored))
    assert all((one[name] == other[name]).all() for name in one)
    algo.stop()
    restored.stop()


def test_ranked_rewards_are_for_one_player_only():
    game, alone = tic_tac_toe(), tic_tac_toe().environment(CartPoleSparseRewards, env_config={})
    for config, is_ranked in ((game, False), (alone, True)):
        algo = config.build_algo()
        algo.train()
        assert (algo._threshold() is not None) is is_ranked
        algo.stop()


def test_evaluation_plays_without_noise():
    algo = tic_tac_toe().build_algo()
    found = algo.evaluate()["env_runners"]
    assert found["num_episodes"] == 10
    again = algo.evaluate()["env_runners"]
    assert found["episode_len_mean"] == again["episode_len_mean"]
    algo.stop()


def test_wrong_options_are_refused():
    with pytest.raises(ValueError, match=r"'num_simulation'. Did you mean 'num_simulations'"):
        tic_tac_toe(mcts_config={"num_simulation": 3}).build_algo()
    with pytest.raises(ValueError, match="must be 'complete_episodes'"):
        tic_tac_toe().env_runners(batch_mode="truncate_episodes").build_algo()
    with pytest.raises(ValueError, match="without memory"):
        tic_tac_toe().rl_module(model_config={"use_lstm": True}).build_algo()


# -- learning


@functools.cache
def best_outcome(board):
    """Return 1, 0 or -1: what the player in turn reaches against a perfect opponent."""
    if any(all(board[i] == -1 for i in line) for line in TicTacToe.WIN_LINES):
        return -1
    if all(board):
        return 0
    return max(-best_outcome(after(board, move)) for move in range(9) if board[move] == 0)


def after(board, move):
    return tuple(-x for x in (*board[:move], 1, *board[move + 1 :]))


def perfect_move(board, random):
    outcomes = {move: -best_outcome(after(board, move)) for move in range(9) if board[move] == 0}
    best = max(outcomes.values())
    return int(random.choice([move for move, each in outcomes.items() if each == best]))


def outcomes_against_a_perfect_player(algo, games):
    random, env, found = np.random.default_rng(0), TicTacToe(MASKED), []
    for game in range(games):
        obs, _ = env.reset(seed=game)  # draws who begins
        over = False
        while not over:
            player = env.current_player
            if player == "player1":
                policy = algo.search_policies([env.get_state()], [obs[player]], [player])[0]
                move = int(policy.argmax())
            else:
                move = perfect_move(tuple(int(x) for x in env.board), random)
            obs, rewards, terminated, truncated, _ = env.step({player: move})
            over = terminated["__all__"] or truncated["__all__"]
        found.append(rewards["player1"])
    return found


@pytest.mark.long
def test_tic_tac_toe_is_never_lost_against_a_perfect_player():
    algo = (
        tic_tac_toe(
            mcts_config={"num_simulations": 30, "dirichlet_noise": 1.0, "puct_coefficient": 1.5},
            train_batch_size=4000,
            minibatch_size=256,
            num_epochs=2,
        )
        .env_runners(num_envs_per_env_runner=32, rollout_fragment_length=500)
        .rl_module(model_config={"fcnet_hiddens": [64, 64]})
        .build_algo()
    )
    assert outcomes_against_a_perfect_player(algo, 20).count(-1.0) > 5  # untrained
    for _ in range(25):
        algo.train()
    assert -1.0 not in outcomes_against_a_perfect_player(algo, 100)
    algo.stop()


@pytest.mark.long
def test_ranked_rewards_learn_cartpole_with_a_reward_at_the_end_only():
    algo = (
        tic_tac_toe(
            mcts_config={"num_simulations": 20, "dirichlet_noise": 1.0, "puct_coefficient": 1.5},
            ranked_rewards={"buffer_max_length": 50},
            replay_buffer_config={"capacity": 60},
            train_batch_size=2000,
            minibatch_size=256,
            num_epochs=3,
        )
        .environment(CartPoleSparseRewards, env_config={})
        .env_runners(num_envs_per_env_runner=16, rollout_fragment_length=400)
        .rl_module(model_config={"fcnet_hiddens": [64, 64]})
        .build_algo()
    )
    length = 0.0
    for _ in range(50):
        length = algo.train()["env_runners"]["episode_len_mean"]
        if length >= 100:
            break
    algo.stop()
    assert length >= 100
