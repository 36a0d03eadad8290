"""`ray.job_config`: settings of a program, for `init(job_config=...)`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

Lifetime = Literal["detached", "non_detached"]


class JobConfig:
    """Runtime environment and namespace of a program; `init` has arguments for both."""

    def __init__(
        self,
        jvm_options: Sequence[str] | None = None,
        code_search_path: Sequence[str] | None = None,
        runtime_env: Mapping[str, Any] | None = None,
        metadata: Mapping[str, str] | None = None,
        ray_namespace: str | None = None,
        default_actor_lifetime: Lifetime = "non_detached",
    ) -> None:
        """Options of other languages have no effect.

        Raises ValueError for `default_actor_lifetime="detached"`, which each actor chooses itself.
        """
        if default_actor_lifetime != "non_detached":
            raise ValueError(
                f"`default_actor_lifetime={default_actor_lifetime!r}` is not supported: pass "
                "`lifetime='detached'` to the actors that outlive the program"
            )
        self.runtime_env = dict(runtime_env or {})
        self.metadata = dict(metadata or {})
        self.ray_namespace = ray_namespace

    def set_runtime_env(self, runtime_env: Mapping[str, Any], validate: bool = False) -> None:
        """Replace the runtime environment."""
        self.runtime_env = dict(runtime_env)

    def set_ray_namespace(self, ray_namespace: str) -> None:
        """Replace the namespace of actor names."""
        self.ray_namespace = ray_namespace

    def set_metadata(self, key: str, value: str) -> None:
        """Add a note to the program."""
        self.metadata[key] = value
