"""PPO (Schulman et al. 2017) in one file, with torch and gymnasium only: what a program costs that
nobody has made faster.
"""

from collections import deque
from collections.abc import Callable

import gymnasium as gym
import numpy as np
import torch
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from torch import nn

from bench.programs.rl.settings import Settings


def network(inputs: int, outputs: int, hidden: tuple[int, int]) -> nn.Sequential:
    """Return a network with two hidden layers."""
    first, second = hidden
    return nn.Sequential(
        nn.Linear(inputs, first), nn.Tanh(), nn.Linear(first, second), nn.Tanh(),
        nn.Linear(second, outputs),
    )  # fmt: skip


class Agent(nn.Module):
    """Policy and value function without shared layers."""

    def __init__(self, envs: gym.vector.VectorEnv, hidden: tuple[int, int]) -> None:
        super().__init__()
        space = envs.single_action_space
        inputs = int(np.prod(envs.single_observation_space.shape or ()))
        self.discrete = isinstance(space, gym.spaces.Discrete)
        outputs = int(space.n) if isinstance(space, gym.spaces.Discrete) else space.shape[0]  # type: ignore[index]
        self.actor = network(inputs, outputs, hidden)
        self.critic = network(inputs, 1, hidden)
        self.log_std = nn.Parameter(torch.zeros(outputs))

    def policy(self, obs: torch.Tensor) -> torch.distributions.Distribution:
        """Return the distribution of actions."""
        out = self.actor(obs)
        if self.discrete:
            return torch.distributions.Categorical(logits=out, validate_args=False)
        normal = torch.distributions.Normal(out, self.log_std.exp(), validate_args=False)
        return torch.distributions.Independent(normal, 1, validate_args=False)


def trainer(settings: Settings, seed: int) -> Callable[[], tuple[int, float]]:
    """Return a function that trains one iteration, and returns its steps and the mean return."""
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    envs = RecordEpisodeStatistics(
        gym.make_vec(settings.env, num_envs=settings.num_envs, vectorization_mode="sync")
    )
    agent = Agent(envs, settings.hidden)
    optimizer = torch.optim.Adam(agent.parameters(), lr=settings.learning_rate, eps=1e-5)
    length, width = settings.steps, settings.num_envs
    obs_shape = envs.single_observation_space.shape or ()
    action_shape = envs.single_action_space.shape or ()
    obs = torch.zeros((length, width, *obs_shape))
    actions = torch.zeros((length, width, *action_shape))
    logps, rewards, dones, values = (torch.zeros((length, width)) for _ in range(4))
    returns: deque[float] = deque(maxlen=100)
    first, _ = envs.reset(seed=seed)
    now = {"obs": torch.as_tensor(first, dtype=torch.float32), "done": torch.zeros(width)}

    def iterate() -> tuple[int, float]:
        for t in range(length):
            obs[t], dones[t] = now["obs"], now["done"]
            with torch.no_grad():
                policy = agent.policy(now["obs"])
                action = policy.sample()
                logps[t], values[t] = policy.log_prob(action), agent.critic(now["obs"]).flatten()
            actions[t] = action
            following, reward, terminated, truncated, infos = envs.step(action.numpy())
            rewards[t] = torch.as_tensor(reward, dtype=torch.float32)
            now["obs"] = torch.as_tensor(following, dtype=torch.float32)
            now["done"] = torch.as_tensor(terminated | truncated, dtype=torch.float32)
            if "episode" in infos:
                returns.extend(infos["episode"]["r"][infos["_episode"]].tolist())
        with torch.no_grad():
            following_value = agent.critic(now["obs"]).flatten()
        advantages = torch.zeros_like(rewards)
        last = torch.zeros(width)
        for t in reversed(range(length)):
            going_on = 1.0 - (now["done"] if t == length - 1 else dones[t + 1])
            value = following_value if t == length - 1 else values[t + 1]
            error = rewards[t] + settings.gamma * value * going_on - values[t]
            last = error + settings.gamma * settings.gae_lambda * going_on * last
            advantages[t] = last
        learn(agent, optimizer, settings, random, (obs, actions, logps, advantages, values))
        return settings.batch, float(np.mean(returns)) if returns else 0.0

    return iterate


def learn(
    agent: Agent,
    optimizer: torch.optim.Optimizer,
    settings: Settings,
    random: np.random.Generator,
    columns: tuple[torch.Tensor, ...],
) -> None:
    """Take all minibatches of an iteration."""
    obs, actions, logps, advantages, values = (each.flatten(0, 1) for each in columns)
    targets = advantages + values
    for _ in range(settings.epochs):
        order = random.permutation(settings.batch)
        for start in range(0, settings.batch, settings.minibatch):
            rows = torch.as_tensor(order[start : start + settings.minibatch])
            policy = agent.policy(obs[rows])
            ratio = (policy.log_prob(actions[rows]) - logps[rows]).exp()
            gains = advantages[rows]
            gains = (gains - gains.mean()) / (gains.std() + 1e-8)
            clipped = ratio.clamp(1 - settings.clip, 1 + settings.clip)
            errors = agent.critic(obs[rows]).flatten() - targets[rows]
            loss = -torch.minimum(gains * ratio, gains * clipped).mean()
            loss = loss + 0.5 * 0.5 * errors.square().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
