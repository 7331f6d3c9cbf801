"""The side program of loaderx's Python layer: on its own engine, or on libzrfs.so.

    serve.py loaderx          the installed loaderx
    serve.py zrfs FOLDER      the loaderx in FOLDER, whose libraries are libzrfs.so

It knows the commands that main.rs lists. Each is timed right around the calls of loaderx.
"""

import ctypes
import os
import sys
import time
from itertools import islice, repeat

import numpy as np

from data import BATCH, batches, checksum

ENGINE, *FOLDER = sys.argv[1:]
sys.path[:0] = FOLDER

from loaderx import DataLoader, Dataset, Zrecord, _lib, _sampler  # noqa: E402 the path comes first


def check_engine():
    """Only our library has a text for its last error."""
    for stem in ("zrecord", "sampler"):
        path = _lib.path(stem)
        if hasattr(ctypes.CDLL(path), "zr_last_error") != (ENGINE == "zrfs"):
            sys.exit(f"serve.py: {path} is not the library of {ENGINE}")


class NoLabels:
    """Labels for a loader of data alone, as loaderx's wants some."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitems__(self, indices):
        return None


class Side:
    """What one command leaves for the next."""

    def __init__(self):
        self.store = None
        self.source = None
        self.loader = None

    def open(self, path):
        self.close()
        self.store = Zrecord(path)
        return [len(self.store)]

    def close(self):
        if self.store is not None:
            self.store.close()
            self.store = None
        return []

    def gather(self, item_len, batch, rounds, seed, mode):
        item_len, batch = int(item_len), int(batch)
        chosen = list(batches(int(seed), len(self.store), int(rounds), batch))
        # Not of zeros: that memory would be mapped when it is written to, while the clock runs.
        buffer = np.ones((batch, item_len), np.uint8)
        gather = self.store.gather
        if mode == "warm":
            # Wakes the threads; all sides do it.
            gather(chosen[-1], buffer, item_len)
        start = time.perf_counter_ns()
        for indices in chosen:
            gather(indices, buffer, item_len)
        return [time.perf_counter_ns() - start, checksum(buffer)]

    def check(self, item_len, batch, rounds, seed):
        return self.sums(int(item_len), batches(int(seed), len(self.store), int(rounds), int(batch)))

    def whole(self, item_len, batch):
        every = np.arange(len(self.store), dtype=np.uint64)
        return self.sums(int(item_len), (every[at:at + int(batch)] for at in range(0, len(every), int(batch))))

    def sums(self, item_len, chosen):
        """The checksum of each batch."""
        sums = []
        for indices in chosen:
            # Zeros, not what was there: it may be what should come.
            buffer = np.zeros((len(indices), item_len), np.uint8)
            self.store.gather(indices, buffer, item_len)
            sums.append(checksum(buffer))
        return sums

    def load(self, file, offset, length):
        self.source = np.fromfile(file, np.uint8, int(length), offset=int(offset))
        if len(self.source) != int(length):
            raise ValueError("the file is shorter than that")
        return []

    def append(self, path, codec, item_len, step):
        item_len, step = int(item_len), int(step)
        blocks = [self.source[at:at + item_len * step] for at in range(0, len(self.source), item_len * step)]
        with Zrecord(path, codec=codec) as store:
            start = time.perf_counter_ns()
            for block in blocks:
                store.append(block, len(block) // item_len, item_len)
            appended = time.perf_counter_ns()
            store.sync()
            return [appended - start, time.perf_counter_ns() - appended]

    def write(self, path, file, codec):
        Dataset.write(path, np.load(file, mmap_mode="r"), codec=codec).close()
        return []

    def stream(self, data, label, workers, prefetch, seed):
        start = time.perf_counter_ns()
        data = Dataset(data)
        label = Dataset(label) if label else NoLabels(len(data))
        # The threads of one before stay, waiting: it can't be closed.
        self.loader = DataLoader(data, label, num_workers=int(workers), batch_size=BATCH,
                                 prefetch_size=int(prefetch), mode=_sampler.Sampler.Mode.IID, seed=int(seed))
        return [time.perf_counter_ns() - start]

    def batches(self, before, steps):
        for _ in islice(self.loader, int(before)):
            pass
        start = time.perf_counter_ns()
        for _ in islice(self.loader, int(steps)):
            pass
        return [time.perf_counter_ns() - start]

    def batchsums(self, steps):
        return [checksum(batch[name]) for batch in islice(self.loader, int(steps)) for name in ("data", "label")
                if batch[name] is not None]

    def indices(self, mode, length, seed, steps):
        sampler = _sampler.Sampler(int(length), BATCH, int(mode), int(seed))
        return np.concatenate(list(islice(sampler, int(steps)))).tolist()

    def draw(self, mode, length, seed, steps, how):
        mode, length, seed, steps = int(mode), int(length), int(seed), int(steps)
        return {"next": draw_by_layer, "cnext": draw_by_c}[how](mode, length, seed, steps)


def draw_by_layer(mode, length, seed, steps):
    sampler = _sampler.Sampler(length, BATCH, mode, seed)
    draw = sampler.next
    draw()
    start = time.perf_counter_ns()
    for _ in repeat(None, steps):
        indices = draw()
    return [time.perf_counter_ns() - start, checksum(indices)]


def draw_by_c(mode, length, seed, steps):
    lib, ffi = _sampler.lib, _sampler.ffi
    sampler, kept, cnext = lib.cinit(length, BATCH, mode, seed), ffi.new("uint64_t[]", BATCH), lib.cnext
    if sampler == ffi.NULL:
        raise ValueError("no sampler")
    cnext(sampler, kept, BATCH)
    start = time.perf_counter_ns()
    for _ in repeat(None, steps):
        cnext(sampler, kept, BATCH)
    took = time.perf_counter_ns() - start
    lib.cdeinit(sampler)
    return [took, checksum(np.frombuffer(ffi.buffer(kept), np.uint64))]


COMMANDS = {"open", "close", "gather", "check", "whole", "load", "append", "write", "stream", "batches", "batchsums",
            "indices", "draw"}


def answer(side, line):
    command, *words = line.rstrip("\n").split("\t")
    try:
        if command not in COMMANDS:
            raise ValueError(f"unknown command {command}")
        return "\t".join(["ok", *(str(value) for value in getattr(side, command)(*words))])
    except Exception as error:  # noqa: BLE001 whatever it is, the script has to hear of it
        return f"error\t{type(error).__name__}: {error}".replace("\n", " ")


def main():
    check_engine()
    side = Side()
    for line in sys.stdin:
        print(answer(side, line), flush=True)
    # A loader's threads never end; joined at an exit, they would hold this process.
    side.close()
    os._exit(0)


if __name__ == "__main__":
    main()
