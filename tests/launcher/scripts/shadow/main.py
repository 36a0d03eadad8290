"""Imports a file beside it that hides a module of the standard library, and of a dependency."""

import colorsys
import os
import uuid

print(f"[{os.environ['RANK']}] {getattr(colorsys, 'NAME', None)} {getattr(uuid, 'NAME', None)}")
