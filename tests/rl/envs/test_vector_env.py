"""Vectors of single-agent environments: results, errors, restarts, states."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from syncline.rl.envs import env_guard
from syncline.rl.envs.env_errors import EnvError, StepFailedRecreateEnvError
from syncline.rl.envs.examples.cart_poles import CartPoleWithDictObservationSpace
from syncline.rl.envs.examples.games import TicTacToe
from syncline.rl.envs.sync_vector import CHECKED_STEPS
from syncline.rl.envs.vector import get_env_states, make_vector_env, set_env_states
from syncline.rl.envs.vector_step import infos_per_env


@dataclass
class Options:
    env: Any = "CartPole-v1"
    env_config: Any = field(default_factory=dict)
    seed: int | None = 0
    gym_env_vectorize_mode: str = "sync"
    restart_failed_sub_environments: bool = False
    disable_env_checking: bool = False
    render_env: bool = False


class Counter(gym.Env):
    """Counts steps; ends after `length`; misbehaves at step `at` in the way `fault` says."""

    action_space = spaces.Discrete(2)
    observation_space = spaces.Box(-1000.0, 1000.0, (2,), np.float32)

    def __init__(self, config):
        self.config = config
        self.me = config.vector_index == config.get("only", config.vector_index)
        self.count = 0

    def obs(self):
        return np.array([self.count, self.config.vector_index], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        if self.me and self.config.get("fault") == "reset" and seed is None:
            raise OSError("simulator gone")
        return self.obs(), {"seed": seed}

    def step(self, action):
        self.count += 1
        obs, reward, info = self.obs(), float(self.count), {"count": self.count}
        if self.me and self.count == self.config.get("at"):
            fault = self.config["fault"]
            if fault == "raise":
                self.explode()
            if fault == "recreate":
                raise StepFailedRecreateEnvError
            if fault == "shape":
                obs = np.zeros(3, np.float32)
            if fault == "nan":
                obs[1] = np.nan
            if fault == "reward":
                reward = None
        return obs, reward, self.count >= self.config.get("length", 5), False, info

    def explode(self):
        raise ZeroDivisionError("the pole is too long")


def make(mode="sync", num_envs=2, restart=False, env=Counter, **config):
    return make_vector_env(
        Options(
            env=env,
            env_config=config,
            gym_env_vectorize_mode=mode,
            restart_failed_sub_environments=restart,
        ),
        num_envs=num_envs,
        worker_index=4,
        first_env=6,
    )


def step_often(vector, times):
    for _ in range(times):
        vector.step(np.array([0, 1]))


def trees_equal(one, two):
    if isinstance(one, dict):
        return set(one) == set(two) and all(trees_equal(one[key], two[key]) for key in one)
    if isinstance(one, tuple):
        return all(trees_equal(a, b) for a, b in zip(one, two, strict=True))
    return np.array_equal(one, two) and one.dtype == two.dtype


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1"])
def test_sync_vector_returns_what_gymnasium_returns(env):
    mine = make_vector_env(Options(env=env), num_envs=3)
    theirs = gym.make_vec(
        env,
        num_envs=3,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
    )
    assert mine.single_observation_space == theirs.single_observation_space
    obs, _ = mine.reset(seed=[5, 6, 7])
    assert trees_equal(obs, theirs.reset(seed=[5, 6, 7])[0])
    theirs.action_space.seed(0)
    ends = 0
    for _ in range(250):
        actions = theirs.action_space.sample()
        found, expected = mine.step(actions), theirs.step(actions)
        for one, two in zip(found[:4], expected[:4], strict=True):
            assert trees_equal(one, two)
        for n in np.flatnonzero(expected[2] | expected[3]):
            ends += 1
            assert np.array_equal(found[4]["final_obs"][n], expected[4]["final_obs"][n])
    assert ends > 1


def test_nested_observations_are_new_arrays_in_every_step():
    vector = make_vector_env(Options(env=CartPoleWithDictObservationSpace), num_envs=2)
    first, _ = vector.reset(seed=[0, 1])
    kept = first["velocs"][1].copy()
    second = vector.step(np.array([0, 1]))[0]
    assert second["angular-pos"]["value"].shape == (2,)
    assert second["x-pos"].shape == (2, 1)
    assert not np.shares_memory(first["velocs"][1], second["velocs"][1])
    assert np.array_equal(first["velocs"][1], kept)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_infos_and_ends(mode):
    vector = make(mode, length=2)
    _, infos = vector.reset(seed=[10, 20])
    assert infos_per_env(infos, 2) == [{"seed": 10}, {"seed": 20}]
    infos = vector.step(np.array([0, 0]))[4]
    assert infos_per_env(infos, 2) == [{"count": 1}, {"count": 1}]
    obs, rewards, terminated, truncated, infos = vector.step(np.array([0, 0]))
    assert terminated.tolist() == [True, True]
    assert not truncated.any()
    assert rewards.tolist() == [2.0, 2.0]
    assert obs[:, 0].tolist() == [0.0, 0.0]
    assert [final.tolist() for final in infos["final_obs"]] == [[2.0, 0.0], [2.0, 1.0]]
    vector.close()


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("at", [3, CHECKED_STEPS + 5])
def test_exception_names_environment_config_seed_and_place(mode, at):
    vector = make(mode, fault="raise", at=at, only=1, length=99)
    vector.reset(seed=[10, 20])
    with pytest.raises(EnvError) as failure:
        step_often(vector, at)
    text = str(failure.value)
    assert "Environment 7 (Counter; env runner 4, index 1) failed in step(" in text
    assert "ZeroDivisionError: the pole is too long" in text
    assert "'fault': 'raise'" in text
    assert "last seed 20" in text
    assert "restart_failed_sub_environments=True" in text
    last = text.splitlines()[-1]
    assert last.endswith('in explode: raise ZeroDivisionError("the pole is too long")')
    assert Path(__file__).name in last
    vector.close()


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("shape", r"Environment 7 .*shape \(3,\), but the space has \(2,\)"),
        ("nan", r"Environment 7 .*observation\[1\] is nan"),
        ("reward", "Environment 7 .*reward is None"),
    ],
)
def test_wrong_values_in_the_first_steps(fault, message):
    vector = make(fault=fault, at=2, only=1)
    vector.reset(seed=[0, 1])
    vector.step(np.array([0, 0]))
    with pytest.raises(EnvError, match=message):
        vector.step(np.array([0, 0]))


def test_wrong_shape_later_is_found_when_observations_are_stacked():
    vector = make(fault="shape", at=CHECKED_STEPS + 3, only=1, length=99)
    vector.reset(seed=[0, 1])
    with pytest.raises(EnvError, match=r"index 1 of its vector: observation has the shape \(3,\)"):
        step_often(vector, CHECKED_STEPS + 3)


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("fault", ["raise", "recreate"])
@pytest.mark.parametrize("at", [3, CHECKED_STEPS + 3])
def test_failed_environment_is_created_again(mode, fault, at):
    vector = make(mode, fault=fault, at=at, only=1, length=99, restart=fault == "raise")
    vector.reset(seed=[10, 20])
    for _ in range(at - 1):
        vector.step(np.array([0, 0]))
    obs, rewards, terminated, truncated, infos = vector.step(np.array([0, 0]))
    assert truncated.tolist() == [False, True]
    assert not terminated.any()
    assert rewards.tolist() == [at, 0.0]
    assert obs[:, 0].tolist() == [at, 0.0]
    assert infos["final_obs"][1].tolist() == [at - 1, 1.0]
    assert vector.num_restarts == 1
    obs, rewards, *_ = vector.step(np.array([0, 0]))
    assert rewards.tolist() == [at + 1, 1.0]
    vector.close()


def test_seeds_of_environments_that_are_created_again_are_reproducible():
    def play():
        vector = make(fault="raise", at=3, only=1, restart=True)
        vector.reset(seed=[10, 20])
        infos = [infos_per_env(vector.step(np.array([0, 0]))[4], 2) for _ in range(3)]
        return infos[-1][1]["seed"]

    assert play() == play() is not None


def test_environment_that_always_fails_is_given_up(monkeypatch):
    monkeypatch.setattr(env_guard, "MAX_FAILURES_IN_A_ROW", 3)
    vector = make(fault="raise", at=1, only=1, restart=True)
    vector.reset(seed=[0, 1])
    with pytest.raises(EnvError, match="recreated 3 times without a successful step"):
        step_often(vector, 10)


def test_failing_reset_is_retried_with_a_new_environment():
    vector = make(fault="reset", only=0, length=2, restart=True)
    vector.reset(seed=[0, 1])
    for _ in range(4):
        vector.step(np.array([0, 0]))
    assert vector.num_restarts == 2
    failing = make(fault="reset", only=0, length=1)
    failing.reset(seed=[0, 1])
    with pytest.raises(EnvError, match=r"Environment 6 .*failed in reset\(seed=None\): OSError"):
        failing.step(np.array([0, 0]))


def test_values_out_of_bounds_are_warned_about_once(caplog):
    class Far(Counter):
        observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    vector = make(env=Far, num_envs=1)
    vector.reset(seed=[0])
    for _ in range(8):
        vector.step(np.array([0]))
    warned = [record.message for record in caplog.records if "outside of" in record.message]
    assert len(warned) == 1
    assert "observation[0] is 2.0, outside of [-1.0, 1.0]" in warned[0]


def test_older_step_of_a_new_environment():
    class FourResults(Counter):
        def step(self, action):
            obs, reward, terminated, _, info = super().step(action)
            return obs, reward, terminated, info

    vector = make(env=FourResults, length=2)
    vector.reset(seed=[0, 1])
    with pytest.warns(DeprecationWarning, match="FourResults"):
        vector.step(np.array([0, 0]))
    for _ in range(CHECKED_STEPS + 5):
        terminated = vector.step(np.array([0, 0]))[2]
    assert terminated.tolist() == [True, True]


@pytest.mark.parametrize("mode", ["sync", "async", "vector_entry_point"])
def test_states_of_vectors_continue_exactly(mode):
    vector = make_vector_env(Options(gym_env_vectorize_mode=mode), num_envs=2)
    vector.reset(seed=[1, 2])
    actions = np.random.default_rng(0).integers(2, size=(60, 2))
    for action in actions[:20]:
        vector.step(action)
    states = get_env_states(vector)
    expected = [vector.step(action) for action in actions]
    other = make_vector_env(Options(gym_env_vectorize_mode=mode), num_envs=2)
    other.reset(seed=[8, 9])
    set_env_states(other, states)
    for action, wanted in zip(actions, expected, strict=True):
        found = other.step(action)
        assert all(np.array_equal(a, b) for a, b in zip(found[:4], wanted[:4], strict=True))
    vector.close()
    other.close()


def test_states_that_do_not_fit():
    vector = make(num_envs=2)
    with pytest.raises(ValueError, match="2 environments from 3 states; 1 of them"):
        set_env_states(vector, [b"", None, b""])
    native = make_vector_env(Options(gym_env_vectorize_mode="vector_entry_point"), num_envs=2)
    with pytest.raises(ValueError, match="restored as a whole"):
        set_env_states(native, [b"", b""])


class ArrayCounter(gym.vector.VectorEnv):
    """Counts steps of all environments at once; environment i ends after i + 2 steps."""

    def __init__(self, config):
        self.num_envs = config["num_envs"]
        self.mode = config["autoreset"]
        self.metadata = {"autoreset_mode": self.mode}
        self.single_observation_space = spaces.Box(0.0, 100.0, (1,), np.float32)
        self.observation_space = spaces.Box(0.0, 100.0, (self.num_envs, 1), np.float32)
        self.single_action_space = spaces.Discrete(2)
        self.action_space = spaces.MultiDiscrete([2] * self.num_envs)
        self.buffer = np.zeros((self.num_envs, 1), np.float32)
        self.done = np.zeros(self.num_envs, bool)

    def reset(self, *, seed=None, options=None):
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        self.buffer[mask] = 0
        return self.buffer, {}

    def step(self, actions):
        if self.mode is AutoresetMode.NEXT_STEP:
            self.buffer[self.done] = -1
        self.buffer += 1
        count = self.buffer[:, 0]
        self.done = count >= np.arange(self.num_envs) + 2
        infos: dict[str, Any] = {}
        if self.mode is AutoresetMode.SAME_STEP and self.done.any():
            finals = np.full(self.num_envs, None, object)
            for n in np.flatnonzero(self.done):
                finals[n] = self.buffer[n].copy()
            infos["final_obs"] = finals
            self.buffer[self.done] = 0
        rewards = count.astype(np.float64)
        return self.buffer, rewards, self.done.copy(), np.zeros(self.num_envs, bool), infos


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_native_vector_that_can_reset_in_the_same_step(mode):
    vector = make("vector_entry_point", env=ArrayCounter, autoreset=mode)
    first, _ = vector.reset(seed=[3, 4])
    kept = first.copy()
    vector.step(np.array([0, 0]))
    obs, _, terminated, _, infos = vector.step(np.array([0, 0]))
    assert np.array_equal(first, kept), "the caller's arrays stay unchanged"
    assert terminated.tolist() == [True, False]
    assert obs[:, 0].tolist() == [0.0, 2.0]
    assert infos["final_obs"][0].tolist() == [2.0]
    assert "reset_only" not in infos


def test_native_vector_that_resets_in_the_next_step():
    vector = make("vector_entry_point", env=ArrayCounter, autoreset=AutoresetMode.NEXT_STEP)
    vector.reset(seed=[3, 4])
    vector.step(np.array([0, 0]))
    obs, _, terminated, _, infos = vector.step(np.array([0, 0]))
    assert terminated.tolist() == [True, False]
    assert obs[:, 0].tolist() == [2.0, 2.0]
    assert infos["final_obs"][0].tolist() == [2.0]
    obs, _, terminated, _, infos = vector.step(np.array([0, 0]))
    assert infos["reset_only"].tolist() == [True, False]
    assert obs[:, 0].tolist() == [0.0, 3.0]
    infos = vector.step(np.array([0, 0]))[4]
    assert infos["reset_only"].tolist() == [False, True]


def test_wrong_arguments():
    with pytest.raises(ValueError, match="'both'.*must be 'sync', 'async' or 'vector_entry_point'"):
        make("both")
    with pytest.raises(ValueError, match="TicTacToe is a multi-agent environment"):
        make(env=TicTacToe)
    with pytest.raises(ValueError, match="Got 1 seeds for 2"):
        make().reset(seed=[1])


def test_environments_with_different_spaces():
    class Different(Counter):
        def __init__(self, config):
            super().__init__(config)
            size = 2 + config.vector_index
            self.observation_space = spaces.Box(-1.0, 1.0, (size,), np.float32)

    with pytest.raises(EnvError, match="All environments of a vector must have the same spaces"):
        make(env=Different)


PROGRAM = """
import time
from tests.rl.envs.test_vector_env import Options, make_vector_env

if __name__ == "__main__":
    vector = make_vector_env(Options(gym_env_vectorize_mode="async"), num_envs=3)
    vector.reset(seed=[0, 1, 2])
    print(*[process.pid for process in vector.processes], flush=True)
    time.sleep(60)
"""


def test_processes_of_environments_end_when_their_runner_is_killed():
    root = Path(__file__).parents[3]
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"{root}/src:{root}"},
    )
    assert program.stdout is not None
    children = [int(pid) for pid in program.stdout.readline().split()]
    assert len(children) == 3
    program.send_signal(signal.SIGKILL)
    program.wait(10)
    deadline = time.monotonic() + 20
    while any(is_alive(pid) for pid in children):
        assert time.monotonic() < deadline, "environments outlive their runner"
        time.sleep(0.1)


def is_alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
