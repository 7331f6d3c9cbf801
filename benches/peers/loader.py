"""Loaders: endless batches of two aligned streams, data and labels."""

import contextlib
import shutil
from typing import NamedTuple

import numpy as np

import caches
from data import BATCH, KIB, checksum, source
from results import say
from sides import LOADERX, ZRFS, ZRFS_C, Wrong, expect, in_turn

SEED = 42
IID = 1
# Batches before the clock starts: more than any loader has ahead while it waits.
BEFORE = 16
# Batches that are checked, and how far ahead of their place they may come where workers don't keep the order.
CHECKED = 16
AHEAD = 64

FOUR_WORKERS = "zrfs, 4 workers"
# Side, workers, batches ahead. loaderx's defaults are 4 and 4; those of zrfs are 0 here.
LOADERS = {
    ZRFS: (ZRFS, 0, 0),
    FOUR_WORKERS: (ZRFS, 4, 4),
    ZRFS_C: (ZRFS_C, 4, 4),
    LOADERX: (LOADERX, 4, 4),
}


class Case(NamedTuple):
    name: str
    codec: str
    item_len: int
    records: int
    # Batches in a timing.
    steps: int
    target: float
    # The first batches after a start with nothing in memory, so many; none if 0.
    cold: int = 0


CASES = [
    Case("3 KiB raw", "raw", 3 * KIB, 40_000, 1000, 1),
    Case("12 KiB raw", "raw", 12 * KIB, 20_000, 400, 1, 20),
    Case("3 KiB Deflate", "flate", 3 * KIB, 40_000, 100, 3),
    Case("12 KiB Deflate", "flate", 12 * KIB, 20_000, 40, 3, 20),
]


def measure(run):
    measure_cases(run, "loader", measure_warm, measure_cold)


def measure_cases(run, subject, warm, cold):
    """Each case, warm and cold, from the same stores; cold after all that has them open has ended."""
    drop = caches.droppable(run, subject)
    for case in run.cases(CASES):
        say(f"{subject} {case.name}: {run.records(case.records)} records")
        data_path, label_path, batches = prepare(run, case)
        for way, part in run.part.shares([warm, cold] if drop and case.cold else [warm]):
            if part is None:
                run.leave_out(f"{subject}, {case.name}, cold", "no time is left")
                continue
            run.part = part
            way(run, case, data_path, label_path, batches)
        still_whole(run, f"{subject} {case.name}", case.item_len, data_path)
        for path in (data_path, label_path):
            shutil.rmtree(path)


def still_whole(run, what, item_len, path):
    """After all that was timed: the store holds what it did before."""
    with run.start(ZRFS) as sides:
        records, = sides[ZRFS].ask("open", path)
        array = source(run.folder, "walk", item_len, records)
        sums = [checksum(array[at:at + BATCH]) for at in range(0, records, BATCH)]
        expect(f"{what}, the store", sides[ZRFS].ask("whole", item_len, BATCH), sums)


def prepare(run, case):
    """The stores of data and labels, and what each of their first batches sums up to."""
    records = run.records(case.records)
    array = source(run.folder, "walk", case.item_len, records)
    labels = np.arange(records, dtype=np.int64)
    np.save(run.path("labels.npy"), labels)
    data_path, label_path = run.path("data.zr"), run.path("label.zr")
    with run.start(LOADERX) as sides:
        sides[LOADERX].ask("write", data_path, array.filename, case.codec)
        sides[LOADERX].ask("write", label_path, run.path("labels.npy"), case.codec)
        indices = np.array(sides[LOADERX].ask("indices", IID, records, SEED, AHEAD)).reshape(AHEAD, BATCH)
    return data_path, label_path, [(checksum(array[batch]), checksum(labels[batch])) for batch in indices]


def measure_warm(run, case, data_path, label_path, batches):
    steps = run.times(case.steps)
    with contextlib.ExitStack() as stack:
        # A loader of loaderx can't be closed, only its process can: each has one of its own.
        loaders = {}
        for name, (program, workers, prefetch) in LOADERS.items():
            loaders[name] = stack.enter_context(run.start(program))[program]
            loaders[name].ask("stream", data_path, label_path, workers, prefetch, SEED)
            seen = pairs(loaders[name].ask("batchsums", CHECKED))
            check(f"loader {case.name} by {name}", program, seen, batches)
            if program == ZRFS:
                continue
            with run.start(program) as one_worker:
                one_worker[program].ask("stream", data_path, label_path, 1, 1, SEED)
                expect(f"loader {case.name} by {name}, 1 worker",
                       pairs(one_worker[program].ask("batchsums", CHECKED)), batches[:CHECKED])
        samples = {name: [] for name in loaders}
        for i in run.rounds():
            for name in in_turn(loaders, i):
                nanoseconds, = loaders[name].ask("batches", BEFORE, steps)
                samples[name].append(steps / (nanoseconds / 1e9))
    add(run, case.name, samples, case.target)


def measure_cold(run, case, data_path, label_path, batches):
    samples = {name: [] for name in LOADERS}
    for i in run.rounds():
        for name in in_turn(LOADERS, i):
            program, workers, prefetch = LOADERS[name]
            # A process each: what a loader has mapped would stay in memory, and one of loaderx can't be closed.
            with run.start(program) as sides:
                caches.drop()
                samples[name].append(first_batches(sides[program], case.cold, data_path, label_path, workers, prefetch))
                seen = pairs(sides[program].ask("batchsums", CHECKED))
                check(f"loader {case.name} by {name}", program, seen, batches, case.cold)
    add(run, f"{case.name}, cold", samples)


def first_batches(side, steps, *loader):
    """Batches a second, from the start of a loader on."""
    start, = side.ask("stream", *loader, SEED)
    nanoseconds, = side.ask("batches", 0, steps)
    return steps / ((start + nanoseconds) / 1e9)


def check(what, program, seen, batches, first=0):
    """Whether what was seen are these batches, from the first one on; loaderx's workers deliver them in any order."""
    if program == ZRFS:
        expect(what, seen, batches[first:first + len(seen)])
    elif len(set(seen)) != len(seen) or not set(seen) <= set(batches):
        raise Wrong(f"{what}: what was read differs from its source")


def add(run, measure, samples, target=None):
    for ours in (ZRFS, FOUR_WORKERS, ZRFS_C):
        run.results.add(measure, "batches/s", ours, samples[ours], LOADERX, samples[LOADERX], target)


def pairs(numbers):
    return list(zip(numbers[::2], numbers[1::2], strict=True))
