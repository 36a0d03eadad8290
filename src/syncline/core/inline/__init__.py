"""The engine for debuggers and unit tests: everything runs in the program's own process, in order,
at the moment when it is submitted.

Values are copied as in every other engine, so a program that works here does not rely on shared
memory by accident. In the order in which a call meets them: `engine` (the `Engine`), `machine`
(what it keeps and tells), `calls` (one call and its results), `actors` (instances and event loops),
`streams` (generators, item by item), `objects` (values and who holds them), `ledger` (resources and
placement groups, on paper only), `surroundings` (whose code runs, and in which environment).

Coroutine methods run on an event loop in a thread of their actor, since they may wait for each
other.
"""

from syncline.core.inline.engine import InlineEngine

__all__ = ["InlineEngine"]
