"""Batches by their step, read by several processes: worker w of W reads the steps k with k mod W = w.

    zrfs import features.npy features.zr
    zrfs mount features.zr mnt -o mode=shuffle,seed=7,batch_size=64
    python3 examples/batches_workers.py mnt             # 4 workers, steps 0 to 19
    python3 examples/batches_workers.py mnt 2 20 50     # 2 workers, goes on at step 20, 50 steps

Needs numpy. Nothing in it knows of zrfs. A step is the same for whoever reads it, so nothing has to be shared out, seeded
or sent: the checkpoint of a run is the number of its next step.
"""

import itertools
import multiprocessing
import os
import sys

import numpy as np


def read(mount, step):
    data = np.load(f"{mount}/batches/{step}.npy")
    # There with -o labels=STORE: those of the same records.
    labels = f"{mount}/batches/{step}.label.npy"
    return data, np.load(labels) if os.path.exists(labels) else None


def worker(mount, steps):
    """What a training would do with each step; here, sums that tell one batch from another."""
    seen = []
    for step in steps:
        data, labels = read(mount, step)
        seen.append((step, data.shape, float(data.sum(dtype="f8")), None if labels is None else int(labels.sum())))
    return seen


def main(mount, workers=4, start=0, steps=20):
    shares = [(mount, range(start + w, start + steps, workers)) for w in range(workers)]
    with multiprocessing.Pool(workers) as team:
        together = sorted(itertools.chain(*team.starmap(worker, shares, chunksize=1)))
    # One reader, step after step.
    alone = worker(mount, range(start, start + steps))
    for step, shape, total, labels in alone[:3]:
        print(f"step {step}: {shape}, sum {total:.6f}" + ("" if labels is None else f", labels' sum {labels}"))
    print(f"{workers} workers and one reader saw the same {steps} steps: {together == alone}")
    print(f"to go on: step {start + steps}")
    return 0 if together == alone else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:])))
