"""Append: all records into a new store."""

import os
import shutil
from typing import NamedTuple

from data import BATCH, KIB, MIB, checksum, source, stored
from results import say
from sides import LOADERX, ZRFS, ZRFS_C, Wrong, expect, in_turn


class Case(NamedTuple):
    name: str
    codec: str
    item_len: int
    records: int
    # Records a call.
    step: int
    target: float
    size_target: float | None


# 4096 records of 12 KiB a call is what loaderx's own benchmark does; the other calls are of as many bytes.
CASES = [
    Case("8 B raw", "raw", 8, 500_000, 500_000, 10, None),
    Case("3 KiB raw", "raw", 3 * KIB, 40_000, 16384, 1, None),
    Case("12 KiB raw", "raw", 12 * KIB, 20_000, 4096, 1, None),
    Case("150 KiB raw", "raw", 150 * KIB, 2_000, 327, 1, None),
    Case("3 KiB Deflate", "flate", 3 * KIB, 20_000, 16384, 2, 1.02),
    Case("12 KiB Deflate", "flate", 12 * KIB, 10_000, 4096, 2, 1.02),
    Case("150 KiB Deflate", "flate", 150 * KIB, 1_000, 327, 2, 1.02),
]
# Records of a source: the same files as for gather, of which a case takes the first.
SOURCES = {8: 1_000_000, 3 * KIB: 40_000, 12 * KIB: 20_000, 150 * KIB: 2_000}


def measure(run):
    with run.start(ZRFS, ZRFS_C, LOADERX) as sides:
        for case in run.cases(CASES):
            measure_case(run, sides, case)


def measure_case(run, sides, case):
    records = run.records(case.records)
    say(f"append {case.name}: {records} records")
    mapped = source(run.folder, "walk", case.item_len, run.records(SOURCES[case.item_len]))
    array = mapped[:records]
    paths = {name: run.path(f"append-{number}.zr") for number, name in enumerate(sides)}
    for side in sides.values():
        side.ask("load", mapped.filename, mapped.offset, array.nbytes)
    speed, durable, sizes = ({name: [] for name in sides} for _ in range(3))

    def append(name):
        if name == ZRFS_C:
            # loaderx creates a store when it opens it, before its clock starts; our library by the first append.
            sides[ZRFS].ask("create", paths[name])
        # What the one before left to write back is not this one's.
        os.sync()
        return sides[name].ask("append", paths[name], case.codec, case.item_len, case.step)

    for name in sides:
        append(name)
    check(sides, paths, array)
    for path in paths.values():
        shutil.rmtree(path)
    for i in run.rounds():
        for name in in_turn(sides, i):
            appended, synced = append(name)
            speed[name].append(array.nbytes / MIB / (appended / 1e9))
            durable[name].append(array.nbytes / MIB / ((appended + synced) / 1e9))
            sizes[name].append(stored(paths[name])[0] / array.nbytes)
            # At once, so that the next one gets the same memory: a virtual machine gives back to its host what was free for
            # seconds, and whoever takes it again waits.
            shutil.rmtree(paths[name])
    for side in sides.values():
        side.ask("load", mapped.filename, mapped.offset, 0)
    for ours in (ZRFS, ZRFS_C):
        run.results.add(case.name, "MiB/s", ours, speed[ours], LOADERX, speed[LOADERX], case.target)
        run.results.add(f"{case.name}, and sync", "MiB/s", ours, durable[ours], LOADERX, durable[LOADERX])
        if case.size_target:
            run.results.add(f"{case.name}, stored size", "of source", ours, sizes[ours], LOADERX, sizes[LOADERX],
                            case.size_target, at_most=True)


def check(sides, paths, array):
    """Each side reads the stores that all of them wrote, whole."""
    records, item_len = array.shape
    sums = [checksum(array[at:at + BATCH]) for at in range(0, records, BATCH)]
    for reader in sides.values():
        for writer, path in paths.items():
            if reader.ask("open", path) != [records]:
                raise Wrong(f"append: {reader.name} sees another number of records than {writer} wrote")
            expect(f"append: the store of {writer} by {reader.name}", reader.ask("whole", item_len, BATCH), sums)
            reader.ask("close")
