"""Simulators that act themselves: messages, inference on both sides, threads, errors."""

import socket
import subprocess
import sys
import textwrap
import threading

import gymnasium as gym
import numpy as np
import pytest

from syncline.rllib.algorithms.dqn import DQNConfig
from syncline.rllib.algorithms.ppo import PPO, PPOConfig
from syncline.rllib.env.external.env_runner_server_for_external_inference import (
    EnvRunnerServerForExternalInference,
)
from syncline.rllib.env.external.rllink import RLlink, get_rllink_message, send_rllink_message
from syncline.rllib.env.external_env import ExternalEnv
from syncline.rllib.env.policy_client import PolicyClient
from syncline.rllib.env.policy_server_input import PolicyServerInput
from syncline.testing.waiting import eventually

CART_POLE = gym.make("CartPole-v1")
SPACES = {"observation_space": CART_POLE.observation_space, "action_space": CART_POLE.action_space}


def config(address, **model):
    return (
        PPOConfig()
        .environment(**SPACES, env_config=address)
        .env_runners(num_env_runners=0, env_runner_cls=EnvRunnerServerForExternalInference)
        .rl_module(model_config={"fcnet_hiddens": [16], **model})
        .training(train_batch_size=100, minibatch_size=50, num_epochs=1)
        .debugging(seed=1)
    )


def play(client, stopped, env_id="CartPole-v1"):
    """Play episodes until the connection ends."""
    env = gym.make(env_id)
    try:
        while not stopped.is_set():
            episode = client.start_episode()
            obs, _ = env.reset()
            done = False
            while not done:
                action = client.get_action(episode, obs)
                obs, reward, terminated, truncated, _ = env.step(int(action))
                client.log_returns(episode, reward)
                done = terminated or truncated
            client.end_episode(episode, obs, truncated=truncated)
    except ConnectionError:
        pass


@pytest.fixture
def playing():
    """Start threads that play; they end with the algorithm's connections."""
    stopped, threads = threading.Event(), []

    def start(*clients):
        for client in clients:
            threads.append(threading.Thread(target=play, args=(client, stopped), daemon=True))
            threads[-1].start()

    yield start
    stopped.set()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.parametrize("mode", ["remote", "local"])
def test_algorithm_learns_from_two_simulators(playing, tmp_path, mode):
    algo = config({"socket_path": str(tmp_path / "socket")}).build_algo()
    path = algo.env_runner.server.address
    playing(PolicyClient(path, mode), PolicyClient(path, mode))
    for _ in range(3):
        result = algo.train()
    assert result["num_env_steps_sampled_lifetime"] >= 300
    assert result["env_runners"]["episode_return_mean"] > 8
    assert np.isfinite(result["learners"]["default_policy"]["total_loss"])
    assert algo.env_runner.weights_version >= 3
    algo.stop()


def test_modules_with_memory_act_in_the_algorithm(playing, tmp_path):
    made = config(
        {"socket_path": str(tmp_path / "socket")}, use_lstm=True, lstm_cell_size=8, max_seq_len=5
    )
    algo = made.build_algo()
    path = algo.env_runner.server.address
    with pytest.raises(ValueError, match="inference_mode='remote'"):
        PolicyClient(path, "local")
    playing(PolicyClient(path, "remote"))
    algo.train()
    algo.stop()


CLIENT = """
    import sys
    import gymnasium as gym
    from syncline.rllib.env.policy_client import PolicyClient

    env = gym.make("CartPole-v1")
    client = PolicyClient(sys.argv[1], inference_mode=sys.argv[2])
    try:
        while True:
            episode = client.start_episode()
            obs, _ = env.reset()
            over = False
            while not over:
                action = client.get_action(episode, obs)
                obs, reward, terminated, truncated, info = env.step(int(action))
                client.log_returns(episode, reward, info=info)
                over = terminated or truncated
            client.end_episode(episode, obs)
    except ConnectionError:
        print("closed")
"""


@pytest.mark.processes
def test_client_process_of_an_older_program():
    algo = PPO(
        config={
            "env": None,
            **SPACES,
            "input": lambda ioctx: PolicyServerInput(ioctx, "localhost", 0),
            "num_workers": 0,
            "train_batch_size": 100,
            "sgd_minibatch_size": 50,
            "num_sgd_iter": 1,
            "model": {"fcnet_hiddens": [16]},
        }
    )
    host, port = algo.env_runner.server.address
    client = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(CLIENT), f"http://{host}:{port}", "remote"],
        stdout=subprocess.PIPE,
        text=True,
    )
    result = algo.train()
    assert result["episode_reward_mean"] > 5
    algo.stop()
    assert client.communicate(timeout=60)[0] == "closed\n"


