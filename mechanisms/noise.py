"""Addressed noise: every draw has an address, so a replay draws it again and nothing else does.

    secret ──HKDF(epoch, config, pipeline, window)──▶ WindowNoise
    WindowNoise.labels(mechanism, keys) ──AES(label xor index)──▶ 128 bits ──▶ normal | laplace on a dyadic grid

A draw is *correctly rounded*: the returned integer is the mathematical function of the 128 bits, to the last unit. It
does not depend on the platform, the chunking or the version of scipy, and it is the rounding of a continuous variable,
so that y = C x + z is post-processing of the continuous Gaussian mechanism. Argument: docs/guarantees/noise.md.
"""

import struct
import threading
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from hashlib import blake2b
from itertools import repeat

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from scipy.special import ndtri

from susurrus.mechanisms.calendar import WindowIndex
from susurrus.mechanisms.errors import ConfigurationError

NOISE_VERSION = 1
MINIMUM_SECRET = 32
"""Bytes of a secret."""
MAX_SCALE = float(1 << 40)
"""sigma * 2^bits: beyond it float64 cannot place a draw between two integers of the grid."""
MAX_INDEX = 1 << 48

_CHUNK = 1 << 17
_RELATIVE_ERROR = 4e-15  # of ndtri and log, several times what they are measured to do (test_noise.py)
_ABSOLUTE_ERROR = 2e-15  # from u: a relative error of 2^-52 moves the quantile by at most sqrt(pi/2) * 2^-52
_MAGNITUDE = np.uint64((1 << 63) - 1)
_EXACT = Context(prec=110)
_PI = Decimal(
    "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798214808651328"
)
_ROOT_TWO_PI = _EXACT.sqrt(_EXACT.multiply(Decimal(2), _PI))


def length_prefixed(*fields: bytes) -> bytes:
    """Concatenate so that no two different tuples of fields give the same bytes."""
    return b"".join(struct.pack("<Q", len(field)) + field for field in fields)


class NoiseSource:
    """The noise of one pipeline under one secret, epoch and configuration.

    Privacy: AES and keyed blake2b are taken to be pseudorandom; the guarantee is computational in that sense only.
    Never reuse (secret, epoch, config, pipeline) for different data. Raises ConfigurationError for a short secret.
    """

    def __init__(self, secret: bytes, *, epoch: bytes, config: bytes, pipeline: str) -> None:
        if len(secret) < MINIMUM_SECRET:
            raise ConfigurationError(
                f"secret: has {len(secret)} bytes; make one of at least {MINIMUM_SECRET} random bytes, "
                f"for example with `openssl rand -hex 32`"
            )
        self._secret = bytes(secret)
        self._context = length_prefixed(
            b"susurrus noise", struct.pack("<I", NOISE_VERSION), epoch, config, pipeline.encode()
        )

    def __repr__(self) -> str:
        return "NoiseSource(secret=...)"

    def window(self, window: WindowIndex) -> "WindowNoise":
        """The noise of one window: its index, a 64-bit integer. Another index, or the start instead, is other noise."""
        context = self._context + length_prefixed(struct.pack("<q", window))
        key = HKDF(algorithm=SHA256(), length=64, salt=None, info=context).derive(self._secret)
        return WindowNoise(label_key=key[:32], cipher_key=key[32:], context=context)


