"""How numbers are written into state keys, so that RocksDB's byte order is the numbers' order."""

_OFFSET = 1 << 63


def ordered(number: int) -> bytes:
    """An int64 as 8 bytes that sort as the numbers do."""
    return (number + _OFFSET).to_bytes(8, "big")


def number_of(data: bytes) -> int:
    """The number that ``ordered`` wrote."""
    return int.from_bytes(data[:8], "big") - _OFFSET
