"""The Ray cluster that the rows of the group "cluster" share: syncline's programs and Ray's are its
guests one after another.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from syncline.testing.clusters import RayCluster

CPUS = 2
OBJECT_STORE_BYTES = 2 * 1024**3


@contextmanager
def running_cluster(python: str, python_path: str) -> Iterator[Mapping[str, str]]:
    """A cluster of this interpreter while the block runs; variables with which a program that runs
    there as well finds it.

    RuntimeError, with Ray's output, where it does not start.
    """
    with RayCluster(
        num_cpus=CPUS,
        object_store_memory=OBJECT_STORE_BYTES,
        python=python,
        variables={"PYTHONPATH": python_path},
    ) as cluster:
        yield {
            "SYNCLINE_ADDRESS": cluster.address,
            "RAY_ADDRESS": cluster.address,
            "RAY_AUTH_MODE": cluster.variables["RAY_AUTH_MODE"],
        }
