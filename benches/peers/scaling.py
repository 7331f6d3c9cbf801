"""Scaling: what a store of a hundred or a thousand times as many records takes more."""

import os
import shutil
import subprocess
import time

import numpy as np

from data import BATCH, batches, checksum, splitmix
from importing import command
from mounts import Mounted, zrfs
from results import say
from sides import ZRFS, Wrong

ITEM_LEN = 16
WORDS = ITEM_LEN // 8
SIZES = [10_000, 100_000, 1_000_000, 1 << 24]
QUICK = SIZES[:2]
SMOKE = [2_000, 4_000]
DELETED = 1000
LOOKUPS = 2000
GATHERS = 50
# Seed of the records, as making.rs has it.
SEED = 7
# More than this beside a growth that is linear is worth a look.
TOLERANCE = 1.3
# A store of 2^24 serves within so many ms.
MOUNT_LIMIT = 100
# Attributes of more names than this fill the memory of the kernel.
ATTRIBUTES = 1_000_000


def measure(run):
    sizes = SMOKE if run.smoke else QUICK if run.quick else SIZES
    samples = {}
    with run.start(ZRFS) as sides:
        # A large store takes as much longer as it is larger; a small one needs some time, too.
        for size, part in run.budget.shares(sizes, lambda size: size + 200_000):
            if part is None:
                run.leave_out(f"scaling, {size} records", "no time is left")
                continue
            run.part = part
            say(f"scaling: {size} records")
            for _ in run.rounds():
                for what, value in one_store(run, sides[ZRFS], size).items():
                    samples.setdefault(what, {}).setdefault(size, []).append(value)
    for (what, unit), of in samples.items():
        add(run, what, unit, of)


def add(run, what, unit, of):
    """A row for each size, beside the size before it: the ratio is the growth."""
    before = None
    for size, values in of.items():
        limit = MOUNT_LIMIT if (what, size) == ("mount", SIZES[-1]) else None
        if before is None:
            run.results.add(f"{what}, {size} records", unit, ZRFS, values, limit=limit)
        else:
            rounds = min(len(values), len(of[before]))
            run.results.add(f"{what}, {size} records", unit, ZRFS, values[:rounds], f"{before} records",
                            of[before][:rounds], round(TOLERANCE * size / before, 1), at_most=True, limit=limit)
        before = size


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
    with Mounted(run, zrfs(run.args.zrfs, inside="records"), store, f"{0:08}.bin") as mount:
        figures["mount", "ms"] = mount.mount_time * 1000
        took, found = side.ask("lookup", mount.where, "bin", size, 3, LOOKUPS)
        if found != LOOKUPS * ITEM_LEN:
            raise Wrong("scaling: a lookup found other sizes than were written")
        figures["lookup", "us"] = took / LOOKUPS / 1000
        for how in ("names", "attributes") if size <= ATTRIBUTES else ("names",):
            took, names, _ = side.ask("list", mount.where, how)
            if names != size:
                raise Wrong(f"scaling: a listing shows {names} names of {size}")
            figures[f"listing, {how}", "ms"] = took / 1e6
        _, figures["memory at most", "MiB"], figures["memory, its own", "MiB"] = mount.memory()
    figures["unmount", "ms"] = mount.unmount_time * 1000
    side.ask("open", store)
    # All is mapped, then: a first touch costs a page fault.
    side.ask("whole", ITEM_LEN, 1 << 16)
    took, seen = side.ask("gather", ITEM_LEN, BATCH, GATHERS, 5)
    last = batches(5, size, GATHERS)[-1]
    if seen != checksum(splitmix(SEED, (last[:, None] * np.uint64(WORDS) + np.arange(WORDS, dtype=np.uint64)))):
        raise Wrong("scaling: a gather read other bytes than were written")
    figures["gather", "us/batch"] = took / GATHERS / 1000
    side.ask("close")
    figures["verify", "ms"] = command(run.args.zrfs, "verify", store) * 1000
    deleted = np.unique(splitmix(9, np.arange(2 * DELETED)) % np.uint64(size))
    deleted = deleted[np.argsort(splitmix(deleted, np.zeros_like(deleted)))][:DELETED]
    figures["delete 1000", "ms"] = delete(run, store, deleted) * 1000
    left = size - len(deleted)
    wanted = (sum_of(first) - sum_of(first[deleted.astype(np.int64)])) % (1 << 64)
    expect_sum(side, store, left, wanted)
    figures["compact", "ms"] = command(run.args.zrfs, "compact", store) * 1000
    expect_sum(side, store, left, wanted)
    shutil.rmtree(store)
    return figures


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