class WindowNoise:
    """The noise of one window: a draw depends on (window, mechanism, full key, index) and nothing else.

    `memory` is a place for callers to keep what they derived from draws, up to `memory_bytes`; it changes no result.
    """

    def __init__(self, *, label_key: bytes, cipher_key: bytes, context: bytes, memory_bytes: int = 1 << 26) -> None:
        self._room = _Room(memory_bytes)
        self._memory: dict[str, RowMemory] = {}
        self._label_key = label_key
        self._context = context
        # ECB does not hide equal blocks. Here it is only a pseudorandom permutation of distinct addresses.
        self._cipher = Cipher(algorithms.AES(cipher_key), modes.ECB())

    def __repr__(self) -> str:
        return "WindowNoise(...)"

    @property
    def memory_bytes(self) -> int:
        """What may still be remembered, shared by the mechanisms of the window."""
        return self._room.left

    @memory_bytes.setter
    def memory_bytes(self, left: int) -> None:
        self._room.left = left

    def memory(self, mechanism: str, width: int) -> "RowMemory":
        """The rows remembered for a mechanism."""
        with self._room.lock:
            return self._memory.setdefault(mechanism, RowMemory(self._room, width))

    def labels(self, mechanism: str, keys: Sequence[bytes]) -> npt.NDArray[np.uint8]:
        """uint8[k, 16]: keyed blake2b-128 of every field of the address, the full key included."""
        base = blake2b(self._context, digest_size=16, key=self._label_key)
        base.update(length_prefixed(mechanism.encode()))
        digests = []
        for key in keys:
            digest = base.copy()
            digest.update(struct.pack("<Q", len(key)))
            digest.update(key)
            digests.append(digest.digest())
        return np.frombuffer(b"".join(digests), np.uint8).reshape(len(keys), 16)

    def bits(self, labels: npt.NDArray[np.uint8], first: int, last: int) -> npt.NDArray[np.uint64]:
        """uint64[k, last - first + 1, 2]: 128 pseudorandom bits per label and index first..last, high word first."""
        if not 0 <= first <= last + 1 <= MAX_INDEX:
            raise ValueError(f"first={first}, last={last}: indices must be from 0 to 2^48 - 1")
        address = np.ascontiguousarray(labels).view("<u8").reshape(len(labels), 1, 2)
        blocks = np.empty((len(labels), last - first + 1, 2), "<u8")
        np.bitwise_xor(address[:, :, 0], np.arange(first, last + 1, dtype=np.uint64), out=blocks[:, :, 0])
        blocks[:, :, 1] = address[:, :, 1]
        if not blocks.size:
            return blocks
        out = bytearray(blocks.nbytes + 15)
        self._cipher.encryptor().update_into(blocks.view(np.uint8).reshape(-1).data, out)
        return np.frombuffer(out, "<u8", count=blocks.size).reshape(blocks.shape)

    def normal(
        self, labels: npt.NDArray[np.uint8], first: int, last: int, *, sigma: float = 1.0, bits: int = 20
    ) -> npt.NDArray[np.int64]:
        """N(0, sigma^2) rounded to multiples of 2^-bits, in units of 2^-bits; int64[k, last - first + 1]."""
        return self._draw(labels, first, last, grid_units(sigma, bits), _normal_magnitude, normal_tail)

    def laplace(
        self,
        labels: npt.NDArray[np.uint8],
        first: int,
        last: int,
        *,
        scale: float | npt.NDArray[np.float64] = 1.0,
        bits: int = 20,
    ) -> npt.NDArray[np.int64]:
        """Laplace of the given scale rounded to multiples of 2^-bits, in those units; int64[k, last - first + 1].

        scale: of all draws, or float64[k], one for each label.
        """
        unit: float | npt.NDArray[np.float64]
        if isinstance(scale, np.ndarray):
            for extreme in (scale.min(initial=1.0), scale.max(initial=1.0)):
                grid_units(float(extreme), bits)
            unit = scale[:, None] * 2.0**bits
        else:
            unit = grid_units(scale, bits)
        return self._draw(labels, first, last, unit, _exponential_magnitude, exponential_tail)

    def _draw(
        self,
        labels: npt.NDArray[np.uint8],
        first: int,
        last: int,
        unit: float | npt.NDArray[np.float64],
        magnitude: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]],
        tail: Callable[[Decimal], Decimal],
    ) -> npt.NDArray[np.int64]:
        draws = last - first + 1
        out = np.empty((len(labels), draws), np.int64)
        rows = max(1, _CHUNK // max(1, draws))
        for begin in range(0, len(labels), rows):
            words = self.bits(labels[begin : begin + rows], first, last)
            some = unit[begin : begin + rows] if isinstance(unit, np.ndarray) else unit
            out[begin : begin + rows] = round_quantile(words[:, :, 0], words[:, :, 1], some, magnitude, tail)
        return out


def grid_units(scale: float, bits: int) -> float:
    """The scale of noise in units of 2^-bits. Raises ConfigurationError where it cannot be drawn.

    Mechanisms call this when they are built. If only the first key that needs a draw found it out, the halt itself would tell
    that there is such a key.
    """
    unit = scale * 2.0**bits
    if not (0 <= bits <= 62 and 0 < unit <= MAX_SCALE):
        raise ConfigurationError(
            f"noise: scale={scale!r} at {bits} fractional bits: must be positive and at most 2^40 grid units, on a grid no "
            "coarser than the data's; raise epsilon, or lower the bounds or choose coarser grids for the columns"
        )
    return unit


class _Room:
    """How many bytes the memories of a window may still take.

    They share it instead of the window's noise: objects that refer to each other would wait for the garbage collector, which a
    worker hardly ever runs (agents/runtime/faust/worker.py), and keep the tables of many windows until then.
    """

    __slots__ = ("left", "lock")

    def __init__(self, left: int) -> None:
        self.left = left
        self.lock = threading.Lock()


class RowMemory:
    """Rows of int32 by key, added until the window's memory is used up; then callers recompute."""

    def __init__(self, room: _Room, width: int) -> None:
        self._room = room
        self._index: dict[bytes, int] = {}
        self._table = np.empty((0, width), np.int32)

    def find(self, keys: Sequence[bytes]) -> npt.NDArray[np.int64]:
        """Row of each key in `table`, -1 if it is not remembered."""
        return np.fromiter(map(self._index.get, keys, repeat(-1)), np.int64, len(keys))

    @property
    def table(self) -> npt.NDArray[np.int32]:
        """int32[rows, width]; valid until the next `add`."""
        return self._table

    def room(self) -> int:
        """How many more rows fit; the bytes of a key and its dictionary entry are counted as 200."""
        return max(0, self._room.left) // (4 * self._table.shape[1] + 200)

    def add(self, keys: Sequence[bytes], rows: npt.NDArray[np.int64]) -> None:
        """Remember rows; not if a value leaves int32 or there is no room. Threads may find while one adds."""
        if np.abs(rows).max(initial=0) >= 1 << 31:
            return
        with self._room.lock:
            if len(keys) > self.room():
                return
            used = len(self._index)
            if used + len(keys) > len(self._table):
                grown = np.empty((max(1024, 2 * used, used + len(keys)), rows.shape[1]), np.int32)
                grown[:used] = self._table[:used]
                self._table = grown
            self._table[used : used + len(keys)] = rows
            self._index.update(zip(keys, range(used, used + len(keys)), strict=True))
            self._room.left -= len(keys) * (4 * rows.shape[1] + 200)


def round_quantile(
    high: npt.NDArray[np.uint64],
    low: npt.NDArray[np.uint64],
    unit: float | npt.NDArray[np.float64],
    magnitude: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]],
    tail: Callable[[Decimal], Decimal],
) -> npt.NDArray[np.int64]:
    """Sign and correctly rounded magnitude: u = (2k + 1) / 2^129 with k the lower 127 bits, then round(unit * Q(u)).

    Q is the upper quantile function `magnitude` (decreasing in u, on (0, 1/2)), `tail` its inverse in 110 digits. The
    float64 value decides unless it lies within its error bound of a half-integer; then u is compared with the tail.
    unit: of all draws, or an array that broadcasts to them.
    """
    whole = (high & _MAGNITUDE).view(np.int64).astype(np.float64)
    # Keep 53 bits of relative precision when the leading bits are zero: only then do the lower 64 bits matter.
    small = np.flatnonzero(whole < 2.0**55)
    whole.flat[small] += (low.reshape(-1)[small].astype(np.float64) + 0.5) * 2.0**-64
    whole *= 2.0**-64
    value = magnitude(whole)
    value *= unit
    rounded = np.rint(value)
    # distance from the integer, plus the error bound, reaches 1/2
    distance = np.abs(value - rounded)
    value *= _RELATIVE_ERROR
    distance += value
    ties = np.flatnonzero(distance >= 0.5 - unit * _ABSOLUTE_ERROR - 2.0**-50)
    out = rounded.astype(np.int64)
    if len(ties):
        flat_high, flat_low = high.reshape(-1), low.reshape(-1)
        approximate = value.reshape(-1)[ties] / _RELATIVE_ERROR
        units = np.broadcast_to(unit, out.shape).flat[ties]
        for index, near, its in zip(ties.tolist(), approximate.tolist(), units.tolist(), strict=True):
            out.flat[index] = _exactly(int(flat_high[index]), int(flat_low[index]), its, near, tail)
    np.negative(out, out=out, where=(high >> np.uint64(63)).astype(np.bool_))
    return out


