"""reports: what clients send of their values, perturbed before it leaves the device. Class: internal.

A report is 23 bytes, little-endian: kind 4, version 1, phase (1 or 2), threshold version (uint32, 0 in phase 1), interval
(int64, start of the time interval in ms: coarser than the moment of the measurement) and code (uint64, what the randomiser
drew). No Kafka key, no client id. Needs numpy only, because it runs on clients.

Clients of others may write records with the fields phase, threshold_version, interval and code (agents/local/reports.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from susurrus.topics.wire.packing import Int32s, Int64s

KIND = 4
VERSION = 1
LAYOUT = np.dtype(
    {
        "names": ["kind", "version", "phase", "threshold_version", "interval", "code"],
        "formats": ["u1", "u1", "u1", "<u4", "<i8", "<u8"],
        "offsets": [0, 1, 2, 3, 7, 15],
        "itemsize": 23,
    }
)
SIZE = LAYOUT.itemsize


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reports:
    """Reports as columns: phase int32[n], threshold_version int64[n], interval int64[n], code int64[n] (>= 0)."""

    phase: Int32s
    threshold_version: Int64s
    interval: Int64s
    code: Int64s

    def __len__(self) -> int:
        return int(self.code.size)


def encode(reports: Reports) -> list[bytes]:
    """One record per report. Raises ValueError for what the format cannot hold."""
    for name, low, high in (("phase", 1, 2), ("threshold_version", 0, 2**32 - 1), ("code", 0, 2**63 - 1)):
        column = getattr(reports, name)
        if column.size and not (low <= column.min() and column.max() <= high):
            raise ValueError(f"{name} lies outside {low} to {high}")
    table = np.zeros(len(reports), LAYOUT)
    table["kind"], table["version"] = KIND, VERSION
    for name in ("phase", "threshold_version", "interval", "code"):
        table[name] = getattr(reports, name)
    data = table.tobytes()
    return [data[at : at + SIZE] for at in range(0, len(data), SIZE)]


def encode_one(*, phase: int, threshold_version: int, interval: int, code: int) -> bytes:
    """One report. Raises OverflowError for what the format cannot hold."""
    return (
        bytes((KIND, VERSION, phase))
        + threshold_version.to_bytes(4, "little")
        + interval.to_bytes(8, "little", signed=True)
        + code.to_bytes(8, "little")
    )


def is_packed(payload: bytes | None) -> bool:
    """Whether a payload has the size and the first byte of a report."""
    return payload is not None and len(payload) == SIZE and payload[0] == KIND


def decode(payloads: Sequence[bytes | None]) -> tuple[Reports, npt.NDArray[np.bool_]]:
    """Columns of the well-formed reports, in order, and bool[len(payloads)]: which payloads those are.

    Whether a code is one the randomiser can draw, and a threshold version one in force, is for the server to say.
    """
    sized = np.fromiter((payload is not None and len(payload) == SIZE for payload in payloads), np.bool_, len(payloads))
    table = np.frombuffer(b"".join(p for p in payloads if p is not None and len(p) == SIZE), LAYOUT)
    good = (table["kind"] == KIND) & (table["version"] == VERSION) & (table["code"] < 2**63)
    good &= (table["phase"] == 1) & (table["threshold_version"] == 0) | (table["phase"] == 2)
    sized[sized] = good
    table = table[good]
    return Reports(
        phase=table["phase"].astype(np.int32),
        threshold_version=table["threshold_version"].astype(np.int64),
        interval=table["interval"].astype(np.int64),
        code=table["code"].astype(np.int64),
    ), sized
