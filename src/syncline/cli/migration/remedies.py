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
    "ray._private": _INTERNAL,
    "ray._raylet": _INTERNAL,
    "ray.air.util": _INTERNAL,
    "ray.autoscaler": "use `syncline up` and `syncline down`; the autoscaler adds nodes on demand",
    "ray.client": _CLIENT,
    "ray.cluster_utils": "use `syncline.testing.clusters` to start clusters in tests",
    "ray.cpp_function": _LANGUAGES,
    "ray.cross_language": _LANGUAGES,
    "ray.dag": "pass the references that tasks return to other tasks",
    "ray.dashboard": "use `syncline dashboard` to see runs and clusters",
    "ray.data.extensions": "ndarrays are stored as `pyarrow.fixed_shape_tensor` automatically",
    "ray.data.llm": _RAY_ONLY,
    "ray.experimental.state": _STATE,
    "ray.experimental.tqdm_ray": "use tqdm: the output of workers is shown",
    "ray.internal": _INTERNAL,
    "ray.java_actor_class": _LANGUAGES,
    "ray.java_function": _LANGUAGES,
    "ray.job_submission": "use `syncline submit` and `syncline jobs`, with --json in scripts",
    "ray.llm": _RAY_ONLY,
    "ray.serve.gradio_integrations": _RAY_ONLY,
    "ray.serve.llm": f"run vLLM's own server in a deployment, or {_RAY_ONLY}",
    "ray.serve.task_consumer": _RAY_ONLY,
    "ray.train._internal": _INTERNAL,
    "ray.train.horovod": "use `syncline.train.torch.TorchTrainer`, which uses torch.distributed",
    "ray.tune.automl": _SEARCHERS,
    "ray.tune.suggest": _SEARCHERS,
    "ray.tune.utils": _INTERNAL,
    "ray.util.accelerators": "write the name of the accelerator as a string",
    "ray.util.annotations": "leave it out: it only marks the stability of an API",
    "ray.util.client": _CLIENT,
    "ray.util.collective": "use `torch.distributed` or `syncline.train.collective`",
    "ray.util.connect": _CLIENT,
    "ray.util.disconnect": "use `syncline.shutdown()`",
    "ray.util.inspect_serializability": "leave it out: pickling errors name the object at fault",
    "ray.util.iter": "use `syncline.data`",
    "ray.util.joblib": f"{_TASKS}, or a backend of joblib",
    "ray.util.metrics": "use `train.report`; `syncline dashboard` has an endpoint for Prometheus",
    "ray.util.multiprocessing": _TASKS,
    "ray.util.pdb": _DEBUGGER,
    "ray.util.register_serializer": "define `__reduce__` in the class, or use `copyreg`",
    "ray.util.rpdb": _DEBUGGER,
    "ray.util.spark": _RAY_ONLY,
    "ray.util.state": _STATE,
    "ray.util.tracing": "use `syncline profile` to see where a worker spends its time",
    "ray.worker": _INTERNAL,
    "ray.workflow": "use checkpoints: `syncline.train` and `syncline.tune` resume from them",
}
"""Advice by prefix of the dotted name; the longest prefix applies."""

DIFFERENCES = {
    "ray.__version__": "this becomes syncline's version: do not compare it with versions of Ray"
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
    return next((REMEDIES[prefix] for prefix in prefixes if prefix in REMEDIES), None)
