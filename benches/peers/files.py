"""Files: open, fstat, read and close of each file of a folder, in a mount of it and beside it."""

import itertools
import os
import shutil
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from data import KIB, checksum, source
from mounts import (EROFS, FUSE_ZIP, PLAIN, RATARMOUNT, SQUASHFS, SQUASHFUSE, Kind, Mounted, Unavailable, available,
                    made, mountable, remove, zrfs)
from results import say
from sides import ZRFS, Wrong, in_turn

# Order and number of clients. The targets are for the first.
FIRST = [("random", 2)]
SOME = [*FIRST, ("sequential", 1)]
ALL = list(itertools.product(("random", "sequential"), (1, 2)))

# These take part in every other round only, from the first on, and only in some readings: some of them take a second for
# what takes others a hundredth.
NOW_AND_THEN = {SQUASHFS: SOME, EROFS: SOME, SQUASHFUSE: SOME, RATARMOUNT: FIRST, FUSE_ZIP: FIRST}
EVERY = 2

CLIP_ART = "/usr/share/openclipart/png"


class Case(NamedTuple):
    name: str
    # Fills a new folder.
    fill: Callable
    readings: list
    # Of the subject's time.
    weight: int
    # Target of cold random reads by two clients, beside plain files; without one there is no target at all.
    cold_target: float | None = None


CASES = [
    Case("12 KiB", lambda run, tree: walk(run, tree, 12 * KIB, run.records(10_000)), ALL, 5, 1),
    Case("110 kB JPEG", lambda run, tree: pictures(run, tree, run.records(3_000)), ALL, 3, 1.8),
    Case("3 KiB", lambda run, tree: walk(run, tree, 3 * KIB, run.records(10_000)), SOME, 1),
    Case("8 B", lambda run, tree: walk(run, tree, 8, run.records(10_000)), SOME, 1),
    Case("openclipart", lambda run, tree: clip_art(tree, whole=not (run.quick or run.smoke)), SOME, 1),
]


def measure(run):
    cold = os.geteuid() == 0 and not run.smoke
    if not cold and not run.smoke:
        run.leave_out("cold reads", "only root may drop the caches")
    with run.start(ZRFS) as sides:
        for case in run.cases(CASES, lambda case: case.weight):
            tree = run.path("files")
            try:
                case.fill(run, tree)
            except Unavailable as why:
                run.leave_out(f"files, {case.name}", why)
                continue
            Readings(run, sides[ZRFS], case, tree).measure(cold)
            remove(tree)


def walk(run, tree, item_len, records):
    """A folder of files of correlated bytes, named by their index."""
    os.mkdir(tree)
    for i, record in enumerate(source(run.folder, "walk", item_len, records)):
        with open(os.path.join(tree, f"{i:08}.bin"), "wb") as file:
            file.write(record)


def pictures(run, tree, records):
    """A folder of the JPEGs that pictures.py has made."""
    have = len(os.listdir(run.args.pictures)) if os.path.isdir(run.args.pictures) else 0
    if have < records:
        raise Unavailable(f"{run.args.pictures} holds {have} of {records}: benches/peers/set_up.sh makes them")
    os.mkdir(tree)
    for i in range(records):
        name = f"{i:08}.jpg"
        shutil.copyfile(os.path.join(run.args.pictures, name), os.path.join(tree, name))


def clip_art(tree, whole):
    """The openclipart tree, folders in folders, or the first of these alone; links become what they point to."""
    if not os.path.isdir(CLIP_ART):
        raise Unavailable(f"no {CLIP_ART}: apt-get install openclipart-png")
    shutil.copytree(CLIP_ART if whole else os.path.join(CLIP_ART, min(os.listdir(CLIP_ART))), tree)


