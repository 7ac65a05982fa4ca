"""Make tests/golden/noise.json: addressed noise recomputed without any of the project's code.

HKDF from RFC 5869 with hmac, keyed blake2b from hashlib, AES-256 one block at a time, quantiles with mpmath, 60 digits.
Run:  python tests/golden/make_noise.py > tests/golden/noise.json
"""

import hashlib
import hmac
import json
import struct
import sys

import mpmath
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

mpmath.mp.dps = 60
SECRET, EPOCH, CONFIG, PIPELINE, WINDOW = bytes(range(32)), b"epoch-1", b"\x07" * 32, "page-views", 1_754_006_400_000
MECHANISM = "users"
KEYS = ["", "a", "/index.html", "ключ", "a" * 300]
INDICES = [0, 1, 2, 99, 1000, (1 << 48) - 1]


def fields(*parts: bytes) -> bytes:
    return b"".join(struct.pack("<Q", len(part)) + part for part in parts)


def hkdf(secret: bytes, info: bytes, length: int) -> bytes:
    key, out, block, counter = hmac.new(bytes(32), secret, hashlib.sha256).digest(), b"", b"", 1
    while len(out) < length:
        block = hmac.new(key, block + info + bytes([counter]), hashlib.sha256).digest()
        out, counter = out + block, counter + 1
    return out[:length]


def quantile(u: mpmath.mpf) -> mpmath.mpf:
    """x with P(N(0, 1) > x) = u, by bisection."""
    low, high = mpmath.mpf(0), mpmath.mpf(14)
    for _ in range(220):
        middle = (low + high) / 2
        low, high = (middle, high) if mpmath.erfc(middle / mpmath.sqrt(2)) / 2 > u else (low, middle)
    return low


def rounded(block: bytes, scale: mpmath.mpf, distribution: str) -> int:
    high, low = struct.unpack("<QQ", block)  # the first word is the more significant one
    negative, k = high >> 63, ((high & ((1 << 63) - 1)) << 64) | low
    u = mpmath.mpf(2 * k + 1) / mpmath.mpf(1 << 129)
    value = quantile(u) if distribution == "normal" else -mpmath.log(2 * u)
    magnitude = int(mpmath.floor(value * scale + mpmath.mpf("0.5")))
    return -magnitude if negative else magnitude


def main() -> None:
    context = fields(b"susurrus noise", struct.pack("<I", 1), EPOCH, CONFIG, PIPELINE.encode())
    context += fields(struct.pack("<q", WINDOW))
    derived = hkdf(SECRET, context, 64)
    label_key, cipher_key = derived[:32], derived[32:]
    rows = []
    for key in KEYS:
        raw = key.encode()
        message = context + fields(MECHANISM.encode()) + struct.pack("<Q", len(raw)) + raw
        label = hashlib.blake2b(message, digest_size=16, key=label_key).digest()
        blocks = []
        for index in INDICES:
            low, high = struct.unpack("<QQ", label)
            encryptor = Cipher(algorithms.AES(cipher_key), modes.ECB()).encryptor()
            blocks.append(encryptor.update(struct.pack("<QQ", low ^ index, high)))
        rows.append(
            {
                "key": key,
                "label": label.hex(),
                "normal": [rounded(b, mpmath.mpf(17.25) * 2**20, "normal") for b in blocks],
                "normal_fine": [rounded(b, mpmath.mpf(3.7) * 2**28, "normal") for b in blocks],
                "laplace": [rounded(b, mpmath.mpf(2.5) * 2**20, "laplace") for b in blocks],
            }
        )
    tails = {str(x): mpmath.nstr(mpmath.erfc(mpmath.mpf(x) / mpmath.sqrt(2)) / 2, 50) for x in (0, 0.5, 1, 3.25, 7, 13)}
    json.dump(
        {
            "secret": SECRET.hex(),
            "epoch": EPOCH.hex(),
            "config": CONFIG.hex(),
            "pipeline": PIPELINE,
            "window": WINDOW,
            "mechanism": MECHANISM,
            "indices": INDICES,
            "rows": rows,
            "normal_tail": tails,
        },
        sys.stdout,
        indent=1,
    )
    print()


if __name__ == "__main__":
    main()
