"""Connectors from modules to environments.

Files: `actions` (default pieces: items of episodes, actions for environments).
"""
