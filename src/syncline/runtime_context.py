"""`syncline.runtime_context`: facts about the calling code."""

from syncline.core.context import RuntimeContext, get_runtime_context

__all__ = ["RuntimeContext", "get_runtime_context"]
