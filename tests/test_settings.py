"""Settings from environment variables."""

import pytest

from syncline import settings


@pytest.mark.parametrize(
    ("text", "meaning"), [("1", True), ("True", True), ("0", False), ("", False), ("off", False)]
)
def test_flags(monkeypatch, text, meaning):
    monkeypatch.setenv("SYNCLINE_FULL_TRACEBACK", text)
    assert settings.full_traceback() is meaning


def test_a_flag_that_is_not_a_boolean_is_refused(monkeypatch):
    monkeypatch.setenv("SYNCLINE_FULL_TRACEBACK", "perhaps")
    with pytest.raises(ValueError, match="SYNCLINE_FULL_TRACEBACK='perhaps'"):
        settings.full_traceback()


def test_empty_variables_count_as_unset(monkeypatch):
    for name in ("SYNCLINE_ADDRESS", "SYNCLINE_NAMESPACE", "SYNCLINE_FAULTS"):
        monkeypatch.setenv(name, "")
    assert (settings.address(), settings.namespace(), settings.faults()) == (None, None, "")


def test_paths(monkeypatch, tmp_path):
    monkeypatch.setenv("SYNCLINE_TMPDIR", str(tmp_path))
    assert settings.temporary_directory() == tmp_path
    monkeypatch.setenv("SYNCLINE_STORAGE_PATH", "s3://bucket/runs")
    assert settings.storage_path() == "s3://bucket/runs"
    monkeypatch.delenv("SYNCLINE_STORAGE_PATH")
    assert settings.storage_path() == "~/syncline_results"


def test_the_inherited_environment_is_a_copy(monkeypatch):
    monkeypatch.setenv("SYNCLINE_NAMESPACE", "a")
    copy = settings.inherited_environment()
    copy["SYNCLINE_NAMESPACE"] = "b"
    assert settings.environment("SYNCLINE_NAMESPACE") == "a"
    assert settings.environment("SYNCLINE_NOTHING", "default") == "default"


def test_the_raw_environment_shows_changes(monkeypatch):
    before = settings.raw_environment()
    monkeypatch.setenv("SYNCLINE_NAMESPACE", "a")
    assert settings.raw_environment() != before
    monkeypatch.delenv("SYNCLINE_NAMESPACE")
    assert settings.raw_environment() == before


def test_the_grace_period_after_sigterm_ends_before_kubernetes_kills(monkeypatch):
    monkeypatch.delenv("SYNCLINE_TERMINATION_NOTICE_S", raising=False)
    assert settings.termination_notice_s() == 25.0
    monkeypatch.setenv("SYNCLINE_TERMINATION_NOTICE_S", "115")
    assert settings.termination_notice_s() == 115.0
    monkeypatch.setenv("SYNCLINE_TERMINATION_NOTICE_S", "-1")
    with pytest.raises(ValueError, match="'-1' is not a positive number of seconds"):
        settings.termination_notice_s()
