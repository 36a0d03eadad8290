"""Masked and unmasked texts."""

import pytest

from syncline.runs.secrets import MASK, is_secret_name, masked, masked_code, masked_text


@pytest.mark.parametrize(
    "name",
    [
        "password",
        "DB_PASSWORD",
        "api_key",
        "apiKey",
        "wandb-api-key",
        "token",
        "hf_token",
        "client_secret",
        "AWS_SECRET_ACCESS_KEY",
    ],
)
def test_telling_names(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "tokenizer",
        "key",
        "keyword",
        "max_tokens_per_batch",
        "passes",
        "author",
        "monkey",
        "secretary",
    ],
)
def test_harmless_names(name: str) -> None:
    assert not is_secret_name(name)


def test_nested_values_are_masked_and_numbers_stay() -> None:
    value = {
        "lr": 0.1,
        "token": 5,
        "auth": [{"password": "x", "user": "ann"}],
        "api_key": "",
        "text": "ghp_" + "a" * 30,
    }
    assert masked(value) == {
        "lr": 0.1,
        "token": 5,
        "auth": [{"password": MASK, "user": "ann"}],
        "api_key": "",
        "text": MASK,
    }


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("AKIAABCDEFGHIJKLMNOP here", "*** here"),
        ("postgres://ann:pw@host/db", "postgres://ann:***@host/db"),
        ("hf_" + "a" * 34, "***"),
        ("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----\nrest", "***\nrest"),
        ("nothing to hide: lr=0.1", "nothing to hide: lr=0.1"),
    ],
)
def test_telling_forms(text: str, shown: str) -> None:
    assert masked_text(text) == shown


def test_code_and_command_lines_are_masked_by_name() -> None:
    assert masked_code('+API_KEY = "abc"\n+lr = 0.1') == f"+API_KEY = {MASK}\n+lr = 0.1"
    assert (
        masked_code("--token abc --epochs 3 --api-key=xyz")
        == f"--token {MASK} --epochs 3 --api-key={MASK}"
    )
    assert masked_code("s3://bucket/runs?password=pw") == f"s3://bucket/runs?password={MASK}"
    assert (
        masked_code("token = tokens[0]\ntokenizer = load('x')")
        == "token = tokens[0]\ntokenizer = load('x')"
    )
