"""The programs of docs/serving.md run as written."""

import socket
from pathlib import Path

import pytest

from tests.docs.page_programs import blocks, page, run_all

PROGRAMS = blocks(page("serving"), "python")
START = """
from syncline import serve

serve.start(http_options={{"port": {port}}})
"""
DELETE_ALL = """
from syncline import serve

for name in serve.status().applications:
    serve.delete(name)
"""


@pytest.mark.processes
def test_programs_of_the_page_run_as_written(tmp_path: Path) -> None:
    with socket.socket() as listener:  # instead of port 8000, which another program may use
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    programs = [START.format(port=port)]
    for program in PROGRAMS:
        programs += [program.replace(":8000", f":{port}"), DELETE_ALL]
    done = run_all(programs, tmp_path)
    for line in (
        "{'doubled': 42}",
        "{'label': ",
        "50",
        "[2, 6]",
        "[0, 1, 0]",
        "9",
        "True False same process: True",
        ", 1, 2)]",
        "2",
    ):
        assert line in done.stdout
    assert "Traceback" not in done.stderr
