"""The design agrees with the code: files of packages, transition diagrams."""

import ast
import re
from enum import Enum
from pathlib import Path

import pytest

from syncline.core.embedded import actor_state_machine
from syncline.core.state_machine import TransitionTable
from syncline.data.execute import scheduler
from syncline.train.controller import transitions
from syncline.tune.controller import trial_table

SRC = Path(__file__).resolve().parents[1] / "src"
PACKAGES = sorted(
    (file.parent for file in (SRC / "syncline").rglob("__init__.py")),
    key=lambda folder: folder.relative_to(SRC).parts,
)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda folder: str(folder.relative_to(SRC)))
def test_package_docstring_lists_all_of_its_files(package: Path) -> None:
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text("utf-8"))) or ""
    names = {file.stem for file in package.glob("*.py")} - {"__init__", "__main__"}
    names |= {folder.parent.name for folder in package.glob("*/__init__.py")}
    missing = sorted(name for name in names if not re.search(rf"\b{name}\b", docstring))
    assert missing == []


DESIGN = (SRC.parent / "docs" / "design.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("title", "table"),
    [
        ("Training run", transitions.TRANSITIONS),
        ("Trial of a search", trial_table.TRANSITIONS),
        ("Execution of a dataset", scheduler.TRANSITIONS),
        ("Actor", actor_state_machine.TRANSITIONS),
    ],
)
def test_transition_diagrams_of_the_design_agree_with_the_code(
    title: str, table: TransitionTable[Enum]
) -> None:
    diagram = re.search(rf"^### {title}\n.*?^```\n(.*?)^```", DESIGN, re.MULTILINE | re.DOTALL)
    assert diagram is not None
    drawn = {}
    for line in diagram.group(1).splitlines():
        state, targets = line.split(" -> ")
        drawn[state] = set(targets.split(", "))
    expected = {state.name: {each.name for each in targets} for state, targets in table.items()}
    assert drawn == {state: targets for state, targets in expected.items() if targets}
