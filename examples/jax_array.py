"""Dense records as one JAX array, from a store that was exported to a .npy file, and as single records from a mount.

    zrfs import features.npy features.zr
    zrfs export features.zr out.npy
    zrfs mount features.zr mnt
    python3 examples/jax_array.py out.npy mnt/records

Needs numpy and jax. Nothing in it knows of zrfs.
"""

import pathlib
import sys

import jax.numpy as jnp
import numpy as np


def main(exported, records):
    # Mapped: only what is used is read.
    array = np.load(exported, mmap_mode="r")
    batch = jnp.asarray(array[:256])
    print("exported:", array.shape, array.dtype, "mean of the first batch", float(batch.mean()))
    some = [pathlib.Path(records) / f"{i:08}.npy" for i in (0, len(array) // 2, len(array) - 1)]
    batch = jnp.stack([jnp.asarray(np.load(path)) for path in some])
    print("mounted:", batch.shape, batch.dtype, "mean of three records", float(batch.mean()))


if __name__ == "__main__":
    main(*sys.argv[1:])
