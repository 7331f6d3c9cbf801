"""Listing: the names of a folder and all below it, alone and with the attributes of each."""

import contextlib
import os
from typing import NamedTuple

import caches
from files import clip_art
from mounts import PLAIN, SQUASHFS, Kind, Mounted, Unavailable, available, made, mountable, remove, zrfs
from results import say
from sides import ZRFS, Wrong, in_turn

# What a name of one folder may take, in us; to open a folder takes many times as long as a name.
LIMITS = {"names": 1, "attributes": 7}
# Bytes of a record of ours; the plain files beside them are empty, as a name's cost is what is measured.
ITEM_LEN = 8
# squashfs looks a name up from the folder's start: a stat of each takes minutes where a folder holds more than this.
SQUASHFS_STATS = 100_000


class Case(NamedTuple):
    name: str
    folders: int
    each: int


CASES = [
    Case("one folder", 1, 1_000_000),
    Case("folders of 10", 20_000, 10),
]


class View(NamedTuple):
    """A folder that is listed, and what has to be in it."""

    kind: Kind
    image: str
    names: int
    size: int
    attributes: bool = True

    def hows(self):
        return ("names", "attributes") if self.attributes else ("names",)


def measure(run):
    # What one listing reads is cold, then.
    drop = os.geteuid() == 0 and not run.smoke
    with run.start(ZRFS) as sides:
        # The files of the one folder take long to make and to remove as well.
        for case in run.cases(["openclipart", *CASES], lambda case: 2 if case == CASES[0] else 1):
            if case == "openclipart":
                measure_clip_art(run, sides[ZRFS], drop)
            else:
                measure_case(run, sides[ZRFS], case, drop)


def measure_case(run, side, case, drop):
    folders, each = case.folders, case.each
    if case.folders == 1:
        each = run.records(each, share=10)
    else:
        folders = run.records(folders, share=10)
    files = folders * each
    say(f"listing {case.name}: {files} files")
    tree = run.path("names")
    store = f"{tree}.zr"
    if side.ask("fill", store, folders, each, ITEM_LEN) != [files]:
        raise Wrong("listing: another number of records than wanted")
    program = run.args.zrfs
    views = {f"{ZRFS}, tree": View(zrfs(program), store, files + folders, files * ITEM_LEN)}
    if folders == 1:
        views[f"{ZRFS}, records"] = View(zrfs(program, inside="records"), store, files, files * ITEM_LEN)
    for folder in range(folders):
        where = os.path.join(tree, f"{folder:06}")
        os.makedirs(where)
        for name in range(each):
            os.close(os.open(os.path.join(where, f"{name:08}.bin"), os.O_CREAT | os.O_WRONLY, 0o644))
    views |= peers(run, tree, files + folders, 0)
    if SQUASHFS in views and each > SQUASHFS_STATS:
        run.leave_out(f"attributes of {each} files of one folder of {SQUASHFS}", "they take minutes")
        views[SQUASHFS] = views[SQUASHFS]._replace(attributes=False)
    measure_views(run, side, f"{files} files, {case.name}", views, drop, LIMITS if folders == 1 else {})
    remove(tree)


def measure_clip_art(run, side, drop):
    """A real tree, as find(1) goes over it."""
    tree = run.path("clip-art")
    try:
        clip_art(tree, whole=not (run.quick or run.smoke))
    except Unavailable as why:
        run.leave_out("listing, openclipart", why)
        return
    names = size = 0
    for where, folders, files in os.walk(tree):
        names += len(folders) + len(files)
        size += sum(os.stat(os.path.join(where, name)).st_size for name in files)
    say(f"listing openclipart: {names} names")
    ours = zrfs(run.args.zrfs)
    views = {f"{ZRFS}, tree": View(ours, made(run, ours, tree), names, size)}
    views |= peers(run, tree, names, size)
    measure_views(run, side, "openclipart", views, drop, {})
    remove(tree)


def peers(run, tree, names, size):
    """The folder itself, and what else shows it."""
    kinds = mountable(run, [Kind(PLAIN), *available(run, [SQUASHFS])], tree)
    return {kind.name: View(kind, made(run, kind, tree), names, size) for kind in kinds}


def measure_views(run, side, what, views, drop, limits):
    # Dirty pages are not dropped with the caches.
    os.sync()
    samples = {}
    for i in run.rounds():
        for name in in_turn(views, i):
            for how in views[name].hows():
                with mounted(run, views[name], drop) as where:
                    for when in ("first", "again"):
                        took, names, size = side.ask("list", where, how)
                        if names != views[name].names or (how == "attributes" and size != views[name].size):
                            raise Wrong(f"listing {what}: {name} shows other names or sizes than there are")
                        samples.setdefault((how, when, name), []).append(took / 1000 / names)
    ours = [name for name, view in views.items() if view.kind.name == ZRFS]
    for how in LIMITS:
        for when in ("first", "again"):
            for name in ours:
                for peer in (peer for peer, view in views.items() if peer not in ours and how in view.hows()):
                    run.results.add(f"{what}, {how}, {when}", "us/name", name, samples[how, when, name], peer,
                                    samples[how, when, peer], rate=False, limit=limits.get(how))


@contextlib.contextmanager
def mounted(run, view, drop):
    """The folder to list, of which nothing is in memory if `drop`."""
    with Mounted(run, view.kind, view.image) as mount:
        if drop:
            caches.drop()
        yield mount.where
