"""The engine for debuggers and unit tests: everything runs in this process, when it is submitted.

Values are copied as in the other engines, so that a program does not depend on shared memory by
accident. Coroutine methods run on an event loop in a thread of their actor, because they may wait
for each other.

Files, in the order in which a call passes them:

- `engine`: `InlineEngine`, which runs tasks, actors and generators.
- `engine_base`: its state, resources, placement groups and runtime context.
- `inline_call`: one call, its attempts and its results; `inline_actor`: instances and event loops;
  `generator_streams`: generators, item by item.
- `inline_objects`: values and reference counts; `inline_state`: rows of the state API.
"""

from syncline.core.inline.engine import InlineEngine

__all__ = ["InlineEngine"]
