"""Gather: batches of random records into memory that is kept."""

import shutil
from typing import NamedTuple

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
    target: float | None
    take_target: float | None


CASES = [
    Case("8 B raw", "raw", 8, 1_000_000, 400, 20, 0.8),
    Case("3 KiB raw", "raw", 3 * KIB, 40_000, 100, 2, 0.8),
    Case("12 KiB raw", "raw", 12 * KIB, 20_000, 50, 1.2, 0.8),
    Case("150 KiB raw", "raw", 150 * KIB, 2_000, 10, None, 0.8),
    # Stored raw, as Deflate makes it longer: both libraries do that.
    Case("8 B Deflate", "flate", 8, 1_000_000, 400, 20, None),
    Case("3 KiB Deflate", "flate", 3 * KIB, 40_000, 20, 3, None),
    Case("12 KiB Deflate", "flate", 12 * KIB, 20_000, 8, 3, None),
    Case("150 KiB Deflate", "flate", 150 * KIB, 2_000, 2, 3, None),
]


def measure(run):
    with run.start(ZRFS, ZRFS_C, LOADERX) as sides:
        for case in run.cases(CASES):
            measure_case(run, sides, case)


def measure_case(run, sides, case):
    records, count = run.records(case.records), run.times(case.count)
    say(f"gather {case.name}: {records} records")
    array = source(run.folder, "walk", case.item_len, records)
    path = run.path("gather.zr")
    writer = sides[run.args.writer]
    if writer.name == ZRFS_C:
        sides[ZRFS].ask("create", path)
    writer.ask("load", array.filename, array.offset, array.nbytes)
    writer.ask("append", path, case.codec, case.item_len, max(1, 64 * MIB // case.item_len))
    writer.ask("load", array.filename, array.offset, 0)
    size, deflated = stored(path)
    say(f"  stored {size / array.nbytes:.3f} of {array.nbytes / MIB:.0f} MiB, {deflated} records as Deflate")

    sums = [checksum(array[batch]) for batch in batches(11, records, count)]
    for side in sides.values():
        if side.ask("open", path) != [records]:
            raise Wrong(f"gather {case.name}: {side.name} sees another number of records")
        expect(f"gather {case.name} by {side.name}", side.ask("check", case.item_len, BATCH, count, 11), sums)

    def by(side):
        return lambda seed: side.ask("gather", case.item_len, BATCH, count, seed)

    runs = {name: by(side) for name, side in sides.items()}
    if case.codec == "raw":
        npy = Npy(case.codec)
        npy.open(array.filename.removesuffix(".npy"))
        runs[NPY] = lambda seed: timed(npy.gather, batches(seed, records, count))
    samples = {name: [] for name in runs}
    for i in run.rounds():
        seen = {}
        for name in in_turn(runs, i):
            nanoseconds, seen[name] = runs[name](100 + i)
            samples[name].append(nanoseconds / count / 1000)
        if set(seen.values()) != {checksum(array[batches(100 + i, records, count)[-1]])}:
            raise Wrong(f"gather {case.name}: the sides read different bytes")
    for side in sides.values():
        side.ask("close")
    shutil.rmtree(path)
    for ours in (ZRFS, ZRFS_C):
        for peer, target in ((LOADERX, case.target), (NPY, case.take_target)):
            if peer in samples:
                run.results.add(case.name, "us/batch", ours, samples[ours], peer, samples[peer], target, rate=False)

