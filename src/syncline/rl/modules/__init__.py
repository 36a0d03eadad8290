"""Modules: networks, their specifications, action distributions, acting."""
