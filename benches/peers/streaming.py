"""Endless batches through a mount, read as a file, beside loaderx's loader."""

import os
import shutil
import time

import numpy as np

from data import BATCH, MIB, checksum
from loader import BEFORE, CASES, CHECKED, SEED, pairs, prepare
from mounts import Mounted, servers, zrfs
from results import say
from sides import LOADERX, Wrong, expect, in_turn

MOUNT = "mount"
TICK = os.sysconf("SC_CLK_TCK")


class Stream:
    """A reader of `batch`: a MiB a request, always into the same memory."""

    def __init__(self, path, item_len):
        self.file = os.open(path, os.O_RDONLY)
        self.batch = BATCH * item_len
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

    def whole(self):
        got = bytearray()
        self.read(self.batch, got)
        return got

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
    for case in run.cases(CASES):
        measure_case(run, case)


def measure_case(run, case):
    records, steps = run.records(case.records), run.times(case.steps)
    say(f"streaming {case.name}: {records} records")
    data_path, label_path, batches = prepare(run, case, records)
    with run.start(LOADERX) as sides, Mounted(run, zrfs(run.args.zrfs, f"seed={SEED}", ""), data_path) as mount:
        theirs = sides[LOADERX]
        theirs.ask("stream", data_path, label_path, 4, 4, SEED)
        seen = pairs(theirs.ask("batchsums", CHECKED))
        if not set(seen) <= set(batches):
            raise Wrong(f"streaming {case.name} by {LOADERX}: what was read differs from its source")
        ours = Stream(os.path.join(mount.point, "batch"), case.item_len)
        sums = [checksum(np.frombuffer(ours.whole(), np.uint8)) for _ in range(CHECKED)]
        expect(f"streaming {case.name} by {MOUNT}", sums, [data for data, _ in batches[:CHECKED]])
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
        ours.close()
    for path in (data_path, label_path):
        shutil.rmtree(path)
    run.results.add(case.name, "batches/s", MOUNT, samples[MOUNT], LOADERX, samples[LOADERX], case.target)
    run.results.add(f"{case.name}, cores busy", "cores", MOUNT, busy)
