"""Records without a file system: written one after another, then taken at random, beside other record stores."""

import os
import shutil
import time
from typing import NamedTuple

from data import BATCH, KIB, MIB, batches, checksum, source
from results import say
from sides import ZRFS, ZRFS_C, Wrong, in_turn
from stores import available, timed


class Case(NamedTuple):
    name: str
    codec: str
    item_len: int
    records: int
    # Batches in a timing.
    count: int


# Compressed: zrfs by Deflate, the others by Zstandard.
CASES = [
    Case("12 KiB raw", "raw", 12 * KIB, 20_000, 20),
    Case("12 KiB compressed", "flate", 12 * KIB, 20_000, 8),
    Case("3 KiB raw", "raw", 3 * KIB, 40_000, 40),
    Case("8 B raw", "raw", 8, 200_000, 100),
]


def measure(run):
    with run.start(ZRFS, ZRFS_C) as sides:
        for case in run.cases(CASES):
            measure_case(run, sides, case)


def measure_case(run, sides, case):
    records, count = run.records(case.records), run.times(case.count)
    say(f"records {case.name}: {records} records")
    array = source(run.folder, "walk", case.item_len, records)
    stores = available(run, case.codec)
    step = max(1, 48 * MIB // case.item_len)
    paths = {name: run.path(f"records-{number}") for number, name in enumerate([*sides, *stores])}
    for side in sides.values():
        side.ask("load", array.filename, array.offset, array.nbytes)

    def write(name):
        if name in stores:
            begin = time.perf_counter_ns()
            stores[name].write(paths[name], array)
            return time.perf_counter_ns() - begin
        if name == ZRFS_C:
            sides[ZRFS].ask("create", paths[name])
        return sides[name].ask("append", paths[name], case.codec, case.item_len, step)[0]

    def take(name, seed):
        """Time of the batches, and the checksum of the last."""
        if name in sides:
            return sides[name].ask("gather", case.item_len, BATCH, count, seed)
        return timed(stores[name].gather, batches(seed, records, count))

    written, taken = ({name: [] for name in paths} for _ in range(2))
    for i in run.rounds():
        for path in paths.values():
            remove(path)
        for name in in_turn(paths, i):
            os.sync()
            written[name].append(array.nbytes / MIB / (write(name) / 1e9))
        for name in sides:
            if sides[name].ask("open", paths[name]) != [records]:
                raise Wrong(f"records {case.name}: {name} has another number of records than were written")
        for name in stores:
            stores[name].open(paths[name])
        for name in in_turn(paths, i):
            nanoseconds, seen = take(name, 100 + i)
            if seen != checksum(array[batches(100 + i, records, count)[-1]]):
                raise Wrong(f"records {case.name}: {name} read other bytes than were written")
            taken[name].append(count * BATCH / (nanoseconds / 1e9))
        for store in stores.values():
            store.close()
        for side in sides.values():
            side.ask("close")
    for side in sides.values():
        side.ask("load", array.filename, array.offset, 0)
    for path in paths.values():
        remove(path)
    for ours in sides:
        for peer in stores:
            run.results.add(f"{case.name}, batches of {BATCH}", "records/s", ours, taken[ours], peer, taken[peer])
            run.results.add(f"{case.name}, writing", "MiB/s", ours, written[ours], peer, written[peer])


def remove(path):
    """A store, which is a folder, or a file with a suffix of its own."""
    shutil.rmtree(path, ignore_errors=True)
    if os.path.exists(path + ".npy"):
        os.remove(path + ".npy")
