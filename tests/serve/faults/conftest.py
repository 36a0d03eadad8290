"""A running serve for the tests of a module, without applications before each test."""

import pytest

import syncline
from syncline import serve
from syncline.testing.programs import free_port
from tests.serve.faults.harness import Effects


@pytest.fixture(scope="module")
def port():
    number = free_port()
    syncline.init(num_cpus=2)
    serve.start(http_options={"port": number})
    yield number
    serve.shutdown()
    syncline.shutdown()


@pytest.fixture
def effects(port, tmp_path):
    """The file of effects; deletes the applications afterwards."""
    yield Effects(str(tmp_path / "effects"))
    for name in serve.status().applications:
        serve.delete(name)
