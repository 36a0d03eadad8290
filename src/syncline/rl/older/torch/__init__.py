"""The parts of the older API that use torch."""
