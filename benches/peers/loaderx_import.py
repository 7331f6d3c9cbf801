"""Reads a folder of equal files and writes them with loaderx, as a user of it would; prints the seconds."""

import os
import sys
import time

import loaderx
import numpy as np


def main(tree, out):
    begin = time.perf_counter()
    paths = sorted(os.path.join(where, name) for where, _, names in os.walk(tree) for name in names)
    records = np.empty((len(paths), os.path.getsize(paths[0])), np.uint8)
    for row, path in zip(records, paths):
        with open(path, "rb", buffering=0) as file:
            file.readinto(row)
    loaderx.Dataset.write(out, records)
    print(time.perf_counter() - begin)


if __name__ == "__main__":
    main(*sys.argv[1:])
