"""Ids as programs see them: integers with the methods of Ray's ids."""

from __future__ import annotations


class Id(int):
    """The id of an actor or a placement group. Everywhere inside it is the plain integer."""

    def hex(self) -> str:
        """32 hexadecimal digits."""
        return f"{int(self):032x}"

    def binary(self) -> bytes:
        """16 bytes; more for ids of a cluster that are longer."""
        return self.to_bytes(max(16, (self.bit_length() + 7) // 8), "big")

    def is_nil(self) -> bool:
        """True for the id of nothing."""
        return self == 0

    def __repr__(self) -> str:
        return f"Id({self.hex()})"
