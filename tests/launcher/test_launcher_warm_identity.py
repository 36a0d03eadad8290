"""Identity of templates."""

import os
import subprocess
import sys

import pytest

from syncline.launcher import warm_identity

BASE = {"PATH": "/bin", "HOME": "/home/a", "OMP_NUM_THREADS": "1", "WANDB_PROJECT": "p"}


def test_variables_of_the_job_do_not_matter():
    other = {**BASE, "WANDB_PROJECT": "q", "PWD": "/x", "TORCHELASTIC_ERROR_FILE": "/y"}
    assert warm_identity.digest(BASE) == warm_identity.digest(other)


@pytest.mark.parametrize(
    "change",
    [{"OMP_NUM_THREADS": "2"}, {"PYTHONPATH": "/x"}, {"TORCH_LOGS": "dynamo"}, {"HOME": "/b"}],
    ids=str,
)
def test_variables_that_imports_read_matter(change):
    assert warm_identity.digest(BASE) != warm_identity.digest({**BASE, **change})


def test_relative_search_path_belongs_to_its_directory(tmp_path, monkeypatch):
    before = warm_identity.digest({**BASE, "PYTHONPATH": "src"})
    monkeypatch.chdir(tmp_path)
    assert warm_identity.digest({**BASE, "PYTHONPATH": "src"}) != before


def test_installed_package_matters(tmp_path, monkeypatch):
    packages = tmp_path / "site-packages"
    packages.mkdir()
    monkeypatch.setattr(sys, "path", [*sys.path, str(packages)])
    before = warm_identity.digest(BASE)
    os.utime(packages, ns=(1, 1))  # the clock may be too coarse for a real change
    assert warm_identity.digest(BASE) != before


def test_limits_and_masks_matter():
    code = "from syncline.launcher import warm_identity as w; print(w.digest({}))"
    found = {
        subprocess.run(
            ["sh", "-c", f'{prefix} exec "$0" -c "$1"', sys.executable, code],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for prefix in ("", "umask 007;", "ulimit -n 99;")
    }
    assert len(found) == 3
