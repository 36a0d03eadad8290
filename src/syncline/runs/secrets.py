"""Masking of secrets in records and pages: secret values become `***`.

Covered: values under names such as `password`, `api_key` or `token`; keys of well-known services,
private keys, passwords in URLs. Not covered: a secret under a harmless name whose form is not
specific.

Texts are untrusted, so every pattern must take linear time. A pattern that begins with a repeated
letter class therefore begins at a word boundary; otherwise it would be tried from each letter of a
long word, such as a line of base64.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

MASK = "***"
_WORDS = frozenset(
    {
        "password",
        "passwd",
        "passphrase",
        "pwd",
        "secret",
        "secrets",
        "token",
        "apikey",
        "credential",
        "credentials",
        "authorization",
    }
)
_BEFORE_KEY = frozenset(
    {"api", "access", "private", "secret", "auth", "encryption", "signing", "ssh"}
)
_SPLIT = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])")
_FORMS = re.compile(
    r"AKIA[0-9A-Z]{16}"  # Amazon
    r"|gh[opsur]_[A-Za-z0-9]{20,}|github_pat_\w{20,}"
    r"|glpat-[\w-]{20,}"
    r"|hf_[A-Za-z0-9]{20,}"
    r"|sk-[\w-]{20,}"
    r"|xox[abprs]-[\w-]{10,}"
    r"|AIza[\w-]{35}"
    r"|(?<![\w-])eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{10,}"  # JSON web tokens
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
)
_PASSWORD_IN_URL = re.compile(r"(?<!\w)(\w+://[^\s/:@]*:)[^\s/@]+(@)")
_ASSIGNMENT = re.compile(
    r"""(?<![\w-])(?P<dashes>-{0,3})(?P<name>[A-Za-z_][\w-]*)(?P<middle>["']?\s*[:=](?!//)\s*)(?P<value>"[^"\n]*"|'[^'\n]*'|[^\s"',;]+)"""
)
_FLAG = re.compile(
    r"(?<![\w-])(?P<dashes>--)(?P<name>[A-Za-z][\w-]*)(?P<middle>\s+)(?P<value>[^\s-]\S*)"
)


def is_secret_name(name: str) -> bool:
    """Return True if values under this name must not be shown."""
    words = [word.lower() for word in _SPLIT.split(name) if word]
    pairs = zip(words, words[1:], strict=False)
    return any(word in _WORDS for word in words) or any(
        first in _BEFORE_KEY and second == "key" for first, second in pairs
    )


def masked(value: object) -> Any:
    """Return a copy of plain values (see `json_values.plain`) with secrets masked. Numbers stay, as
    in `max_token: 512`. Texts may be command lines or headers, so assignments in them are masked.
    """
    if isinstance(value, str):
        return masked_code(value)
    if isinstance(value, Mapping):
        return {
            key: MASK
            if isinstance(item, str) and item and is_secret_name(str(key))
            else masked(item)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [masked(item) for item in value]
    return value


def masked_text(text: str) -> str:
    """Return a text with everything masked that has the form of a secret."""
    return _PASSWORD_IN_URL.sub(rf"\1{MASK}\2", _FORMS.sub(MASK, text))


def masked_code(text: str) -> str:
    """Return code, a diff or a command line with secrets and assignments to secret names masked."""
    return _FLAG.sub(_without_value, _ASSIGNMENT.sub(_without_value, masked_text(text)))


def _without_value(found: re.Match[str]) -> str:
    value = found["value"]
    is_literal = not re.fullmatch(r"[\d.]+|None|True|False|[A-Za-z_][\w.]*[(\[].*", value)
    return (
        f"{found['dashes']}{found['name']}{found['middle']}{MASK}"
        if is_secret_name(found["name"]) and is_literal
        else found[0]
    )
