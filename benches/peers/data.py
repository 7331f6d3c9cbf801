"""The data, the choice of indices, and checksums: pure functions of a seed, the same in all sides."""

import os

import numpy as np

KIB = 1024
MIB = 1024 * KIB
BATCH = 256
GAMMA = 0x9E3779B97F4A7C15

LOCATION = np.dtype([("offset", "<u4"), ("phys_length", "<u4"), ("logic_length", "<u4"),
                     ("chunk_id", "<u2"), ("compress", "u1"), ("reserved", "u1")])


def splitmix(seed, numbers):
    """These numbers of the splitmix64 stream of `seed`, which begins with number 0: the side programs compute the same."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + (np.asarray(numbers, np.uint64) + np.uint64(1)) * np.uint64(GAMMA)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def batches(seed, length, rounds, batch=BATCH):
    """`rounds` batches of indices below `length`; the same indices in all side programs."""
    return (splitmix(seed, np.arange(rounds * batch)) % np.uint64(length)).reshape(rounds, batch)


def checksums(rows):
    """One checksum a row of bytes: the little-endian 64-bit words, word i times 2 i + 1, added up and wrapping.

    A last word that is short is padded with zeros.
    """
    rows = np.ascontiguousarray(rows)
    if rows.shape[1] % 8:
        rows = np.pad(rows, ((0, 0), (0, -rows.shape[1] % 8)))
    words = rows.view("<u8")
    return (words * (2 * np.arange(words.shape[1], dtype=np.uint64) + np.uint64(1))).sum(axis=1, dtype=np.uint64)


def checksum(array):
    """The checksum of all bytes of an array."""
    return int(checksums(np.ascontiguousarray(array).reshape(1, -1).view(np.uint8))[0])


def write_npy(path, shape, blocks):
    """A .npy of bytes. It is written, not mapped: where the disk is full that is an error, no signal."""
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
        for block in blocks:
            file.write(block)


def bytes_of(data, records, item_len):
    """The bytes of all records in blocks; see `source`."""
    rng = np.random.default_rng(1)
    last = np.zeros(1, np.uint8)
    step = max(1, 64 * MIB // item_len)
    for start in range(0, records, step):
        size = min(step, records - start) * item_len
        if data == "noise":
            yield rng.integers(0, 256, size, np.uint8)
            continue
        block = np.cumsum(rng.integers(0, 7, size, np.uint8), dtype=np.uint8) + last
        last = block[-1:].copy()
        yield block


def source(folder, data, item_len, records):
    """The records as a mapped .npy of shape (records, item_len), made where it is not there yet.

    `walk`: correlated bytes, each the one before plus 0 to 6, wrapping, as in loaderx's own benchmark.
    `noise`: uniform bytes, which Deflate cannot shrink, like JPEG.
    """
    path = os.path.join(folder, f"{data}-{item_len}-{records}.npy")
    if not os.path.exists(path):
        write_npy(path, (records, item_len), bytes_of(data, records, item_len))
    return np.load(path, mmap_mode="r")


def stored(store):
    """Stored bytes of all records, and how many of them are Deflate, as the record table has it."""
    with open(os.path.join(store, "meta.zr"), "rb") as meta:
        header = meta.read(16)
        length = int.from_bytes(header[12:16], "little")
        table = np.frombuffer(meta.read(16 * length), LOCATION)
    return int(table["phys_length"].sum(dtype=np.uint64)), int((table["compress"] == 1).sum())
