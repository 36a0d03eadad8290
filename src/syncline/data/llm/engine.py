"""Requests to an engine, its outputs, and the interface of engines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np

from syncline.records import dataclass


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Options of an engine."""

    model: str
    """Name or directory of the model."""
    task: str
    """ "generate", "embed" or "classify"."""
    arguments: dict[str, Any]
    """Arguments of the library."""
    detokenize: bool
    """Convert generated tokens to text."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """Input of one row."""

    prompt: str | None
    """Text; None if only tokens are given."""
    tokens: Sequence[int] | None
    """Tokens of the prompt; None to tokenize the text."""
    templated: bool
    """True if the prompt is made by a chat template, which adds special tokens itself."""
    params: dict[str, Any] = field(default_factory=dict)
    """Parameters of sampling or pooling."""


@dataclass(frozen=True, kw_only=True)
class Output:
    """Result of one request."""

    prompt_tokens: list[int]
    tokens: list[int] = field(default_factory=list)
    """Generated tokens."""
    text: str = ""
    """Text of the generated tokens."""
    embedding: np.ndarray | None = None
    """Vector, or probabilities of classes."""


class Engine(ABC):
    """A loaded model. One thread calls it."""

    @abstractmethod
    def chat_prompt(
        self, messages: list[dict[str, Any]], template: str | None, values: dict[str, Any]
    ) -> str:
        """Return the prompt of a conversation; it asks for a reply if the last message is the
        user's.
        """

    @abstractmethod
    def run(self, requests: Sequence[Request]) -> list[Output]:
        """Return the outputs in the order of the requests.

        Raises:
            ValueError: A parameter is not supported, or a prompt is too long.
        """
