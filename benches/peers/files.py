"""Files: open, fstat, read and close of each file of a folder, in a mount of it and beside it."""

import itertools
import os
import shutil
from typing import NamedTuple

import numpy as np

from data import KIB, checksum, source
from mounts import (EROFS, FUSE_ZIP, PLAIN, RATARMOUNT, SQUASHFS, SQUASHFUSE, Kind, Mounted, Unavailable, available,
                    made, remove, zrfs)
from results import say
from sides import ZRFS, Wrong, in_turn

# These take part in every third round only, from the first on, and only in some readings: some of them take a second for what
# takes others a hundredth.
NOW_AND_THEN = [SQUASHFS, EROFS, SQUASHFUSE, RATARMOUNT, FUSE_ZIP]
EVERY = 3
THEIRS = [("random", 2), ("sequential", 1)]


class Case(NamedTuple):
    name: str
    ext: str
    # Bytes of correlated data, or None for pictures.
    item_len: int | None
    records: int
    # Target of cold random reads by two clients, beside plain files.
    cold_target: float


CASES = [
    Case("12 KiB", "bin", 12 * KIB, 10_000, 1),
    Case("110 kB JPEG", "jpg", None, 3_000, 1.8),
]


def measure(run):
    cold = os.geteuid() == 0 and not run.smoke
    if not cold and not run.smoke:
        run.leave_out("cold reads", "only root may drop the caches")
    with run.start(ZRFS) as sides:
        for case in run.cases(CASES):
            tree = run.path("files")
            records = run.records(case.records)
            if case.item_len is not None:
                walk(run, tree, case.item_len, records)
            elif not pictures(run, tree, records):
                continue
            Readings(run, sides[ZRFS], case, tree, records).measure(cold)
            remove(tree)


def walk(run, tree, item_len, records):
    """A folder of files of correlated bytes, named by their index."""
    os.mkdir(tree)
    for i, record in enumerate(source(run.folder, "walk", item_len, records)):
        with open(os.path.join(tree, f"{i:08}.bin"), "wb") as file:
            file.write(record)


def pictures(run, tree, records):
    """A folder of the JPEGs that pictures.py has made, if it has."""
    have = len(os.listdir(run.args.pictures)) if os.path.isdir(run.args.pictures) else 0
    if have < records:
        run.leave_out("JPEGs", f"{run.args.pictures} holds {have} of {records}: benches/peers/set_up.sh makes them")
        return False
    os.mkdir(tree)
    for i in range(records):
        name = f"{i:08}.jpg"
        shutil.copyfile(os.path.join(run.args.pictures, name), os.path.join(tree, name))
    return True


class Readings:
    """All readings of one folder."""

    def __init__(self, run, side, case, tree, records):
        self.run = run
        self.side = side
        self.case = case
        self.tree = tree
        self.records = records
        self.total = self.size = 0
        for i in range(records):
            data = np.fromfile(os.path.join(tree, f"{i:08}.{case.ext}"), np.uint8)
            self.size += len(data)
            self.total = (self.total + checksum(data) * (2 * i + 1)) % (1 << 64)
        self.samples = {}
        # With --quick random reads by two clients alone: the targets are for them.
        orders, clients = (("random",), (2,)) if run.quick else (("random", "sequential"), (1, 2))
        self.readings = list(itertools.product(orders, clients))

    def measure(self, cold):
        run, case = self.run, self.case
        say(f"files {case.name}: {self.records} files, {self.size / self.records / 1000:.0f} kB each")
        options = ["", "dataonly"] if run.args.mount_options is None else run.args.mount_options
        ours = [zrfs(run.args.zrfs, chosen) for chosen in options]
        kinds = [*ours, Kind(PLAIN), *available(run, NOW_AND_THEN)]
        self.images = {}
        for kind in list(kinds):
            try:
                self.images[kind.name] = made(run, kind, self.tree)
                with self.mounted(kind) as mount:
                    self.read(mount.where, "random", 1, 2, "check")
            except Unavailable as why:
                if kind in ours:
                    raise
                run.leave_out(kind.name, why)
                kinds.remove(kind)
        # Dirty pages are not dropped with the caches.
        os.sync()
        for i in run.rounds(lambda i: i % EVERY == 0):
            taking_part = [kind for kind in kinds if i % EVERY == 0 or kind.name not in NOW_AND_THEN]
            if cold:
                for kind in in_turn(taking_part, i):
                    self.read_cold(kind, i)
            for kind in in_turn(taking_part, i):
                self.read_warm(kind, i)
        for kind in ours:
            for peer in (peer for peer in kinds if peer not in ours):
                self.add(kind.name, peer.name, cold)

    def readings_of(self, kind):
        return [each for each in self.readings if kind.name not in NOW_AND_THEN or each in THEIRS]

    def mounted(self, kind):
        return Mounted(self.run, kind, self.images[kind.name], f"{0:08}.{self.case.ext}")

    def read(self, where, order, seed, clients, mode):
        """Files a second."""
        took, files, size, total = self.side.ask(
            "readfiles", where, self.case.ext, self.records, order, seed, clients, mode)
        if (files, size) != (self.records, self.size) or (mode == "check" and total != self.total):
            raise Wrong(f"files {self.case.name}: {where} holds other bytes than the source")
        return files / (took / 1e9)

    def note(self, kind, i, temperature, order, clients, where):
        rate = self.read(where, order, 1000 + i, clients, temperature)
        self.samples.setdefault((temperature, order, clients, kind.name), {})[i] = rate

    def read_cold(self, kind, i):
        for order, clients in self.readings_of(kind):
            # A mount of its own: pages that a daemon has mapped outlive the dropping of the caches.
            with self.mounted(kind) as mount:
                self.note(kind, i, "cold", order, clients, mount.where)

    def read_warm(self, kind, i):
        with self.mounted(kind) as mount:
            # Twice: the first reading of a file makes the kernel forget its attributes, where a mount can be written to.
            for seed in (1, 2):
                self.read(mount.where, "sequential", seed, 1, "warm")
            for order, clients in self.readings_of(kind):
                self.note(kind, i, "warm", order, clients, mount.where)

    def add(self, ours, peer, cold):
        for temperature in ("cold", "warm") if cold else ("warm",):
            for order, clients in self.readings:
                mine, theirs = (self.samples.get((temperature, order, clients, name), {}) for name in (ours, peer))
                # The rounds in which both took part.
                common = [i for i in mine if i in theirs]
                if not common:
                    continue
                self.run.results.add(
                    f"{self.case.name}, {temperature}, {order}, {clients} client{'s' * (clients > 1)}", "files/s",
                    ours, [mine[i] for i in common], peer, [theirs[i] for i in common],
                    self.target(ours, peer, temperature, order, clients))

    def target(self, ours, peer, temperature, order, clients):
        """What is wanted of a ratio: of random reads by two clients."""
        dataonly = "dataonly" in ours
        if order == "random" and temperature == "cold" and clients == 2:
            if peer == SQUASHFS:
                return 5
            if peer == PLAIN:
                return max(self.case.cold_target, 1.3) if dataonly else self.case.cold_target
        if order == "random" and temperature == "warm" and clients == 2 and peer == PLAIN:
            return 0.7 if dataonly else 0.2
        return None
