"""The Ray cluster on which the rows of the group "cluster" run syncline's and Ray's programs."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from syncline.testing.clusters import RayCluster

CPUS = 2
OBJECT_STORE_BYTES = 2 * 1024**3


@contextmanager
def running_cluster(python: str, python_path: str) -> Iterator[Mapping[str, str]]:
    """Start a cluster with this interpreter; yield the environment variables to connect to it.

    Raises:
        RuntimeError: The cluster does not start; the message has Ray's output.
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
