"""Connectors from modules to environments.

Files: `actions` (default connectors: items of episodes, actions for environments).
"""
