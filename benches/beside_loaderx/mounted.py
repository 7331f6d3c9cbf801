"""Mounted reads: open, fstat, read and close of files in a mount, beside plain files."""

import contextlib
import os
import shutil
import subprocess
from typing import NamedTuple

import numpy as np

from data import KIB, MIB, checksums, source
from results import say
from sides import ZRFS, Wrong, in_turn

PLAIN = "plain files"


class Case(NamedTuple):
    name: str
    codec: str
    data: str
    item_len: int
    records: int
    # Target of cold reads by two clients.
    cold_target: float


CASES = [
    Case("12 KiB Deflate", "flate", "walk", 12 * KIB, 20_000, 1),
    Case("110 kB raw", "raw", "noise", 110_000, 6_000, 1.8),
]


def is_mounted(mount_point):
    escaped = mount_point
    for char in "\\ \t\n":
        escaped = escaped.replace(char, f"\\{ord(char):03o}")
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
        return any(line.split(" ")[4] == escaped for line in lines)


@contextlib.contextmanager
def mounted(zrfs, store, folder, options):
    """The mount's `records` directory, while the mount lasts."""
    mount_point = os.path.join(folder, "mount")
    os.makedirs(mount_point, exist_ok=True)
    # A file, as a pipe would stay open for as long as the daemon lives.
    with open(os.path.join(folder, "mount.log"), "w+", encoding="utf-8") as log:
        try:
            command = [zrfs, "mount", store, mount_point] + (["-o", options] if options else [])
            if subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False).returncode:
                log.seek(0)
                raise Wrong(f"{' '.join(command)}: {log.read().strip()}")
            yield os.path.join(mount_point, "records")
        finally:
            # Each further way is for the case that the one before failed.
            for command in ([zrfs, "umount"], ["fusermount3", "-u", "-z"], ["umount", "-l"]):
                if not is_mounted(mount_point):
                    break
                with contextlib.suppress(OSError):
                    subprocess.run(command + [mount_point], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                   check=False)


def measure(run):
    cold = os.geteuid() == 0 and not run.smoke
    if not cold and not run.smoke:
        say("cold reads are left out: only root may drop the caches")
    with run.start(ZRFS) as sides:
        for case in CASES:
            measure_case(run, sides[ZRFS], case, cold)


def measure_case(run, side, case, cold):
    records = run.records(case.records)
    say(f"mounted reads {case.name}: {records} files")
    array = source(run.folder, case.data, case.item_len, records)
    store, plain = run.path("mounted.zr"), run.path("plain")
    # Without a schema the mount shows a record's own bytes, so the plain files are the same to the byte.
    side.ask("load", array.filename, array.offset, array.nbytes)
    side.ask("append", store, case.codec, case.item_len, max(1, 64 * MIB // case.item_len))
    side.ask("load", array.filename, array.offset, 0)
    os.mkdir(plain)
    for i, record in enumerate(array):
        with open(os.path.join(plain, f"{i:08}.bin"), "wb") as file:
            file.write(record)
    reader = Reader(side, case, array)
    reader.read(plain, 1, 2, "check")
    for options in run.args.mount_options or [""]:
        with mounted(run.args.zrfs, store, run.folder, options) as where:
            reader.read(where, 1, 2, "check")
        measure_options(run, reader, store, plain, options, cold)
    shutil.rmtree(plain)
    shutil.rmtree(store)


class Reader:
    """Reads all files of a folder and checks what can be checked in that mode."""

    def __init__(self, side, case, array):
        self.side = side
        self.case = case
        self.records = len(array)
        sums = np.concatenate([checksums(array[at:at + 1024]) for at in range(0, self.records, 1024)])
        with np.errstate(over="ignore"):
            factors = 2 * np.arange(self.records, dtype=np.uint64) + np.uint64(1)
            self.total = int((sums * factors).sum(dtype=np.uint64))

    def read(self, where, seed, clients, mode):
        """Files a second."""
        took, files, size, total = self.side.ask("readfiles", where, "bin", self.records, seed, clients, mode)
        whole = (files, size) == (self.records, self.records * self.case.item_len)
        if not whole or (mode == "check" and total != self.total):
            raise Wrong(f"mounted reads {self.case.name}: {where} holds other bytes than the source")
        return files / (took / 1e9)


def measure_options(run, reader, store, plain, options, cold):
    """One kind of mount beside plain files."""
    samples = {}

    def note(temperature, clients, which, i, path):
        samples.setdefault((temperature, clients, which), []).append(
            reader.read(path, 1000 + i, clients, temperature))

    for i in range(run.rounds):
        for clients in (1, 2) if cold else ():
            for which in in_turn([ZRFS, PLAIN], i):
                # A mount of its own: pages that a daemon has mapped outlive the dropping of the caches.
                fresh = mounted(run.args.zrfs, store, run.folder, options)
                with fresh if which == ZRFS else contextlib.nullcontext(plain) as path:
                    # Dirty pages are not dropped.
                    os.sync()
                    note("cold", clients, which, i, path)
        with mounted(run.args.zrfs, store, run.folder, options) as where:
            paths = {ZRFS: where, PLAIN: plain}
            for path in paths.values():
                reader.read(path, 1, 1, "warm")
            for clients in (1, 2):
                # A warm pass is short: three pairs a round.
                for j in range(3 * i, 3 * i + 3):
                    for which in in_turn([ZRFS, PLAIN], j):
                        note("warm", clients, which, j, paths[which])
    dataonly = "dataonly" in options.split(",")
    label = f"{reader.case.name}, -o {options}" if options else reader.case.name
    for temperature in ("cold", "warm") if cold else ("warm",):
        for clients in (1, 2):
            if temperature == "warm":
                target = 0.7 if dataonly else 0.2
            elif clients == 2:
                target = max(reader.case.cold_target, 1.3) if dataonly else reader.case.cold_target
            else:
                target = None
            run.results.add(f"{temperature}, {clients} client{'s' * (clients > 1)}, {label}", "files/s", ZRFS,
                            samples[temperature, clients, ZRFS], PLAIN, samples[temperature, clients, PLAIN], target)
