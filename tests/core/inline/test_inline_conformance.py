"""The conformance suite on the inline engine."""

from __future__ import annotations

from syncline.testing import conformance

TRAITS = conformance.EngineTraits(processes=False, parallel=False)

globals().update(conformance.tests_for_engine({"local_mode": True}, traits=TRAITS))
