"""Forms of the packages of a `runtime_env`, and which requirements are satisfied."""

import json

import numpy as np
import pytest

from syncline.core import packages
from syncline.core.packages import Packages, is_satisfied, normalize, of_environment


def test_a_file_and_a_list_have_the_same_normal_form(tmp_path):
    file = tmp_path / "requirements.txt"
    file.write_text("# wanted\n numpy>=1 \n\nabsent==1\n")
    assert normalize("pip", str(file)) == normalize("pip", file) == ["numpy>=1", "absent==1"]
    assert normalize("uv", ("numpy>=1 ", "", "absent==1")) == ["numpy>=1", "absent==1"]


def test_a_dict_has_the_installer_its_version_and_its_options():
    value = normalize(
        "pip",
        {"packages": ["a"], "pip_version": "==24.0", "pip_check": True,
         "pip_install_options": ["--no-index"]},
    )  # fmt: skip
    expected = Packages(
        installer="pip", lines=("a",), options=("--no-index",), version="==24.0", check=True
    )
    assert of_environment({"pip": value}) == expected
    value = normalize("uv", {"packages": ["a"], "uv_pip_install_options": ["--offline"]})
    assert of_environment({"uv": value}) == Packages(
        installer="uv", lines=("a",), options=("--offline",)
    )
    assert of_environment({"env_vars": {"A": "1"}}) is None


@pytest.mark.parametrize(
    ("value", "error"),
    [(3, TypeError), ([1], TypeError), ({"packages": 3}, TypeError), ({}, ValueError),
     ({"packages": [], "uv_check": True}, ValueError), ("/no/such/file", ValueError)],
)  # fmt: skip
def test_impossible_packages_are_refused(value, error):
    with pytest.raises(error, match="pip"):
        normalize("pip", value)


@pytest.mark.parametrize(
    ("line", "satisfied"),
    [
        ("numpy", True),
        (f"numpy=={np.__version__}", True),
        ("NumPy>=1.0  # a comment", True),
        ("numpy>=999", False),
        ("absent-package", False),
        ("absent-package; python_version < '3'", True),
        ("numpy; python_version >= '3'", True),
        ("syncline[no-such-extra]", True),
        ("absent @ https://example.org/absent.whl", False),
        ("./directory", False),
        ("-r more.txt", False),
        ("# only a comment", True),
    ],
)
def test_a_requirement_is_satisfied_by_an_installed_distribution(line, satisfied):
    assert is_satisfied(line) is satisfied


def test_an_extra_needs_its_requirements(monkeypatch):
    class Found:
        version = "1.0"
        requires = ("numpy", "absent-package; extra == 'more'", "numpy; extra == 'few'")

    class Metadata:
        PackageNotFoundError = KeyError

        @staticmethod
        def distribution(name):
            return {"owner": Found, "numpy": Found}[name]

    monkeypatch.setattr(packages, "metadata", Metadata)
    is_satisfied.cache_clear()
    assert [is_satisfied(line) for line in ("owner", "owner[few]", "owner[more]")] == [
        True, True, False
    ]  # fmt: skip
    is_satisfied.cache_clear()


def test_satisfied_packages_need_no_environment():
    environment = {"pip": ["numpy"], "env_vars": {"A": "1"}}
    assert packages.without_satisfied(environment) == {"env_vars": {"A": "1"}}
    missing = {"pip": ["numpy", "absent-package"]}
    assert packages.without_satisfied(missing) == missing


def test_the_text_of_an_environment_tells_whether_packages_are_needed():
    assert packages.are_needed(json.dumps({"pip": ["absent-package"]}))
    assert packages.are_needed(json.dumps({"uv": {"packages": ["absent-package"]}}))
    assert not packages.are_needed("")
    assert not packages.are_needed(json.dumps({"env_vars": {'"pip": ': '"pip": '}}))
