"""joblib backends "syncline" and "ray", with which scikit-learn runs on the workers of the engine.

    register_ray()
    with joblib.parallel_backend("ray"):
        search.fit(x, y)

`backend` has the class. Requires joblib.
"""

from __future__ import annotations

from syncline.optional import load

__all__ = ["register_ray", "register_syncline"]


def register_ray() -> None:
    """Make `joblib.parallel_backend("ray")` run on this engine; may be called twice."""
    _register("ray")


def register_syncline() -> None:
    """Make `joblib.parallel_backend("syncline")` run on this engine; may be called twice."""
    _register("syncline")


def _register(name: str) -> None:
    joblib = load("joblib", purpose=f"the joblib backend {name!r}", install="joblib")
    # The class derives from one of joblib's, so its module cannot be imported without joblib.
    from syncline.util.joblib.backend import SynclineBackend

    joblib.register_parallel_backend(name, SynclineBackend)
