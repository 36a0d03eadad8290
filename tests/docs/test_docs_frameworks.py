"""The programs of docs/frameworks.md run as written, where their library is installed."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs.page_programs import blocks, page, run

SECTIONS = re.findall(
    r"^## (.+?)\n(.*?)(?=^## |\Z)", page("frameworks"), flags=re.MULTILINE | re.DOTALL
)
PROGRAMS = [
    pytest.param(heading, program, id=f"{heading}-{number}")
    for heading, section in SECTIONS
    for number, program in enumerate(blocks(section, "python"))
]
NEEDS = {"XGBoost": "xgboost", "LightGBM": "lightgbm", "TensorFlow": "tf_keras", "JAX": "jax"}
"""Library by heading; programs under other headings are expected to run everywhere."""


@pytest.mark.long
@pytest.mark.processes
@pytest.mark.parametrize(("heading", "program"), PROGRAMS)
def test_program_of_the_page_runs_as_written(heading: str, program: str, tmp_path: Path) -> None:
    library = NEEDS.get(heading)
    if library is not None and ((spec := find_spec(library)) is None or spec.origin is None):
        pytest.skip(f"{library} is not installed")
    done = run(program, tmp_path)
    assert done.returncode == 0, done.stderr
