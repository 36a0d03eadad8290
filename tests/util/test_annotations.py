"""Marks of names, deprecation warnings, `log_once`."""

from __future__ import annotations

import subprocess
import sys
import warnings

import pytest

from syncline.util import accelerators, debug
from syncline.util.annotations import Deprecated, DeveloperAPI, PublicAPI, RayDeprecationWarning
from syncline.util.annotations import _get_annotation_type as kind_of


def test_marked_objects_stay_the_same() -> None:
    @PublicAPI
    def f(x: int) -> int:
        """Add one."""
        return x + 1

    @PublicAPI(stability="alpha")
    class C:
        """A class."""

    class D(C):
        """A subclass is not marked."""

    @DeveloperAPI
    def g() -> None: ...

    @Deprecated
    def h() -> None: ...

    assert f(1) == 2
    assert "alpha" in (C.__doc__ or "")
    assert [kind_of(each) for each in (f, C, D, g, h)] == [
        "PublicAPI", "PublicAPI", None, "DeveloperAPI", "Deprecated",
    ]  # fmt: skip


def test_deprecated_names_warn_if_wanted() -> None:
    @Deprecated(message="Use g.", warning=True)
    def f() -> int:
        return 1

    @Deprecated(warning=True)
    class C:
        def __init__(self, x: int) -> None:
            self.x = x

    with pytest.warns(RayDeprecationWarning, match="Use g"):
        assert f() == 1
    with pytest.warns(RayDeprecationWarning, match="C"):
        assert C(3).x == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Deprecated(f)


@pytest.mark.parametrize(
    "mark", [lambda: PublicAPI(stability="new"), lambda: Deprecated(reason="old")]
)
def test_unknown_arguments_are_refused(mark: object) -> None:
    with pytest.raises(ValueError):
        mark()  # type: ignore[operator]


def test_a_key_is_logged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debug, "_logged", debug._Logged())
    assert [debug.log_once("a"), debug.log_once("a"), debug.log_once("b")] == [True, False, True]
    debug.reset_log_once("a")
    assert [debug.log_once("a"), debug.log_once("b")] == [True, False]
    debug.disable_log_once_globally()
    assert not debug.log_once("c")


def test_periodic_keys_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(debug, "_logged", debug._Logged())
    monkeypatch.setattr("syncline.util.debug.time.monotonic", lambda: now[0])
    debug.enable_periodic_logging()
    assert [debug.log_once("a"), debug.log_once("a")] == [True, False]
    now[0] += 61
    assert debug.log_once("a")


def test_submodule_is_not_hidden_by_a_future_import() -> None:
    assert (
        subprocess.run(
            [sys.executable, "-c", "import syncline.util as u; u.annotations.PublicAPI"],
            check=False,
        ).returncode
        == 0
    )


def test_accelerators_have_rays_names() -> None:
    assert (accelerators.NVIDIA_H100, accelerators.NVIDIA_A100_80G) == ("H100", "A100-80G")
    with pytest.warns(RayDeprecationWarning):
        assert accelerators.NVIDIA_TESLA_A100 == "A100"
    with pytest.raises(AttributeError):
        _ = accelerators.NVIDIA_NONE
