"""Check that the machine has room for all processes of an algorithm at the same time."""

from __future__ import annotations

from syncline.core import api
from syncline.core.engine import current_engine
from syncline.rl.config.algorithm_config import AlgorithmConfig


def check_resources(config: AlgorithmConfig) -> None:
    """Check that runners and learners fit at the same time; otherwise some would never start.

    Raises:
        ValueError: The engine has too few CPUs or GPUs and cannot add nodes on demand.
    """
    if current_engine().may_grow or current_engine().is_local_mode:
        return
    have = api.cluster_resources()
    gpus = config.num_remote_learners * config.num_gpus_per_learner
    if gpus > have.get("GPU", 0.0):
        raise ValueError(
            f"`num_learners={config.num_learners}` with "
            f"`num_gpus_per_learner={config.num_gpus_per_learner}` needs {gpus:g} GPUs, but there "
            f"are {have.get('GPU', 0.0):g}. Set `learners(num_gpus_per_learner=0)`, or a fraction."
        )
    runners = config.num_env_runners + config.evaluation_num_env_runners
    per_learner = config.num_cpus_per_learner
    each = 1.0 if per_learner == "auto" else float(per_learner)
    needed = runners * config.num_cpus_per_env_runner + config.num_remote_learners * each
    total = float(have.get("CPU", 0.0))
    if needed <= total:
        return
    fitting = max(int(total / max(needed, 1e-9) * 100) / 100, 0.01)
    raise ValueError(
        f"`num_env_runners={config.num_env_runners}`, "
        f"`evaluation_num_env_runners={config.evaluation_num_env_runners}` and "
        f"`num_learners={config.num_learners}` need {needed:g} CPUs together, but there are "
        f"{total:g}: some would never start. Use fewer of them, let runners share CPUs with "
        f"`env_runners(num_cpus_per_env_runner={fitting:g})`, or start with "
        f"`syncline.init(num_cpus={needed:g})`."
    )
