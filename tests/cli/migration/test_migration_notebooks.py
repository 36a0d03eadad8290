"""Notebooks: cells are one module, lines for IPython stand still, and the rest of the file stays to
the byte.
"""

import json

import pytest

from syncline.cli.migration.edits import Unparsable
from syncline.cli.migration.examine import examine
from syncline.cli.migration.notebooks import parse
from syncline.cli.migration.surface import Surface

SURFACE = Surface()


def notebook(*cells: str | tuple[str, str], **style: object) -> str:
    made = []
    for cell in cells:
        kind, source = cell if isinstance(cell, tuple) else ("code", cell)
        made.append(
            {
                "cell_type": kind,
                "metadata": {"ray": "import ray"},
                "source": source.splitlines(keepends=True),
            }
        )
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4}, **style)


def migrated(raw: str) -> str:
    book = parse(raw)
    return book.with_edits(examine(book.text, SURFACE).edits)


def sources(raw: str) -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(raw)["cells"]]


@pytest.mark.parametrize("style", [{"indent": 1}, {"indent": 1, "ensure_ascii": False}, {}])
def test_names_go_from_cell_to_cell_and_nothing_else_changes(style: dict[str, object]) -> None:
    raw = notebook(
        ("markdown", "import ray"),
        "import ray  # ä",
        'ray.init()\nprint("é", ray.nodes())',
        **style,
    )
    after = migrated(raw)
    assert sources(after) == [
        "import ray",
        "import syncline  # ä",
        'syncline.init()\nprint("é", syncline.nodes())',
    ]
    assert after == raw.replace('["import ray  #', '["import syncline  #').replace(
        '"import ray  #', '"import syncline  #'
    ).replace("ray.init", "syncline.init").replace("ray.nodes", "syncline.nodes")
    assert migrated(after) == after


def test_a_source_that_is_one_string_is_read_too() -> None:
    raw = '{"nbformat": 4, "cells": [{"source": "import ray\\nray.init()", "cell_type": "code"}]}'
    assert migrated(raw) == raw.replace("import ray", "import syncline").replace(
        "ray.init", "syncline.init"
    )


def test_lines_for_ipython_stand_still_and_are_given_out() -> None:
    source = "%load_ext x\n!pip install ray \\\n  torch\nimport ray\nif 1:\n    !ray start\nfiles = !ls\nray.get?\nray.init()\n"
    raw = notebook(
        "%%bash\nray status\n",
        source,
        "%%time\nimport ray.data\n",
        "%%writefile a.py\nimport ray\n",
    )
    after = sources(migrated(raw))
    assert after[1] == source.replace("import ray", "import syncline").replace(
        "ray.init", "syncline.init"
    )
    assert after[2] == "%%time\nimport syncline.data\n"
    assert (after[0], after[3]) == ("%%bash\nray status\n", "%%writefile a.py\nimport ray\n")
    lines = [text for _, text in parse(raw).shell_lines()]
    assert "ray status" in lines
    assert "ray start" in lines
    assert "ls" in lines


def test_a_cell_that_is_no_python_is_reported_and_the_others_go_on() -> None:
    raw = notebook("import ray", "print 'x'", "ray.init()")
    assert [cell.error is not None for cell in parse(raw).cells] == [False, True, False]
    assert sources(migrated(raw)) == ["import syncline", "print 'x'", "syncline.init()"]


def test_lines_are_told_by_cell() -> None:
    book = parse(notebook("import os", ("markdown", "text"), "import ray\n\nray.serve"))
    (note,) = (note for note in examine(book.text, SURFACE).notes if note.name == "ray.serve")
    assert book.place(note.line) == (3, 3)


@pytest.mark.parametrize("raw", ["import ray", "{}", '{"worksheets": []}', "[]"])
def test_what_is_no_notebook_is_an_error(raw: str) -> None:
    with pytest.raises(Unparsable, match="no notebook"):
        parse(raw)
