"""Public helpers to test engines, and programs that use syncline.

In the order in which one meets them: `waiting` (conditions with a generous end), `faults`
(processes that die at named points), `resources` (CPUs that come and go), `programs` (whole
programs as subprocesses, and what they leave behind), `clusters` (Ray clusters of this machine),
`hosts` (other machines, made of this one), `conformance` (what every engine does; needs pytest, and
is therefore imported by its own name).
"""

from syncline.testing.faults import fault_environment, faults_set
from syncline.testing.programs import Program, assert_nothing_left, leftovers, run_program
from syncline.testing.waiting import eventually

__all__ = [
    "Program",
    "assert_nothing_left",
    "eventually",
    "fault_environment",
    "faults_set",
    "leftovers",
    "run_program",
]
