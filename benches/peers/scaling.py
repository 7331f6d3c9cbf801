"""Scaling: what a store of a hundred or a thousand times as many records takes more."""

import math
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from data import BATCH, KIB, batches, checksum, splitmix, write_npy
from importing import command
from mounts import Mounted, zrfs
from results import say
from sides import ZRFS, Wrong
from stores import NPY, Npy, timed

ITEM_LEN = 16
WORDS = ITEM_LEN // 8
# Sizes, and their shares of the time: about as three rounds take, or two of the largest.
SIZES = {10_000: 3, 100_000: 6, 1_000_000: 30, 1 << 24: 120}
QUICK = {size: SIZES[size] for size in (10_000, 100_000)}
SMOKE = {2_000: 1, 4_000: 1}
DELETED = 1000
LOOKUPS = 2000
GATHERS = 50
# Seed of the records, as making.rs has it.
SEED = 7
# A store of 2^24 serves within so many ms.
MOUNT_LIMIT = 100
# Attributes of more names than this fill the memory of the kernel.
ATTRIBUTES = 1_000_000
# Records of an array that are made at once.
BLOCK = 1 << 20


def whole(times):
    """The growth that is allowed to what goes over all records, of `times` as many: linear, and something for noise."""
    return 1.3 * times


def single(times):
    """The growth that is allowed to what is for one record or for the store as such: twice for ten times as many records.

    Caches are missed more often, and of more folders it is less likely that the kernel knows one when a name in it is
    looked up: up to two requests for one. Linear would be ten times.
    """
    return 2 ** math.log10(times)


def scattered(times):
    """The growth that is allowed to what is for many records at random: half of linear.

    In a small store such records share lines of the caches and pages. In one of 2^24 each lies in a page of its own, and
    so does the part of the page table that leads to it: `np.take`, beside the gather, shows what that costs. A delete has
    all pages that it changes written to the disk, and a bit for each record of the store.
    """
    return times / 2


class Figure(NamedTuple):
    name: str
    unit: str
    growth: Callable[[float], float]


FIGURES = [
    Figure("mount", "ms", single),
    Figure("lookup", "us", single),
    Figure("listing, names", "ms", whole),
    Figure("listing, attributes", "ms", whole),
    # What of the store is mapped counts.
    Figure("memory at most", "MiB", whole),
    Figure("memory, its own", "MiB", single),
    Figure("unmount", "ms", whole),
    Figure("unmount after attributes", "ms", whole),
    Figure("gather", "us/batch", scattered),
    Figure("verify", "ms", whole),
    Figure("delete 1000", "ms", scattered),
    Figure("compact", "ms", whole),
]


def measure(run):
    sizes = SMOKE if run.smoke else QUICK if run.quick else SIZES
    samples, taken = {}, {}
    with run.start(ZRFS) as sides:
        for size, part in run.budget.shares(sizes, sizes.get):
            if part is None:
                run.leave_out(f"scaling, {size} records", "no time is left")
                continue
            run.part = part
            say(f"scaling: {size} records")
            array = make_array(run, size)
            for _ in run.rounds():
                for name, value in one_store(run, sides[ZRFS], size).items():
                    samples.setdefault(name, {}).setdefault(size, []).append(value)
                taken.setdefault(size, []).append(take(array, size))
            os.remove(f"{array}.npy")
    for figure in FIGURES:
        add(run, figure, samples[figure.name])
    for size, values in taken.items():
        run.results.add(f"gather, {size} records", "us/batch", ZRFS, samples["gather"][size], NPY, values, rate=False)


def add(run, figure, of):
    """A row for each size, beside the size before it: the ratio is the growth."""
    before = None
    for size, values in of.items():
        measure = f"{figure.name}, {size} records"
        if before is None:
            run.results.add(measure, figure.unit, ZRFS, values)
        else:
            rounds = min(len(values), len(of[before]))
            run.results.add(measure, figure.unit, ZRFS, values[:rounds], f"{before} records", of[before][:rounds],
                            round(figure.growth(size / before), 1), at_most=True)
        if (figure.name, size) == ("mount", 1 << 24):
            run.results.add(measure, figure.unit, ZRFS, values, limit=MOUNT_LIMIT)
        before = size


def make_array(run, size):
    """The records of a store as a .npy: its path without the suffix."""
    path = run.path("scaling")
    write_npy(f"{path}.npy", (size, ITEM_LEN),
              (records(np.arange(start, min(size, start + BLOCK))) for start in range(0, size, BLOCK)))
    return path


