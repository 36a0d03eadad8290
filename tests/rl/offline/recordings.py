"""Recorded steps of mediocre policies, as Parquet files that other programs could have written."""

import gymnasium as gym
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def cart_pole_rule(obs, random):
    """Push to where the pole falls, but often at random."""
    if random.random() < 0.65:
        return int(random.integers(2))
    return int(obs[2] + 0.3 * obs[3] > 0)


def pendulum_rule(obs, random):
    """Pump energy into the pendulum and balance it above, but often at random."""
    if random.random() < 0.7:
        return random.uniform(-2, 2, 1).astype(np.float32)
    cos, sin, speed = obs
    if cos > 0.8:
        push = -8.0 * np.arctan2(sin, cos) - 2.0 * speed
    else:
        push = 2.0 * np.sign(speed * (1.0 - 0.5 * speed**2 / 15.0 - cos))
    return np.clip([push], -2, 2).astype(np.float32)


def record(path, env_name, rule, steps, seed=0):
    """Write a row per step of complete episodes; return their mean return."""
    env = gym.make(env_name)
    random = np.random.default_rng(seed)
    columns = {name: [] for name in ("episode", "o", "a", "r", "o2", "done", "cut")}
    returns = []
    while len(columns["r"]) < steps:
        obs, _ = env.reset(seed=seed * 100_003 + len(returns))
        done = cut = False
        returns.append(0.0)
        while not (done or cut):
            action = rule(obs, random)
            following, reward, done, cut, _ = env.step(action)
            values = (f"e{len(returns)}", obs, action, reward, following, done, cut)
            for name, value in zip(columns, values, strict=True):
                columns[name].append(value)
            returns[-1] += reward
            obs = following
    table = pa.table(
        {
            name: pa.array([list(each) if np.ndim(each) else each for each in values])
            for name, values in columns.items()
        }
    )
    pq.write_table(table, path)
    return float(np.mean(returns))


SCHEMA = {
    "eps_id": "episode",
    "obs": "o",
    "actions": "a",
    "rewards": "r",
    "new_obs": "o2",
    "terminateds": "done",
    "truncateds": "cut",
}
"""`input_read_schema` of these files."""
