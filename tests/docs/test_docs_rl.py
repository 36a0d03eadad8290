"""The programs of docs/rl.md run as written."""

import socket
from pathlib import Path

import pytest

from tests.docs.page_programs import blocks, page, run_all

PROGRAMS = blocks(page("rl"), "python")
START = """
from syncline import serve

serve.start(http_options={{"port": {port}}})
"""


@pytest.mark.long
@pytest.mark.processes
def test_programs_of_the_page_run_as_written(tmp_path: Path) -> None:
    pytest.importorskip("gymnasium")
    with socket.socket() as listener:  # instead of port 8000, which another program may use
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    programs = [
        program.replace("/tmp/", f"{tmp_path}/").replace(":8000", f":{port}")
        for program in PROGRAMS
    ]
    serving = next(place for place, each in enumerate(programs) if "serve.run" in each)
    programs.insert(serving, START.format(port=port))
    done = run_all(programs, tmp_path)
    for line in ("return: ", "equal: True", "{'action': ", "tensor(["):
        assert line in done.stdout
    first = done.stdout.splitlines()
    returns = [float(line) for line in first if line.replace(".", "").isdigit()]
    assert returns[0] > 100  # of training
    assert returns[1] > 150  # of the evaluation
    assert "Traceback" not in done.stderr
