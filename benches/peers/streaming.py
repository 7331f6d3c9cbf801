"""Endless batches through a mount, read as a file, beside loaderx's loader."""

import os
import time
from contextlib import closing

import numpy as np

import caches
from data import BATCH, MIB, checksum
from loader import BEFORE, CHECKED, SEED, check, first_batches, measure_cases
from mounts import Mounted, servers, zrfs
from sides import LOADERX, Wrong, expect, in_turn

MOUNT = "mount"
# A mount's batches are data alone, and so are those of loaderx here. Its defaults: 4 workers, 4 batches ahead.
NO_LABELS = ""
WORKERS = (4, 4)
TICK = os.sysconf("SC_CLK_TCK")


class Stream:
    """A reader of `batch`: a MiB a request, always into the same memory."""

    def __init__(self, mount, case):
        self.file = os.open(os.path.join(mount.point, "batch"), os.O_RDONLY)
        self.batch = BATCH * case.item_len
        self.buffer = bytearray(MIB)

    def read(self, size, sink=None):
        view = memoryview(self.buffer)
        while size:
            n = os.readv(self.file, [view[:min(size, MIB)]])
            if n == 0:
                raise Wrong("an endless file has ended")
            if sink is not None:
                sink += view[:n]
            size -= n

    def skip(self, batches):
        self.read(batches * self.batch)

    def sums(self, batches):
        """The checksum of each of the next batches."""
        sums = []
        for _ in range(batches):
            got = bytearray()
            self.read(self.batch, got)
            sums.append(checksum(np.frombuffer(got, np.uint8)))
        return sums

    def close(self):
        os.close(self.file)


def processor_time(mount_point):
    """Seconds of this process and of the daemon that serves a mount."""
    ticks = 0
    for pid in servers(mount_point):
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / TICK + time.process_time()


def measure(run):
    measure_cases(run, "streaming", measure_warm, measure_cold)


def mounted(run, data_path):
    return Mounted(run, zrfs(run.args.zrfs, f"seed={SEED}", ""), data_path)


def measure_warm(run, case, data_path, _, batches):
    batches = [data for data, _ in batches]
    steps = run.times(case.steps)
    with run.start(LOADERX) as sides, mounted(run, data_path) as mount, closing(Stream(mount, case)) as ours:
        theirs = sides[LOADERX]
        theirs.ask("stream", data_path, NO_LABELS, *WORKERS, SEED)
        check(f"streaming {case.name} by {LOADERX}", LOADERX, theirs.ask("batchsums", CHECKED), batches)
        expect(f"streaming {case.name} by {MOUNT}", ours.sums(CHECKED), batches[:CHECKED])
        samples = {MOUNT: [], LOADERX: []}
        busy = []
        for i in run.rounds():
            for name in in_turn(samples, i):
                if name == LOADERX:
                    nanoseconds, = theirs.ask("batches", BEFORE, steps)
                else:
                    ours.skip(BEFORE)
                    before, begin = processor_time(mount.point), time.perf_counter_ns()
                    ours.skip(steps)
                    nanoseconds = time.perf_counter_ns() - begin
                    busy.append((processor_time(mount.point) - before) / (nanoseconds / 1e9))
                samples[name].append(steps / (nanoseconds / 1e9))
    add(run, case.name, samples, case.target)
    run.results.add(f"{case.name}, cores busy", "cores", MOUNT, busy)


def measure_cold(run, case, data_path, _, batches):
    batches = [data for data, _ in batches]
    samples = {MOUNT: [], LOADERX: []}
    for i in run.rounds():
        for name in in_turn(samples, i):
            # A process or a mount each: what one has mapped would stay in memory.
            if name == LOADERX:
                with run.start(LOADERX) as sides:
                    caches.drop()
                    rate = first_batches(sides[LOADERX], case.cold, data_path, NO_LABELS, *WORKERS)
                    check(f"streaming {case.name} by {LOADERX}", LOADERX, sides[LOADERX].ask("batchsums", CHECKED),
                          batches)
            else:
                with mounted(run, data_path) as mount:
                    caches.drop()
                    begin = time.perf_counter_ns()
                    with closing(Stream(mount, case)) as ours:
                        ours.skip(case.cold)
                        rate = case.cold / ((time.perf_counter_ns() - begin) / 1e9)
                        expect(f"streaming {case.name} by {MOUNT}", ours.sums(CHECKED),
                               batches[case.cold:case.cold + CHECKED])
            samples[name].append(rate)
    add(run, f"{case.name}, cold", samples)


def add(run, measure, samples, target=None):
    run.results.add(measure, "batches/s", MOUNT, samples[MOUNT], LOADERX, samples[LOADERX], target)
