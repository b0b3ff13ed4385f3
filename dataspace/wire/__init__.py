"""The wire: bytes to packets and back, without input or output (WIRE.md)."""
