"""One turn of loaderx on a store, as a program: it can crash, and must not take the tests along.

loaderx_peer.py write-dense STORE ARRAY.npy CODEC       Dataset.write, which also appends
loaderx_peer.py read-dense STORE OUT.npy                every sample, through Dataset
loaderx_peer.py append-ragged STORE RECORDS.npz CODEC   Zrecord.append_var
loaderx_peer.py read-ragged STORE OUT.npz               every record, through Zrecord.gather_var

RECORDS.npz holds `bytes`, one after another, and their `lens`. A ZrecordError ends with status 3 and prints its code.
"""

import sys

import numpy as np
from loaderx import Dataset, Zrecord
from loaderx._zrecord import ZrecordError


def starts(lens):
    return np.concatenate([[0], np.cumsum(lens, dtype=np.uint64)[:-1]]).astype(np.uint64)


def main(turn, store, file, codec="flate"):
    if turn == "write-dense":
        Dataset.write(store, np.load(file), codec=codec).close()
    elif turn == "read-dense":
        with Dataset(store) as dataset:
            np.save(file, dataset[np.arange(len(dataset))])
    elif turn == "append-ragged":
        with np.load(file) as records, Zrecord(store, codec=codec) as z:
            lens = records["lens"]
            z.append_var(records["bytes"], starts(lens), lens)
            z.sync()
    elif turn == "read-ragged":
        with Zrecord(store) as z:
            index = np.arange(len(z), dtype=np.uint64)
            lens = z.lengths(index)
            out = np.empty(int(lens.sum(dtype=np.uint64)), dtype=np.uint8)
            z.gather_var(index, out, starts(lens))
            np.savez(file, bytes=out, lens=lens)
    else:
        sys.exit(f"unknown turn {turn}")


try:
    main(*sys.argv[1:])
except ZrecordError as error:
    print(f"ZrecordError {error.code}: {error}", file=sys.stderr)
    sys.exit(3)
