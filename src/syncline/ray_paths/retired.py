"""Paths and names of Ray without a counterpart, and what to use instead."""

from __future__ import annotations

from syncline.suggestions import DIRECT_TRANSPORT

_LANGUAGES = (
    "Workers run Python only. Start the other program with `subprocess` in a task, or serve it "
    "over HTTP, and call it from there."
)
_WORKFLOWS = (
    "Chains of tasks are references passed to other tasks. For steps that survive a restart, use "
    "the checkpoints of `syncline.train` and `syncline.tune`, which resume interrupted runs, or "
    "write the result of each step with `Dataset.write_parquet`."
)

_BOOSTING = (
    "Train on datasets with `syncline.train.xgboost.XGBoostTrainer` or "
    "`syncline.train.lightgbm.LightGBMTrainer`; `xgboost_ray` and `lightgbm_ray` also run, with "
    "`python -m syncline.as_ray`."
)
_SPARK = (
    "Start a cluster on the nodes with `syncline start`, and read tables that Spark has written "
    "with `syncline.data.read_parquet`."
)

RETIRED = {
    "Language": _LANGUAGES,
    "cpp_function": _LANGUAGES,
    "cross_language": _LANGUAGES,
    "java_actor_class": _LANGUAGES,
    "java_function": _LANGUAGES,
    "workflow": _WORKFLOWS,
    "util.lightgbm": _BOOSTING,
    "util.spark": _SPARK,
    "util.xgboost": _BOOSTING,
    "experimental.channel": DIRECT_TRANSPORT,
    "experimental.collective.create_collective_group": DIRECT_TRANSPORT,
    "experimental.collective.destroy_all_collective_groups": DIRECT_TRANSPORT,
    "experimental.collective.destroy_collective_group": DIRECT_TRANSPORT,
    "experimental.collective.get_collective_groups": DIRECT_TRANSPORT,
    "experimental.gpu_object_manager": DIRECT_TRANSPORT,
    "experimental.rdt": DIRECT_TRANSPORT,
    "experimental.register_tensor_transport": DIRECT_TRANSPORT,
    "experimental.set_target_for_ref": DIRECT_TRANSPORT,
    "experimental.wait_tensor_freed": DIRECT_TRANSPORT,
}
"""Advice by path; it applies to everything below the path."""


class NoCounterpartError(ImportError):
    """A module of Ray that does not exist here."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(_text(path, reason))
        self.remedy = reason


class NoCounterpartAttributeError(AttributeError):
    """A name of Ray that does not exist here; `hasattr` is False for it."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(_text(path, reason))
        self.remedy = reason


def reason_of(path: str) -> str | None:
    """Return what to use instead of a path; None if it is not retired."""
    parts = path.split(".")
    prefixes = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((RETIRED[prefix] for prefix in prefixes if prefix in RETIRED), None)


def _text(path: str, reason: str) -> str:
    return f"`ray.{path}` has no counterpart in syncline. {reason}"
