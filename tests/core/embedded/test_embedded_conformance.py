"""The conformance suite on the embedded engine."""

from __future__ import annotations

import pytest

from syncline.testing import conformance

pytestmark = [pytest.mark.processes, pytest.mark.promise]

TRAITS = conformance.EngineTraits(processes=True, parallel=True)

globals().update(conformance.tests_for_engine({}, traits=TRAITS))
