"""An endless stream of batches from one open file, and a checkpoint that is one number: batch.npy of a mount.

    zrfs import features.npy features.zr
    zrfs mount features.zr mnt -o mode=shuffle,seed=7,batch_size=64
    python3 examples/stream_npy.py mnt checkpoint       # steps 0 to 9
    python3 examples/stream_npy.py mnt checkpoint       # goes on: steps 10 to 19

Needs numpy. Nothing in it knows of zrfs.
"""

import os
import sys

import numpy as np


def main(mount, checkpoint, steps=10):
    step = 0
    if os.path.exists(checkpoint):
        with open(checkpoint) as f:
            step = int(f.read())
    print(f"from step {step}")

    with open(f"{mount}/batch.npy", "rb") as stream:
        # Every batch takes as many bytes, its header included, so the place of a step is known without reading up to it.
        # (Step 0 is the first of the file. With -o start=N that is step N of the sampler.)
        first = np.load(stream)
        stream.seek(step * stream.tell())
        for step in range(step, step + steps):
            # The file has no end: never read() it whole. np.load takes one batch and leaves the next one.
            batch = np.load(stream)
            assert batch.shape == first.shape
            print(f"step {step}: {batch.shape} {batch.dtype}, mean {batch.mean(dtype='f8'):.6f}")
            save(checkpoint, step + 1)


def save(checkpoint, step):
    """Old or new, never half. A training saves its weights beside it, in the same moment."""
    with open(f"{checkpoint}.new", "w") as f:
        f.write(str(step))
    os.replace(f"{checkpoint}.new", checkpoint)


if __name__ == "__main__":
    main(*sys.argv[1:3], *map(int, sys.argv[3:]))
