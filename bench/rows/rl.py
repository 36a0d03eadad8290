"""Reinforcement learning on this machine: speed, time to a solved task, start."""

from bench.rows.definitions import OURS, RAY, Better, Contender, Metric, Row, Target

SB3 = "SB3"
_SINGLE = "single file"
_IMPORTS = "import torch, gymnasium"


def _contenders(task: str) -> tuple[Contender, ...]:
    return (
        Contender(name=OURS, module="rl.ppo", argument=f"syncline-{task}"),
        Contender(name=RAY, module="rl.ppo", argument=f"ray-{task}", max_runs=2),
        Contender(name=SB3, module="rl.ppo", argument=f"sb3-{task}"),
        Contender(name=_SINGLE, module="rl.ppo", argument=f"single-{task}"),
    )


def _metric(
    key: str, label: str, unit: str, better: Better, target: Target | None = None
) -> Metric:
    return Metric(key=key, label=label, unit=unit, better=better, target=target)


def _speed(task: str, label: str) -> Row:
    return Row(
        name=f"rl_ppo_{task}",
        group="rl",
        contenders=_contenders(task),
        metrics=(
            _metric("per_s", f"PPO {label}, wall clock", "steps/s", "more"),
            _metric(
                "per_cpu_s",
                "same, per CPU second",
                "steps/CPU s",
                "more",
                Target(limit=2.5, peers=(SB3,)),
            ),
        ),
        timeout_s=300.0,
    )


ROWS: tuple[Row, ...] = (
    _speed("cartpole", "CartPole, 8 x 128 steps, 4 epochs"),
    _speed("pendulum", "Pendulum, 8 x 128 steps, 4 epochs"),
    Row(
        name="rl_ppo_solve",
        group="rl",
        contenders=_contenders("solve"),
        metrics=(
            _metric(
                "solved_s",
                "process start to a mean return of 475 on CartPole",
                "s",
                "less",
                Target(limit=0.5, peers=(SB3,)),
            ),
            _metric("solved_cpu_s", "same, CPU", "CPU s", "less"),
            _metric("solved_steps", "same, steps", "steps", "less"),
        ),
        timeout_s=300.0,
    ),
    Row(
        name="rl_two_runners",
        group="rl",
        contenders=(
            Contender(name=OURS, module="rl.two_runners", argument="syncline"),
            Contender(name=RAY, module="rl.two_runners", argument="ray", max_runs=1),
        ),
        metrics=(
            _metric("per_s_0", "PPO CartPole, 16 environments in one process", "steps/s", "more"),
            _metric("per_s_2", "same, two runners of 8", "steps/s", "more"),
            _metric(
                "speedup", "two runners relative to one process", "", "more", Target(limit=1.6)
            ),
        ),
        timeout_s=300.0,
    ),
    Row(
        name="rl_first_step",
        group="rl",
        contenders=(
            Contender(name=OURS, module="rl.first_step", argument="syncline"),
            Contender(name=RAY, module="rl.first_step", argument="ray", max_runs=2),
            Contender(name=SB3, module="rl.first_step", argument="sb3"),
            Contender(name=_IMPORTS, module="rl.first_step", argument="imports"),
        ),
        metrics=(
            _metric(
                "first_step_s",
                "process start to the end of the first training step",
                "s",
                "less",
                Target(limit=1.3, peers=(_IMPORTS,)),
            ),
            _metric("build_s", "imports of the algorithm and `build_algo()`", "s", "less"),
        ),
    ),
    Row(
        name="rl_slow_envs",
        group="rl",
        contenders=(
            Contender(name=OURS, module="rl.slow_envs", argument="syncline"),
            Contender(name=RAY, module="rl.slow_envs", argument="ray", max_runs=1),
        ),
        metrics=(
            _metric("per_s", "IMPALA, 8 runners with 1 ms a step", "steps/s", "more"),
            _metric(
                "of_possible",
                "same, relative to 8 times a runner that has the machine for itself",
                "",
                "more",
                Target(limit=0.8),
            ),
            _metric(
                "idle",
                "share of time that a learner waits which is slower than the runners",
                "",
                "less",
                Target(limit=0.02),
            ),
            _metric("busy", "share of time that this learner learns", "", "more"),
        ),
        timeout_s=300.0,
    ),
    Row(
        name="rl_off_policy",
        group="rl",
        contenders=(
            Contender(name=OURS, module="rl.off_policy", argument="syncline"),
            Contender(name=SB3, module="rl.off_policy", argument="stable_baselines3"),
        ),
        metrics=(
            _metric(
                "dqn_updates_per_cpu_s",
                "DQN CartPole, an update of 64 rows after every step",
                "updates/CPU s",
                "more",
                Target(limit=2.5, peers=(SB3,)),
            ),
            _metric(
                "sac_updates_per_cpu_s",
                "SAC Pendulum, an update of 256 rows after every step",
                "updates/CPU s",
                "more",
                Target(limit=2.0, peers=(SB3,)),
            ),
        ),
        timeout_s=300.0,
    ),
)