def test_messages_of_rllink(tmp_path):
    path = str(tmp_path / "socket")
    algo = config({"socket_path": path}).build_algo()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        for kind, answer in (("PING", RLlink.PONG), ("GET_STATE", RLlink.SET_STATE)):
            send_rllink_message(client, {"type": kind})
            found, body = get_rllink_message(client)
            assert found is answer
        assert body["state"]["weights_seq_no"] == 0
        assert all(isinstance(each, np.ndarray) for each in body["state"]["rl_module"].values())
        for message, error in (
            ({"type": "GET_ACTION", "episode_id": "a", "observation": 1}, "unknown episode 'a'"),
            ({"type": "SET_STATE", "episode_id": "a"}, "only an algorithm"),
        ):
            send_rllink_message(client, message)
            found, body = get_rllink_message(client)
            assert found is RLlink.ERROR
            assert error in body["error"]
        send_rllink_message(client, {"type": "EPISODE"})
        with pytest.raises(ConnectionError, match="closed"):
            get_rllink_message(client)
    algo.stop()


def test_wrong_observations_and_rewards_are_refused(tmp_path):
    algo = config({"socket_path": str(tmp_path / "socket")}).build_algo()
    client = PolicyClient(algo.env_runner.server.address, "remote")
    episode = client.start_episode()
    with pytest.raises(ValueError, match=r"shape \(3,\), but the space has \(4,\)"):
        client.get_action(episode, np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="is nan"):
        client.get_action(episode, np.full(4, np.nan, np.float32))
    client.get_action(episode, np.zeros(4, np.float32))
    with pytest.raises(ValueError, match="the reward is inf"):
        client.log_returns(episode, float("inf"))
    client.close()
    algo.stop()
    with pytest.raises(ConnectionError, match="No algorithm listens"):
        PolicyClient("localhost:1", connect_timeout_s=0.0)
    with pytest.raises(ValueError, match="neither 'host:port'"):
        PolicyClient("localhost")


def test_own_actions_and_episodes_without_training(tmp_path):
    made = (
        DQNConfig()
        .environment(**SPACES, env_config={"socket_path": str(tmp_path / "socket")})
        .env_runners(env_runner_cls=EnvRunnerServerForExternalInference)
        .debugging(seed=1)
    )
    algo = made.build_algo()
    client = PolicyClient(algo.env_runner.server.address, "remote")
    for training in (False, True):
        episode = client.start_episode(training_enabled=training)
        for t in range(5):
            client.log_action(episode, np.full(4, t, np.float32), 1)
            client.log_returns(episode, t)
        client.end_episode(episode, np.zeros(4, np.float32), truncated=True)
    sample = algo.env_runner.sample_steps(5)
    fragment = sample.fragments["default_policy"]
    assert fragment.rewards[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert fragment.columns["actions"][:, 0].tolist() == [1] * 5
    assert fragment.truncated[-1, 0]
    assert [each.episode_return for each in sample.episodes] == [10.0]
    client.close()
    algo.stop()


class Thread(ExternalEnv):
    is_over = threading.Event()
    """Ends the simulator, which would take the processor from all later tests of the process."""

    def __init__(self, config):
        super().__init__(CART_POLE.action_space, CART_POLE.observation_space)

    def run(self):
        env = gym.make("CartPole-v1")
        while not self.is_over.is_set():
            episode = self.start_episode()
            obs, _ = env.reset()
            done = False
            while not done:
                obs, reward, terminated, truncated, _ = env.step(int(self.get_action(episode, obs)))
                self.log_returns(episode, reward)
                done = terminated or truncated
            self.end_episode(episode, obs, truncated=truncated)


def test_simulator_in_a_thread():
    algo = config({}).environment(Thread).env_runners(env_runner_cls=None).build_algo()
    try:
        assert algo.train()["env_runners"]["num_episodes"] > 0
    finally:
        Thread.is_over.set()
        algo.stop()
    eventually(lambda: not any(isinstance(each, Thread) for each in threading.enumerate()))


def test_spaces_and_free_addresses_are_needed(tmp_path):
    with pytest.raises(ValueError, match="need the spaces in the configuration"):
        config({}).environment(observation_space=None).build_algo()
    path = tmp_path / "missing" / "socket"
    with pytest.raises(OSError, match="Simulators cannot connect at"):
        config({"socket_path": str(path)}).build_algo()
