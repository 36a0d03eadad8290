"""What has to be the same in a program and on its cluster: the versions of Ray, of Python and of
syncline.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass

import ray

OWN: str = sys.modules["syncline"].__version__
"""Of syncline in this process: the package's own, which no module of it imports."""
SYNCLINE_KEY = "syncline_version"
"""Under which the cluster keeps, with each program, the program's version of syncline."""


@dataclass(frozen=True, kw_only=True)
class Versions:
    """Of Ray and Python."""

    ray: str
    python: str

    @classmethod
    def here(cls) -> Versions:
        """Of this process."""
        return cls(ray=ray.__version__, python=platform.python_version())

    @property
    def python_minor(self) -> str:
        """The first two numbers of Python's version; the third changes neither code nor values."""
        return ".".join(self.python.split(".")[:2])

    def __str__(self) -> str:
        return f"Ray {self.ray} on Python {self.python}"


def check_cluster(address: str, metadata: bytes) -> None:
    """RuntimeError, with both versions of both, where a cluster that says `metadata` of itself does
    not fit this program.
    """
    told = json.loads(metadata)
    there, here = Versions(ray=told["ray_version"], python=told["python_version"]), Versions.here()
    if (there.ray, there.python_minor) != (here.ray, here.python_minor):
        raise RuntimeError(
            f"the cluster at {address!r} runs {there}, this program {here}: they cannot exchange code and values. Run the program with "
            f"Python {there.python_minor} and `pip install ray=={there.ray}`, or start the cluster with the versions of this program."
        )


def check_program(metadata: Mapping[str, str], node: str) -> None:
    """In a worker: RuntimeError where the program, of which the cluster keeps `metadata`, has
    another version of syncline.
    """
    program = metadata.get(SYNCLINE_KEY, OWN)
    if program != OWN:
        raise RuntimeError(
            f"the program runs syncline {program}, but the node {node} has syncline {OWN}: they cannot work together. Install the "
            f"same version in both, such as `pip install syncline=={program}` on every node."
        )


def of_program() -> dict[str, str]:
    """What the cluster is to keep with this program."""
    return {SYNCLINE_KEY: OWN}
