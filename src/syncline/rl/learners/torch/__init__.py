"""The parts of learners that use torch."""
