"""Settings that all libraries share, and the measurement of training.

CPU seconds count all processes of a program: runners that end before the last reading are included.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil

from bench.inputs import scaled
from bench.programs import common


@dataclass(frozen=True, kw_only=True)
class Settings:
    """PPO's hyperparameters."""

    env: str
    epochs: int
    learning_rate: float
    gamma: float
    num_envs: int = 8
    steps: int = 128
    """Steps per environment and iteration."""
    minibatch: int = 256
    gae_lambda: float = 0.95
    clip: float = 0.2
    hidden: tuple[int, int] = (64, 64)

    @property
    def batch(self) -> int:
        """Steps per iteration."""
        return self.num_envs * self.steps


SETTINGS = {
    "cartpole": Settings(env="CartPole-v1", epochs=4, learning_rate=2.5e-4, gamma=0.99),
    "pendulum": Settings(env="Pendulum-v1", epochs=4, learning_rate=1e-3, gamma=0.9),
    "solve": Settings(env="CartPole-v1", epochs=8, learning_rate=1e-3, gamma=0.98),
}
STEPS = 100_000
"""Steps of a measurement of speed."""
SOLVED = 475.0
"""Mean return of the last 100 episodes at which CartPole counts as solved."""
MOST_STEPS = 400_000


def cpu_s() -> float:
    """Return the CPU seconds of this process, and of its living and ended children."""
    me = psutil.Process()
    times = [me.cpu_times()]
    for child in me.children(recursive=True):
        try:
            times.append(child.cpu_times())
        except psutil.NoSuchProcess:
            continue
    return sum(t.user + t.system + t.children_user + t.children_system for t in times)


def speed(iterate: Callable[[], int], steps: int) -> common.Values:
    """Return the rates of `steps` steps, after two iterations; `iterate` returns its steps."""
    iterate()
    iterate()
    done, begin, cpu = 0, time.perf_counter(), cpu_s()
    while done < steps:
        done += iterate()
    return {"per_s": done / (time.perf_counter() - begin), "per_cpu_s": done / (cpu_s() - cpu)}


def solve(iterate: Callable[[], tuple[int, float]]) -> common.Values:
    """Train until the mean return is `SOLVED`; `iterate` returns its steps and the mean return of
    the last 100 episodes.
    """
    done, mean = 0, 0.0
    while not mean >= SOLVED and done < MOST_STEPS:
        steps, mean = iterate()
        done += steps
    assert mean >= SOLVED, f"a mean return of {mean:.0f} after {done} steps"
    return {"solved_at": time.monotonic(), "solved_cpu_s": cpu_s(), "solved_steps": float(done)}


def measured_steps(library: str) -> int:
    """Return the steps to measure: fewer for Ray, which is slower by far."""
    return scaled(STEPS // 4 if library == "ray" else STEPS)
