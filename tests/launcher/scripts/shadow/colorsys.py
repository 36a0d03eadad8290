"""A file with the name of a module of the standard library."""

NAME = "the script's own"
