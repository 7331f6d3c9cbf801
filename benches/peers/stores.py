"""Record stores of Python, each with the same three steps: write all records, open, take a batch into one array."""

import importlib.util
import os
import time

import numpy as np

from data import BATCH, KIB, checksum

NPY = "np.take"
LMDB = "LMDB"
BAGZ = "Bagz"
ARRAY_RECORD = "ArrayRecord"


class Npy:
    """A mapped .npy."""

    name, module, package, codecs = NPY, "numpy", "numpy", ("raw",)

    def __init__(self, codec):
        pass

    def write(self, path, array):
        np.save(path + ".npy", array)

    def open(self, path):
        self.array = np.load(path + ".npy", mmap_mode="r")
        # Not of zeros: that memory would be mapped when it is written to, while the clock runs.
        self.buffer = np.ones((BATCH, self.array.shape[1]), np.uint8)

    def gather(self, indices):
        # clip: with `raise`, NumPy fills a copy of `out` first and takes two to three times as long.
        return np.take(self.array, indices, axis=0, out=self.buffer, mode="clip")

    def close(self):
        self.array = None


class Lmdb:
    """One get a record; its key is the index."""

    name, module, package, codecs = LMDB, "lmdb", "lmdb", ("raw",)

    def __init__(self, codec):
        import lmdb  # noqa: PLC0415 it may be missing
        self.lmdb = lmdb

    def write(self, path, array):
        # A page of 4 KiB holds as many records as fit into it, with some bytes around each.
        room = 2 * array.nbytes + len(array) * 4 * KIB + (1 << 24)
        with self.lmdb.open(path, map_size=room, sync=False, subdir=True) as env, env.begin(write=True) as transaction:
            for i, record in enumerate(array):
                transaction.put(i.to_bytes(8, "big"), record.data, append=True)

    def open(self, path):
        self.env = self.lmdb.open(path, readonly=True, lock=False)
        self.transaction = self.env.begin(buffers=True)

    def gather(self, indices):
        get = self.transaction.get
        return np.frombuffer(b"".join([get(i.to_bytes(8, "big")) for i in indices.tolist()]), np.uint8)

    def close(self):
        self.transaction.abort()
        self.env.close()


class Bagz:
    """One call a batch; its threads are its own affair."""

    name, module, package, codecs = BAGZ, "bagz", "bagz", ("raw", "flate")

    def __init__(self, codec):
        import bagz  # noqa: PLC0415 it may be missing
        self.bagz = bagz
        self.compression = bagz.CompressionNone() if codec == "raw" else bagz.CompressionZstd()

    def write(self, path, array):
        os.mkdir(path)
        with self.bagz.Writer(os.path.join(path, "a.bag"),
                              self.bagz.Writer.Options(compression=self.compression)) as writer:
            for record in array:
                writer.write(record.tobytes())

    def open(self, path):
        self.reader = self.bagz.Reader(os.path.join(path, "a.bag"),
                                       self.bagz.Reader.Options(compression=self.compression))

    def gather(self, indices):
        return np.frombuffer(b"".join(self.reader.read_indices(indices)), np.uint8)

    def close(self):
        self.reader = None


class ArrayRecord:
    """One call a batch, with the options that its documents give for random access."""

    name, module, package, codecs = ARRAY_RECORD, "array_record", "array_record", ("raw", "flate")

    def __init__(self, codec):
        from array_record.python import array_record_module  # noqa: PLC0415 it may be missing
        self.library = array_record_module
        self.options = "group_size:1,uncompressed" if codec == "raw" else "group_size:1,zstd:3"

    def write(self, path, array):
        os.mkdir(path)
        writer = self.library.ArrayRecordWriter(os.path.join(path, "a.array_record"), self.options)
        for record in array:
            writer.write(record.tobytes())
        writer.close()

    def open(self, path):
        self.reader = self.library.ArrayRecordReader(os.path.join(path, "a.array_record"),
                                                     "readahead_buffer_size:0,max_parallelism:0")

    def gather(self, indices):
        return np.frombuffer(b"".join(self.reader.read(indices.tolist())), np.uint8)

    def close(self):
        self.reader.close()


def timed(gather, chosen, mode="warm"):
    """Nanoseconds of gathering batches of indices, and the checksum of the last one."""
    chosen = list(chosen.astype(np.int64))
    if mode == "warm":
        # What the first call finds missing is not what is measured; all sides do it.
        gather(chosen[-1])
    begin = time.perf_counter_ns()
    for indices in chosen:
        batch = gather(indices)
    return time.perf_counter_ns() - begin, checksum(batch)


def available(run, codec):
    """The stores that can hold records in this way and are installed, by name."""
    found = {}
    for store in (Npy, Lmdb, Bagz, ArrayRecord):
        if codec not in store.codecs:
            continue
        if importlib.util.find_spec(store.module) is None:
            run.leave_out(store.name, f"pip install {store.package}, or benches/peers/set_up.sh")
        else:
            found[store.name] = store(codec)
    return found
