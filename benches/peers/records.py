"""Records without a file system: written one after another, then taken at random, beside other record stores."""

import os
import shutil
import time
from typing import NamedTuple

import caches
from data import BATCH, KIB, MIB, batches, checksum, source
from results import say
from sides import ZRFS, ZRFS_C, Wrong, in_turn
from stores import available, timed


class Case(NamedTuple):
    name: str
    codec: str
    item_len: int
    records: int
    # Batches in a timing, and in one with nothing in memory.
    count: int
    cold: int


# Compressed: zrfs by Deflate, the others by Zstandard.
CASES = [
    Case("12 KiB raw", "raw", 12 * KIB, 20_000, 20, 8),
    Case("12 KiB compressed", "flate", 12 * KIB, 20_000, 8, 8),
    Case("3 KiB raw", "raw", 3 * KIB, 40_000, 40, 10),
    Case("8 B raw", "raw", 8, 200_000, 100, 20),
]


def measure(run):
    drop = caches.droppable(run, "records")
    with run.start(ZRFS, ZRFS_C) as sides:
        for case in run.cases(CASES):
            measure_case(run, sides, case, drop)


def measure_case(run, sides, case, drop):
    records, counts = run.records(case.records), {"warm": run.times(case.count), "cold": case.cold}
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

    def open_(name):
        if name in stores:
            stores[name].open(paths[name])
        elif sides[name].ask("open", paths[name]) != [records]:
            raise Wrong(f"records {case.name}: {name} has another number of records than were written")

    def close(name):
        stores[name].close() if name in stores else sides[name].ask("close")

    def take(name, seed, mode):
        """Records a second; the last batch is what was written."""
        chosen = batches(seed, records, counts[mode])
        if name in stores:
            nanoseconds, seen = timed(stores[name].gather, chosen, mode)
        else:
            nanoseconds, seen = sides[name].ask("gather", case.item_len, BATCH, len(chosen), seed, mode)
        if seen != checksum(array[chosen[-1]]):
            raise Wrong(f"records {case.name}: {name} read other bytes than were written")
        return chosen.size / (nanoseconds / 1e9)

    written, warm, cold = ({name: [] for name in paths} for _ in range(3))
    for i in run.rounds():
        for path in paths.values():
            remove(path)
        for name in in_turn(paths, i):
            os.sync()
            written[name].append(array.nbytes / MIB / (write(name) / 1e9))
        for name in paths:
            open_(name)
        for name in in_turn(paths, i):
            warm[name].append(take(name, 100 + i, "warm"))
        for name in paths:
            close(name)
        for name in in_turn(paths, i) if drop else ():
            caches.drop()
            open_(name)
            cold[name].append(take(name, 200 + i, "cold"))
            close(name)
    for side in sides.values():
        side.ask("load", array.filename, array.offset, 0)
    for path in paths.values():
        remove(path)
    for ours in sides:
        for peer in stores:
            run.results.add(f"{case.name}, batches of {BATCH}", "records/s", ours, warm[ours], peer, warm[peer])
            if drop:
                run.results.add(f"{case.name}, cold", "records/s", ours, cold[ours], peer, cold[peer])
            run.results.add(f"{case.name}, writing", "MiB/s", ours, written[ours], peer, written[peer])


def remove(path):
    """A store, which is a folder, or a file with a suffix of its own."""
    shutil.rmtree(path, ignore_errors=True)
    if os.path.exists(path + ".npy"):
        os.remove(path + ".npy")
