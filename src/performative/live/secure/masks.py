"""Masks: long vectors of uniform 64-bit integers from short keys, by AES-256 in counter mode.

mask = AES-CTR(key, 0 0 0 ...) as little-endian integers,      added or subtracted modulo 2^64
"""

import numpy as np

# Bytes generated at a time: they are added while they are in the processor's cache.
_BLOCK = 1 << 18
_ZEROS = bytes(_BLOCK)


def add_mask(total: np.ndarray, key: bytes, sign: int) -> None:
    """total += sign * mask(key), in place. A key may be used for only one vector."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    room = bytearray(_BLOCK + 15)  # OpenSSL needs a spare block
    numbers = np.frombuffer(room, "<u8", _BLOCK // 8)
    change = np.add if sign > 0 else np.subtract
    for at in range(0, len(total), _BLOCK // 8):
        part = total[at : at + _BLOCK // 8]
        stream.update_into(_ZEROS[: 8 * len(part)], room)
        change(part, numbers[: len(part)], out=part)
