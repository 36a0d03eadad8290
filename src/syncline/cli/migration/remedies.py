"""What to do about things of Ray's that syncline does not have, or has in another form. Whether it
has them is not said here.
"""

from __future__ import annotations

KEEP = "keep that part on Ray, in a program of its own"
TASKS = "use tasks, `syncline.util.ActorPool`, or `concurrent.futures`"
STATE = "`syncline status`, `syncline nodes` and `syncline dashboard` show it; in a program use `syncline.nodes()`, `cluster_resources()`"
INTERNAL = "it is internal to Ray: use a public function, or leave it out"
JOBS = "`syncline submit` and `syncline jobs`, with --json for scripts"

REMEDIES: dict[str, str] = {
    "ray._private": INTERNAL,
    "ray._raylet": INTERNAL,
    "ray.air.util": INTERNAL,
    "ray.autoscaler": "the cluster launcher is `syncline up` and `syncline down`; an autoscaler adds nodes for what waits by itself",
    "ray.client": 'write `syncline.init(address="ray://host:10001")`',
    "ray.cluster_utils": "tests can start clusters with `syncline.testing.clusters`",
    "ray.cpp_function": "other languages are not supported",
    "ray.cross_language": "other languages are not supported",
    "ray.dag": "call tasks with the references that other tasks gave",
    "ray.dashboard": "`syncline dashboard` shows runs and clusters",
    "ray.data.extensions": "ndarrays become columns of Arrow's own type, `pyarrow.fixed_shape_tensor`, by themselves",
    "ray.data.llm": KEEP,
    "ray.experimental.state": STATE,
    "ray.experimental.tqdm_ray": "use tqdm itself: what workers print is shown",
    "ray.internal": INTERNAL,
    "ray.java_actor_class": "other languages are not supported",
    "ray.java_function": "other languages are not supported",
    "ray.job_submission": JOBS,
    "ray.llm": KEEP,
    "ray.rllib": f"there is no reinforcement learning: {KEEP}",
    "ray.serve": f"there is no serving of models: {KEEP}, or another server with the checkpoints of the run",
    "ray.train._internal": INTERNAL,
    "ray.train.horovod": "use `syncline.train.torch.TorchTrainer`, which makes a process group of torch's own",
    "ray.tune.automl": "use the searchers in `syncline.tune.search`",
    "ray.tune.suggest": "searchers are in `syncline.tune.search`",
    "ray.tune.utils": INTERNAL,
    "ray.util.accelerators": "write the name of the accelerator as a string",
    "ray.util.annotations": "leave it out: it only marks how stable something is",
    "ray.util.client": 'write `syncline.init(address="ray://host:10001")`',
    "ray.util.collective": "use `torch.distributed` in a training function, or `syncline.train.collective`",
    "ray.util.connect": 'write `syncline.init(address="ray://host:10001")`',
    "ray.util.disconnect": "write `syncline.shutdown()`",
    "ray.util.inspect_serializability": "errors about what cannot be pickled name the object that is the cause",
    "ray.util.iter": "use `syncline.data`",
    "ray.util.joblib": f"{TASKS}, or joblib's own backends",
    "ray.util.metrics": "report the numbers with `train.report`; `syncline dashboard` has an endpoint for Prometheus",
    "ray.util.multiprocessing": TASKS,
    "ray.util.pdb": "run with `syncline.init(local_mode=True)`: `breakpoint()` works everywhere there",
    "ray.util.register_serializer": "give the class `__reduce__`, or use `copyreg`",
    "ray.util.rpdb": "run with `syncline.init(local_mode=True)`: `breakpoint()` works everywhere there",
    "ray.util.spark": KEEP,
    "ray.util.state": STATE,
    "ray.util.tracing": "`syncline profile` shows where a worker's time goes",
    "ray.worker": INTERNAL,
    "ray.workflow": "save results with checkpoints: `syncline.train` and `syncline.tune` go on from them",
}
"""By the beginning of a dotted name; the longest one counts."""

DIFFERENCES: dict[str, str] = {
    "ray.__version__": "this is now syncline's own version: comparisons with Ray's numbers go wrong"
}
"""Names that are there and mean something else."""

RENAMED_VARIABLES: dict[str, str] = {
    "RAY_AIR_FULL_TRACEBACKS": "SYNCLINE_FULL_TRACEBACK",
    "RAY_AIR_LOCAL_CACHE_DIR": "SYNCLINE_STORAGE_PATH",
    "RAY_STORAGE": "SYNCLINE_STORAGE_PATH",
    "TUNE_RESULT_DIR": "SYNCLINE_STORAGE_PATH",
}
"""Environment variables whose counterpart is called something else than SYNCLINE_ and the rest of
the name.
"""

COMMANDS: dict[str, str] = {
    "attach": "syncline attach",
    "down": "syncline down",
    "exec": "syncline exec",
    "get-auth-token": "ray get-auth-token, as before",
    "job": "syncline submit, syncline jobs",
    "job list": "syncline jobs list",
    "job logs": "syncline jobs logs",
    "job stop": "syncline jobs stop",
    "job submit": "syncline submit",
    "list": "syncline status, syncline nodes",
    "logs": "syncline logs",
    "memory": "syncline status",
    "microbenchmark": "syncline microbenchmark",
    "rsync-down": "syncline rsync-down",
    "rsync-up": "syncline rsync-up",
    "stack": "syncline stack",
    "start": "syncline start",
    "status": "syncline status",
    "stop": "syncline stop",
    "submit": "syncline submit",
    "summary": "syncline status",
    "timeline": "syncline.timeline() in the program",
    "up": "syncline up",
}
"""Ray's commands and ours."""


def remedy(name: str) -> str | None:
    """What to do about a dotted name of Ray's; None where nothing is known."""
    parts = name.split(".")
    beginnings = (".".join(parts[:count]) for count in range(len(parts), 1, -1))
    return next((REMEDIES[beginning] for beginning in beginnings if beginning in REMEDIES), None)


def variable(name: str, ours: frozenset[str]) -> str | None:
    """Our counterpart of an environment variable of Ray's."""
    counterpart = RENAMED_VARIABLES.get(name, "SYNCLINE_" + name.removeprefix("RAY_"))
    return counterpart if counterpart in ours else None


def command(words: str) -> str | None:
    """Our counterpart of what follows `ray` on a command line: "job submit", "start"."""
    return COMMANDS.get(words) or COMMANDS.get(words.split()[0])
