"""Advice for names, environment variables and commands of Ray that syncline lacks or has in another
form. Whether syncline has a name is decided in `surface`.
"""

from __future__ import annotations

_RAY_ONLY = "keep this part on Ray, in a separate program"
_TASKS = "use tasks, `syncline.util.ActorPool`, or `concurrent.futures`"
_STATE = (
    "use `syncline status`, `syncline nodes` or `syncline dashboard`; in a program,"
    " `syncline.nodes()` and `syncline.cluster_resources()`"
)
_INTERNAL = "it is internal to Ray: use a public function"
_LANGUAGES = "only Python is supported"
_CLIENT = 'use `syncline.init(address="ray://host:10001")`'
_DEBUGGER = "use `breakpoint()` with `syncline.init(local_mode=True)`"
_SEARCHERS = "use the searchers in `syncline.tune.search`"

REMEDIES = {
    "ray.air.util": _INTERNAL,
    "ray.cpp_function": _LANGUAGES,
    "ray.cross_language": _LANGUAGES,
    "ray.dashboard": "use `syncline dashboard` to see runs and clusters",
    "ray.java_actor_class": _LANGUAGES,
    "ray.java_function": _LANGUAGES,
    "ray.llm": _RAY_ONLY,
    "ray.serve.gradio_integrations": _RAY_ONLY,
    "ray.serve.llm": f"run vLLM's own server in a deployment, or {_RAY_ONLY}",
    "ray.serve.task_consumer": _RAY_ONLY,
    "ray.train.horovod": "use `syncline.train.torch.TorchTrainer`, which uses torch.distributed",
    "ray.tune.automl": _SEARCHERS,
    "ray.tune.suggest": _SEARCHERS,
    "ray.util.spark": _RAY_ONLY,
    "ray.workflow": "pass references from task to task; `train` and `tune` resume from checkpoints",
}
"""Advice by prefix of the dotted name; the longest prefix applies."""

PARTS = {
    "ray._common": _INTERNAL,
    "ray._private": _INTERNAL,
    "ray._raylet": _INTERNAL,
    "ray.autoscaler": "use `syncline up` and `syncline down`; the autoscaler adds nodes on demand",
    "ray.experimental": _INTERNAL,
    "ray.internal": _INTERNAL,
    "ray.train._internal": _INTERNAL,
    "ray.tune.utils": _INTERNAL,
    "ray.util.client": _CLIENT,
    "ray.util.state": _STATE,
    "ray.worker": _INTERNAL,
}
"""Advice for what is missing in packages of which syncline has the names that programs use."""

DIFFERENCES = {
    "ray.__version__": (
        "this becomes syncline's own version: to compare with versions of Ray, use"
        " `syncline.as_ray.API_VERSION`"
    )
}
"""Notes on names that exist with another meaning."""

OTHER_IMPORT = (
    "this name comes from another module of the program: if that module imports Ray by"
    " `import ray`, its name is `syncline` after the conversion"
)

RENAMED_VARIABLES = {
    "RAY_AIR_FULL_TRACEBACKS": "SYNCLINE_FULL_TRACEBACK",
    "RAY_AIR_LOCAL_CACHE_DIR": "SYNCLINE_STORAGE_PATH",
    "RAY_STORAGE": "SYNCLINE_STORAGE_PATH",
    "TUNE_RESULT_DIR": "SYNCLINE_STORAGE_PATH",
}
"""Environment variables that differ in more than the prefix SYNCLINE_."""

_SAME = "attach down exec logs microbenchmark rsync-down rsync-up stack start status stop submit up"
COMMANDS = {
    **{name: f"`syncline {name}`" for name in _SAME.split()},
    "job": "`syncline submit` or `syncline jobs`",
    "job list": "`syncline jobs list`",
    "job logs": "`syncline jobs logs`",
    "job stop": "`syncline jobs stop`",
    "job submit": "`syncline submit`",
    "list": "`syncline status` or `syncline nodes`",
    "memory": "`syncline status`",
    "summary": "`syncline status`",
    "timeline": "`syncline.timeline()` in the program",
}
"""Counterparts of the commands that begin with `ray`."""

RLLIB_COMMANDS = {
    "train": "`syncline rl train`, with the same options",
    "evaluate": "`syncline rl evaluate`",
    "rollout": "`syncline rl evaluate`",
    "example": "`syncline rl example`",
}
"""Counterparts of the commands that begin with `rllib`."""

INSTALL = "install syncline, with its extra `cluster` for clusters"


def remedy(name: str) -> str | None:
    """Return advice for a dotted name of Ray; None if there is none."""
    parts = name.split(".")
    prefixes = (".".join(parts[:count]) for count in range(len(parts), 1, -1))
    table = {**PARTS, **REMEDIES}
    return next((table[prefix] for prefix in prefixes if prefix in table), None)
