"""The JSON body of the FastAPI application; imported by servers of that application only."""

from fastapi import FastAPI
from pydantic import BaseModel

__all__ = ["FastAPI", "Item"]


class Item(BaseModel):
    """A JSON body."""

    text: str
