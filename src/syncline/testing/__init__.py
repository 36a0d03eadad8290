"""Public helpers to test engines, and programs that use syncline.

- `waiting`: wait for a condition; `tasks`: small remote functions.
- `faults`: set fault points.
- `emulated_network`: separate hosts for processes of this machine, with delays between them.
- `training_faults`: faults of one rank of a training; `torch_training`: a small training to inject
  them into; `fault_matrix`: trials of all of them, with the verdict of the run.
- `resources`: change the resources of this machine's engine.
- `programs`: run programs as subprocesses and find their leftovers.
- `clusters`: Ray clusters on this machine.
- `conformance`: suites that every engine passes; needs pytest, so import it by name.
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
