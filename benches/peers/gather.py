"""Gather: batches of random records into memory that is kept."""

import shutil
from typing import NamedTuple

import caches
from data import BATCH, KIB, MIB, batches, checksum, source, stored
from results import say
from sides import LOADERX, ZRFS, ZRFS_C, Wrong, expect, in_turn
from stores import NPY, Npy, timed


class Case(NamedTuple):
    name: str
    codec: str
    item_len: int
    records: int
    # Few batches in a timing where one takes long: it is some milliseconds to some hundred.
    count: int
    # Targets beside loaderx and np.take.
    target: float | None = None
    take_target: float | None = None
    cold: bool = False


CASES = [
    Case("8 B raw", "raw", 8, 1_000_000, 400, 20, 0.8),
    Case("3 KiB raw", "raw", 3 * KIB, 40_000, 100, 2, 0.8),
    Case("12 KiB raw", "raw", 12 * KIB, 20_000, 50, 1.2, 0.8),
    Case("150 KiB raw", "raw", 150 * KIB, 2_000, 10, None, 0.8),
    Case("3 KiB Deflate", "flate", 3 * KIB, 40_000, 20, 3, None),
    Case("12 KiB Deflate", "flate", 12 * KIB, 20_000, 8, 3, None),
    Case("150 KiB Deflate", "flate", 150 * KIB, 2_000, 2, 3, None),
]

# Of each library, then, no two threads run at once; np.take has one anyhow.
ONE_PROCESSOR = [
    Case("8 B raw, 1 processor", "raw", 8, 1_000_000, 400),
    Case("12 KiB raw, 1 processor", "raw", 12 * KIB, 20_000, 50),
    Case("3 KiB Deflate, 1 processor", "flate", 3 * KIB, 40_000, 20),
    Case("12 KiB Deflate, 1 processor", "flate", 12 * KIB, 20_000, 8),
]

COLD = [
    Case("12 KiB raw, cold", "raw", 12 * KIB, 20_000, 20, cold=True),
    Case("150 KiB raw, cold", "raw", 150 * KIB, 2_000, 4, cold=True),
    Case("12 KiB Deflate, cold", "flate", 12 * KIB, 20_000, 20, cold=True),
]


def measure(run):
    cold = COLD if caches.droppable(run, "gather") else []
    names = (ZRFS, ZRFS_C, LOADERX)
    with run.start(*names) as sides, run.programs.start(*names, processors=1) as slower:
        for case in run.cases([*CASES, *ONE_PROCESSOR, *cold]):
            measure_case(run, slower if case in ONE_PROCESSOR else sides, case)


def measure_case(run, sides, case):
    records, count = run.records(case.records), run.times(case.count)
    say(f"gather {case.name}: {records} records")
    path, npy = run.path("gather.zr"), Npy(case.codec)
    array = source(run.folder, "walk", case.item_len, records)
    writer = sides[run.args.writer]
    if writer.name == ZRFS_C:
        sides[ZRFS].ask("create", path)
    writer.ask("load", array.filename, array.offset, array.nbytes)
    writer.ask("append", path, case.codec, case.item_len, max(1, 64 * MIB // case.item_len))
    writer.ask("load", array.filename, array.offset, 0)
    size, deflated = stored(path)
    say(f"  stored {size / array.nbytes:.3f} of {array.nbytes / MIB:.0f} MiB, {deflated} records as Deflate")

    def open_(name):
        if name == NPY:
            npy.open(array_path)
        elif sides[name].ask("open", path) != [records]:
            raise Wrong(f"gather {case.name}: {name} sees another number of records")

    def close(name):
        npy.close() if name == NPY else sides[name].ask("close")

    def take(name, seed):
        """Time of the batches, and the checksum of the last."""
        mode = "cold" if case.cold else "warm"
        if name == NPY:
            return timed(npy.gather, batches(seed, records, count), mode)
        return sides[name].ask("gather", case.item_len, BATCH, count, seed, mode)

    sums = [checksum(array[batch]) for batch in batches(11, records, count)]
    array_path = array.filename.removesuffix(".npy")
    # What is mapped here would stay in memory.
    del array
    names = [*sides, *([NPY] if case.codec == "raw" else [])]
    for name in names:
        open_(name)
        if name in sides:
            expect(f"gather {case.name} by {name}", sides[name].ask("check", case.item_len, BATCH, count, 11), sums)
        if case.cold:
            close(name)
    samples = {name: [] for name in names}
    for i in run.rounds():
        seen = set()
        for name in in_turn(names, i):
            if case.cold:
                caches.drop()
                open_(name)
            nanoseconds, last = take(name, 100 + i)
            samples[name].append(nanoseconds / count / 1000)
            seen.add(last)
            if case.cold:
                close(name)
        array = source(run.folder, "walk", case.item_len, records)
        if seen != {checksum(array[batches(100 + i, records, count)[-1]])}:
            raise Wrong(f"gather {case.name}: the sides read different bytes")
        del array
    if not case.cold:
        for name in names:
            close(name)
    shutil.rmtree(path)
    for ours in (ZRFS, ZRFS_C):
        for peer, target in ((LOADERX, case.target), (NPY, case.take_target)):
            if peer in samples:
                run.results.add(case.name, "us/batch", ours, samples[ours], peer, samples[peer], target, rate=False)
