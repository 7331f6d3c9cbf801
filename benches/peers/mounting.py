"""Mounting: time to the first answer and to the end, and the daemon's memory."""

import os

from data import KIB
from files import walk
from mounts import (EROFS, FUSE_ZIP, RATARMOUNT, SQUASHFS, SQUASHFUSE, Mounted, Unavailable, available, made, remove,
                    zrfs)
from results import say
from sides import ZRFS, Wrong, in_turn

RECORDS = 20_000


def measure(run):
    tree = run.path("small")
    records = run.records(RECORDS)
    walk(run, tree, KIB, records)
    say(f"mounting: {records} files of 1 KiB")
    ours = zrfs(run.args.zrfs)
    kinds = [ours, *available(run, [SQUASHFS, EROFS, SQUASHFUSE, RATARMOUNT, FUSE_ZIP])]
    samples = {}
    with run.start(ZRFS) as sides:
        for kind in list(kinds):
            try:
                first_mount(run, sides[ZRFS], kind, tree, records)
            except Unavailable as why:
                if kind is ours:
                    raise
                run.leave_out(kind.name, why)
                kinds.remove(kind)
        for i in run.rounds():
            for kind in in_turn(kinds, i):
                for what, value in one_mount(run, sides[ZRFS], kind, tree, records).items():
                    samples.setdefault(what, {}).setdefault(kind.name, []).append(value)
    remove(tree)
    for what, of in samples.items():
        unit = "MiB" if what.startswith("memory") else "ms"
        for peer in (peer for peer in of if peer != ZRFS):
            run.results.add(what, unit, ZRFS, of[ZRFS], peer, of[peer], at_most=unit == "MiB", rate=False)


def first_mount(run, side, kind, tree, records):
    """Makes the image and mounts it; ratarmount makes its index then."""
    with Mounted(run, kind, made(run, kind, tree), f"{0:08}.bin") as mount:
        scan(side, mount.where, records)
    if kind.name == RATARMOUNT:
        run.results.add("mount, and index", "ms", kind.name, [mount.mount_time * 1000])


def one_mount(run, side, kind, tree, records):
    figures = {}

    def note(mount, after):
        for name, value in zip(("", ", at most", ", its own"), mount.memory() or ()):
            figures[f"memory after {after}{name}"] = value

    # The image is in memory, as it would be where something was mounted before.
    with Mounted(run, kind, made(run, kind, tree), f"{0:08}.bin") as mount:
        note(mount, "mount")
        _, names, size = side.ask("list", mount.where, "attributes")
        if (names, size) != (records, records * KIB):
            raise Wrong(f"mounting: {kind.name} shows other names or sizes than there are")
        note(mount, "listing")
        scan(side, mount.where, records)
        note(mount, "scan")
    return {"mount": mount.mount_time * 1000, "unmount": mount.unmount_time * 1000, **figures}


def scan(side, where, records):
    """Reads all files."""
    _, files, size, _ = side.ask("readfiles", where, "bin", records, "sequential", 1, 1, "warm")
    if (files, size) != (records, records * KIB):
        raise Wrong(f"mounting: {where} holds another number of bytes than the source")
