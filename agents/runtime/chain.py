"""The key of the digests over exact input that the ledger keeps, for every kind of pipeline."""

from hashlib import blake2b


def chain_key(secret: bytes, epoch: bytes) -> bytes:
    """32 bytes that key the digest chain of an epoch: without the secret, no one can try a guess of an exact input on it."""
    derived = blake2b(secret, person=b"susurrus-chain", digest_size=32).digest()
    return blake2b(epoch, key=derived, person=b"susurrus-chain", digest_size=32).digest()
