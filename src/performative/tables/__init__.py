"""Tables of client data: on disk, packed into bytes, or read from data frames."""

from performative.tables.stored import OnDisk, Packed, write

__all__ = ["OnDisk", "Packed", "write"]
