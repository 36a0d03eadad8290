"""Programs of the page about Ray: the alias, jobs, graphs."""

from pathlib import Path

import pytest

from tests.docs.page_programs import blocks, page, run

PROGRAMS = {
    "syncline.as_ray.install()": "2.60.0\n",
    "JobSubmissionClient(": "42\n\n",
    "Counter.remote()": "[2, 2]\n",
    "allreduce.bind(": "[22.0, 22.0]\n",
}


@pytest.mark.processes
@pytest.mark.parametrize("part", list(PROGRAMS))
def test_programs_print_what_the_page_says(part: str, tmp_path: Path) -> None:
    (program,) = [block for block in blocks(page("from_ray"), "python") if part in block]
    done = run(program, tmp_path, SYNCLINE_TMPDIR=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == PROGRAMS[part]


@pytest.mark.processes
def test_the_program_for_ray_runs_unchanged(tmp_path: Path) -> None:
    (program,) = blocks(page("from_ray"), "python", "train.py")
    (tmp_path / "train.py").write_text(program)
    starter = (
        "import runpy, sys; sys.argv[1:] = ['train.py']; "
        "runpy.run_module('syncline.as_ray', run_name='__main__', alter_sys=True)"
    )
    done = run(starter, tmp_path, SYNCLINE_STORAGE_PATH=str(tmp_path / "runs"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("{'x': 3.0}\n"), done.stdout
