"""XXH3-128 of 17 to 128 bytes (seed 0): just enough to know the identity of a graph.

A presample or partition records one digest over the two or three that the manifest has for `topology/`, so that it
cannot be used with another graph. That digest is of 75 or 113 bytes; the files' own, which `gsplit verify` computes,
are not needed.

Source: the XXH3 specification, https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md, "Medium inputs".
"""

from __future__ import annotations

import struct

_MASK = (1 << 64) - 1
_PRIME64_1, _PRIME64_2, _PRIME64_4 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x85EBCA77C2B2AE63
# The first 128 of the 192 bytes of the default secret.
_SECRET = struct.unpack(
    "<16Q",
    bytes.fromhex(
        "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
        "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
        "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
        "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    ),
)


def xxh3_128_medium(data: bytes) -> int:
    """The digest of 17 to 128 bytes."""
    length = len(data)
    if not 17 <= length <= 128:
        raise ValueError(f"{length} bytes, expected 17 to 128")
    low, high = length * _PRIME64_1 & _MASK, 0
    for pair in range((length - 1) // 32, -1, -1):
        first = struct.unpack_from("<2Q", data, 16 * pair)
        second = struct.unpack_from("<2Q", data, length - 16 * pair - 16)
        secret = _SECRET[4 * pair : 4 * pair + 4]
        low = ((low + _mix(first, secret[:2])) & _MASK) ^ (sum(second) & _MASK)
        high = ((high + _mix(second, secret[2:])) & _MASK) ^ (sum(first) & _MASK)
    digest_low = _avalanche((low + high) & _MASK)
    digest_high = -_avalanche((low * _PRIME64_1 + high * _PRIME64_4 + length * _PRIME64_2) & _MASK) & _MASK
    return digest_high << 64 | digest_low


def _mix(words: tuple[int, ...], secret: tuple[int, ...]) -> int:
    product = (words[0] ^ secret[0]) * (words[1] ^ secret[1])
    return product & _MASK ^ product >> 64


def _avalanche(value: int) -> int:
    value ^= value >> 37
    value = value * 0x165667919E3779F9 & _MASK
    return value ^ value >> 32
