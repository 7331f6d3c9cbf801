"""The records of test_torture: all of one follows from its number."""

import functools
import hashlib
import struct

HEADER = struct.Struct("<QQ")  # number, length


@functools.lru_cache(maxsize=20_000)
def body(number):
    """Between 16 bytes and 200 KB; every second one can be deflated."""
    length = 16 + number * 7919 % 12_000 + (180_000 if number % 97 == 5 else 0)
    digest = hashlib.shake_128(HEADER.pack(number, length))
    if number % 2:
        rest = digest.digest(length)
    else:
        rest = digest.digest(64) * (length // 64 + 1)
    return (HEADER.pack(number, length) + rest)[:length]


def name(number):
    return f"class{number % 7}/{number}.{'abc'[number % 3]}"