class Files:
    """All files of a folder, as they have to be read wherever the folder is shown."""

    def __init__(self, run, side, what, tree):
        self.side = side
        self.what = what
        # Folder by folder, each in the order of its names.
        self.names = [os.path.relpath(os.path.join(where, name), tree)
                      for where, _, names in sorted(os.walk(tree)) for name in sorted(names)]
        self.list = run.path("files.list")
        with open(self.list, "w", encoding="utf-8") as file:
            file.writelines(f"{name}\n" for name in self.names)
        self.size = self.total = 0
        for i, name in enumerate(self.names):
            data = np.fromfile(os.path.join(tree, name), np.uint8)
            self.size += len(data)
            self.total = (self.total + checksum(data) * (2 * i + 1)) % (1 << 64)

    def read(self, where, order, seed, clients, mode):
        """Files a second."""
        took, files, size, total = self.side.ask("readfiles", where, self.list, order, seed, clients, mode)
        if (files, size) != (len(self.names), self.size) or (mode == "check" and total != self.total):
            raise Wrong(f"{self.what}: {where} holds other bytes than the source")
        return files / (took / 1e9)

    def check(self, where):
        """Reads all and compares it with the source."""
        self.read(where, "sequential", 1, 2, "check")


class Readings:
    """All readings of one folder."""

    def __init__(self, run, side, case, tree):
        self.run = run
        self.case = case
        self.tree = tree
        self.files = Files(run, side, f"files {case.name}", tree)
        self.samples = {}
        self.readings = FIRST if run.quick else case.readings

    def measure(self, cold):
        run, case, files = self.run, self.case, self.files
        say(f"files {case.name}: {len(files.names)} files, {files.size / len(files.names) / 1000:.3g} kB each")
        options = ["", "dataonly"] if run.args.mount_options is None else run.args.mount_options
        ours = [zrfs(run.args.zrfs, chosen) for chosen in options]
        # An image and its first mount take longer than to read little data from it.
        peers = [SQUASHFS] if (run.quick or run.smoke) and case != CASES[0] else NOW_AND_THEN
        kinds = mountable(run, [*ours, Kind(PLAIN), *available(run, peers)], self.tree, files.names[0],
                          lambda mount: files.check(mount.where))
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
        return [each for each in self.readings if each in NOW_AND_THEN.get(kind.name, ALL)]

    def mounted(self, kind):
        return Mounted(self.run, kind, made(self.run, kind, self.tree), self.files.names[0])

    def note(self, kind, i, temperature, order, clients, where):
        rate = self.files.read(where, order, 1000 + i, clients, temperature)
        self.samples.setdefault((temperature, order, clients, kind.name), {})[i] = rate

    def read_cold(self, kind, i):
        for order, clients in self.readings_of(kind):
            # A mount of its own: pages that a daemon has mapped outlive the dropping of the caches.
            with self.mounted(kind) as mount:
                self.note(kind, i, "cold", order, clients, mount.where)
                self.check(kind, i, mount.where)

    def read_warm(self, kind, i):
        with self.mounted(kind) as mount:
            # Twice where a mount can be written to: there the first reading of a file makes the kernel forget its attributes.
            for seed in (1,) if kind.name in NOW_AND_THEN else (1, 2):
                self.files.read(mount.where, "sequential", seed, 2, "warm")
            for order, clients in self.readings_of(kind):
                self.note(kind, i, "warm", order, clients, mount.where)
            self.check(kind, i, mount.where)

    def check(self, kind, i, where):
        """What was timed, in the same mount, where it is still in memory; of slow peers once a kind of reading."""
        if i == 0 or kind.name not in NOW_AND_THEN:
            self.files.check(where)

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
        if self.case.cold_target is None:
            return None
        dataonly = "dataonly" in ours
        if order == "random" and temperature == "cold" and clients == 2:
            if peer == SQUASHFS:
                return 5
            if peer == PLAIN:
                return max(self.case.cold_target, 1.3) if dataonly else self.case.cold_target
        if order == "random" and temperature == "warm" and clients == 2 and peer == PLAIN:
            return 0.7 if dataonly else 0.2
        return None
