"""A file with the name of a module that torch imports."""

NAME = "own uuid"
