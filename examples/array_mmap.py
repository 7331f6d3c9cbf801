"""Any rows of a dense store as one array, which is larger than memory where need be: array.npy of a mount.

    zrfs import features.npy features.zr
    zrfs mount features.zr mnt
    python3 examples/array_mmap.py mnt

Needs numpy. Nothing in it knows of zrfs.
"""

import sys

import numpy as np


def main(mount, rows=256):
    # Mapped: a row is read and decoded when it is touched, and stays in the page cache as that of any file.
    array = np.load(f"{mount}/array.npy", mmap_mode="r")
    print(f"{array.shape} {array.dtype}, {array.nbytes} bytes")

    # Sorted, as neighbours are read together.
    picked = np.sort(np.random.default_rng(7).integers(0, len(array), rows))
    batch = array[picked]
    print(f"{len(batch)} random rows, from {picked[0]} to {picked[-1]}: mean {batch.mean(dtype='f8'):.6f}")

    middle = len(array) // 2
    some = array[middle:middle + rows]
    print(f"rows {middle} to {middle + len(some) - 1}: mean {some.mean(dtype='f8'):.6f}")
    # While the array is mapped, `delete` is busy. It is not once this process has let go of it.


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