def records(indices):
    """The bytes of these records, a row each."""
    words = np.asarray(indices, np.uint64)[:, None] * np.uint64(WORDS) + np.arange(WORDS, dtype=np.uint64)
    return splitmix(SEED, words).view(np.uint8)


def take(array, size):
    """What a batch takes from the array, at the indices of the gather; in us."""
    npy = Npy("raw")
    npy.open(array)
    # A byte of each page: all is mapped, as the store is.
    npy.array[::4 * KIB // ITEM_LEN, 0].sum()
    took, seen = timed(npy.gather, batches(5, size, GATHERS))
    npy.close()
    expect_last(seen, size)
    return took / GATHERS / 1000


def expect_last(seen, size):
    """Whether the last batch of a gather is what was written."""
    if seen != checksum(records(batches(5, size, GATHERS)[-1])):
        raise Wrong("scaling: a gather read other bytes than were written")


def one_store(run, side, size):
    """Makes a store and takes it through its life."""
    store = run.path("scaling.zr")
    # A thousand a folder, more or less, as a class of a data set has them.
    each = next(each for each in (1000, 1024) if size % each == 0)
    if side.ask("fill", store, size // each, each, ITEM_LEN) != [size]:
        raise Wrong("scaling: another number of records than wanted")
    os.sync()
    figures = {}
    first = first_words(size)
    expect_sum(side, store, size, sum_of(first))
    kind, probe = zrfs(run.args.zrfs, inside="records"), f"{0:08}.bin"
    with Mounted(run, kind, store, probe) as mount:
        figures["mount"] = mount.mount_time * 1000
        took, found = side.ask("lookup", mount.where, "bin", size, 3, LOOKUPS)
        if found != LOOKUPS * ITEM_LEN:
            raise Wrong("scaling: a lookup found other sizes than were written")
        figures["lookup"] = took / LOOKUPS / 1000
        figures["listing, names"] = listing(side, mount, size, "names")
        _, figures["memory at most"], figures["memory, its own"] = mount.memory()
    figures["unmount"] = mount.unmount_time * 1000
    if size <= ATTRIBUTES:
        # In a mount of its own: once the names have been listed, each stat is a request of its own.
        with Mounted(run, kind, store, probe) as mount:
            figures["listing, attributes"] = listing(side, mount, size, "attributes")
        figures["unmount after attributes"] = mount.unmount_time * 1000
    side.ask("open", store)
    # All is mapped, then: a first touch costs a page fault.
    side.ask("whole", ITEM_LEN, 1 << 16)
    took, seen = side.ask("gather", ITEM_LEN, BATCH, GATHERS, 5, "warm")
    expect_last(seen, size)
    figures["gather"] = took / GATHERS / 1000
    side.ask("close")
    figures["verify"] = command(run.args.zrfs, "verify", store) * 1000
    deleted = np.unique(splitmix(9, np.arange(2 * DELETED)) % np.uint64(size))
    deleted = deleted[np.argsort(splitmix(deleted, np.zeros_like(deleted)))][:DELETED]
    figures["delete 1000"] = delete(run, store, deleted) * 1000
    left = size - len(deleted)
    wanted = (sum_of(first) - sum_of(first[deleted.astype(np.int64)])) % (1 << 64)
    expect_sum(side, store, left, wanted)
    figures["compact"] = command(run.args.zrfs, "compact", store) * 1000
    expect_sum(side, store, left, wanted)
    shutil.rmtree(store)
    return figures


def listing(side, mount, size, how):
    took, names, _ = side.ask("list", mount.where, how)
    if names != size:
        raise Wrong(f"scaling: a listing shows {names} names of {size}")
    return took / 1e6


def first_words(size):
    return splitmix(SEED, np.arange(size, dtype=np.uint64) * np.uint64(WORDS))


def sum_of(words):
    return int(words.sum(dtype=np.uint64))


def expect_sum(side, store, size, total):
    if side.ask("firstwords", store, ITEM_LEN) != [size, total]:
        raise Wrong("scaling: the store holds other records than it should")


def delete(run, store, indices):
    """Seconds that deleting takes."""
    begin = time.perf_counter()
    done = subprocess.run([run.args.zrfs, "delete", store, "-"], input=" ".join(map(str, indices)) + "\n",
                          capture_output=True, text=True, check=False)
    took = time.perf_counter() - begin
    if done.returncode:
        raise Wrong(f"zrfs delete: {done.stderr.strip()}")
    return took
