"""Mounting: time to the first answer and to the end, and the daemon's memory."""

from data import KIB
from files import Files, walk
from mounts import (EROFS, FUSE_ZIP, RATARMOUNT, SQUASHFS, SQUASHFUSE, Mounted, available, made, mountable, remove,
                    zrfs)
from results import say
from sides import ZRFS, Wrong, in_turn

RECORDS = 5_000


def measure(run):
    tree = run.path("small")
    records = run.records(RECORDS)
    walk(run, tree, KIB, records)
    say(f"mounting: {records} files of 1 KiB")
    samples = {}
    with run.start(ZRFS) as sides:
        files = Files(run, sides[ZRFS], "mounting", tree)
        wanted = [zrfs(run.args.zrfs), *available(run, [SQUASHFS, EROFS, SQUASHFUSE, RATARMOUNT, FUSE_ZIP])]
        kinds = mountable(run, wanted, tree, files.names[0], lambda mount: first_mount(run, mount, files))
        for i in run.rounds():
            for kind in in_turn(kinds, i):
                for what, value in one_mount(run, sides[ZRFS], kind, tree, files).items():
                    samples.setdefault(what, {}).setdefault(kind.name, []).append(value)
    remove(tree)
    for what, of in samples.items():
        unit = "MiB" if what.startswith("memory") else "ms"
        for peer in (peer for peer in of if peer != ZRFS):
            run.results.add(what, unit, ZRFS, of[ZRFS], peer, of[peer], at_most=unit == "MiB", rate=False)


def first_mount(run, mount, files):
    """Reads all; ratarmount has made its index."""
    files.check(mount.where)
    if mount.kind.name == RATARMOUNT:
        run.results.add("mount, and index", "ms", RATARMOUNT, [mount.mount_time * 1000])


def one_mount(run, side, kind, tree, files):
    figures = {}

    def note(mount, after):
        for name, value in zip(("", ", at most", ", its own"), mount.memory() or ()):
            figures[f"memory after {after}{name}"] = value

    # The image is in memory, as it would be where something was mounted before.
    with Mounted(run, kind, made(run, kind, tree), files.names[0]) as mount:
        note(mount, "mount")
        _, names, size = side.ask("list", mount.where, "attributes")
        if (names, size) != (len(files.names), files.size):
            raise Wrong(f"mounting: {kind.name} shows other names or sizes than there are")
        note(mount, "listing")
        files.check(mount.where)
        note(mount, "scan")
    return {"mount": mount.mount_time * 1000, "unmount": mount.unmount_time * 1000, **figures}