def _exactly(high: int, low: int, unit: float, near: float, tail: Callable[[Decimal], Decimal]) -> int:
    """The rounded magnitude when the float64 value `near` is close to a half-integer h + 1/2."""
    k = ((high & int(_MAGNITUDE)) << 64) | low
    u = _EXACT.divide(Decimal(2 * k + 1), Decimal(1 << 129))
    floor = int(near)
    bound = _EXACT.divide(_EXACT.add(Decimal(floor), Decimal("0.5")), Decimal(unit))
    return floor + 1 if u <= tail(bound) else floor


def _normal_magnitude(u: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    value: npt.NDArray[np.float64] = ndtri(u, out=u)
    return np.negative(value, out=value)


def _exponential_magnitude(u: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    u *= 2.0
    np.log(u, out=u)
    return np.negative(u, out=u)


def normal_tail(x: Decimal) -> Decimal:
    """P(N(0, 1) > x) for 0 <= x <= 16 to more than 50 significant digits.

    1/2 - phi(x) * sum_n x^(2n+1) / (1 * 3 * ... * (2n+1)): all terms positive, the one subtraction loses at most 60
    of the 110 digits.
    """
    context = _EXACT
    square = context.multiply(x, x)
    term, total, odd = x, x, 1
    while term > Decimal("1e-120"):
        odd += 2
        term = context.divide(context.multiply(term, square), Decimal(odd))
        total = context.add(total, term)
    density = context.divide(context.exp(context.multiply(square, Decimal("-0.5"))), _ROOT_TWO_PI)
    return context.subtract(Decimal("0.5"), context.multiply(density, total))


def exponential_tail(x: Decimal) -> Decimal:
    """P(Laplace(1) > x) for x >= 0, to 100 significant digits."""
    return _EXACT.divide(_EXACT.exp(_EXACT.minus(x)), Decimal(2))
