"""Loaders: endless batches of two aligned streams, data and labels."""

import contextlib
import shutil
from typing import NamedTuple

import numpy as np

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


CASES = [
    Case("3 KiB raw", "raw", 3 * KIB, 40_000, 1000, 1),
    Case("12 KiB raw", "raw", 12 * KIB, 20_000, 400, 1),
    Case("3 KiB Deflate", "flate", 3 * KIB, 40_000, 100, 3),
    Case("12 KiB Deflate", "flate", 12 * KIB, 20_000, 40, 3),
]


def measure(run):
    for case in run.cases(CASES):
        measure_case(run, case)


def prepare(run, case, records):
    """The stores of data and labels, and what each of their first batches sums up to."""
    array = source(run.folder, "walk", case.item_len, records)
    labels = np.arange(records, dtype=np.int64)
    np.save(run.path("labels.npy"), labels)
    data_path, label_path = run.path("data.zr"), run.path("label.zr")
    with run.start(LOADERX) as sides:
        sides[LOADERX].ask("write", data_path, array.filename, case.codec)
        sides[LOADERX].ask("write", label_path, run.path("labels.npy"), case.codec)
        indices = np.array(sides[LOADERX].ask("indices", IID, records, SEED, AHEAD)).reshape(AHEAD, BATCH)
    return data_path, label_path, [(checksum(array[batch]), checksum(labels[batch])) for batch in indices]


def measure_case(run, case):
    records, steps = run.records(case.records), run.times(case.steps)
    say(f"loader {case.name}: {records} records")
    data_path, label_path, batches = prepare(run, case, records)
    with contextlib.ExitStack() as stack:
        # A loader of loaderx can't be closed, only its process can: each has one of its own.
        loaders = {}
        for name, (program, workers, prefetch) in LOADERS.items():
            loaders[name] = stack.enter_context(run.start(program))[program]
            loaders[name].ask("stream", data_path, label_path, workers, prefetch, SEED)
            seen = pairs(loaders[name].ask("batchsums", CHECKED))
            if program == ZRFS:
                expect(f"loader {case.name} by {name}", seen, batches[:CHECKED])
                continue
            # loaderx's workers deliver in any order.
            if len(set(seen)) != len(seen) or not set(seen) <= set(batches):
                raise Wrong(f"loader {case.name} by {name}: what was read differs from its source")
            with run.start(program) as one_worker:
                one_worker[program].ask("stream", data_path, label_path, 1, 1, SEED)
                expect(f"loader {case.name} by {name}, 1 worker",
                       pairs(one_worker[program].ask("batchsums", CHECKED)), batches[:CHECKED])
        samples = {name: [] for name in loaders}
        for i in run.rounds():
            for name in in_turn(loaders, i):
                nanoseconds, = loaders[name].ask("batches", BEFORE, steps)
                samples[name].append(steps / (nanoseconds / 1e9))
    for path in (data_path, label_path):
        shutil.rmtree(path)
    for ours in (ZRFS, FOUR_WORKERS, ZRFS_C):
        run.results.add(case.name, "batches/s", ours, samples[ours], LOADERX, samples[LOADERX], case.target)


def pairs(numbers):
    return list(zip(numbers[::2], numbers[1::2], strict=True))
