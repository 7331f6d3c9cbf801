"""Imports: a folder of files into one store, beside `tar`, `mksquashfs` and a Python loop into loaderx's Dataset.write."""

import os
import shutil
import subprocess
import sys
import time
from typing import NamedTuple

import numpy as np

from data import BATCH, KIB, MIB, checksum, source, splitmix
from files import clip_art, pictures
from mounts import PATH, Unavailable, squash
from results import say
from sides import LOADERX, ZRFS, Wrong, expect, in_turn

TAR = "tar cf"
SQUASHFS = "mksquashfs gzip"
JPEG = "110 kB JPEG files"
OPENCLIPART = "openclipart"


class Case(NamedTuple):
    name: str
    # Bytes of correlated data in a file, about or exactly; None for what is no such data.
    item_len: int | None
    records: int | None
    # Files of a folder.
    folder: int | None = None
    equal: bool = False


CASES = [
    Case("about 12 KiB files", 12 * KIB, 10_000, 1_000),
    Case("about 1 KiB files", KIB, 10_000, 2_500),
    # loaderx's Dataset takes records of one length alone. mksquashfs compares all files of one length with each other.
    Case("12 KiB files of one length", 12 * KIB, 10_000, 1_000, equal=True),
    Case(JPEG, None, 1_000),
    Case(OPENCLIPART, None, None),
]


def measure(run):
    tree = run.path("tree")
    for case in run.cases(CASES):
        try:
            make(run, case, tree)
        except Unavailable as why:
            run.leave_out(f"import of {case.name}", why)
            continue
        measure_case(run, case, tree)
        shutil.rmtree(tree)


def make(run, case, tree):
    """The folder of a case."""
    if case.name == JPEG:
        pictures(run, tree, run.records(case.records))
        return
    if case.name == OPENCLIPART:
        clip_art(tree, whole=not (run.quick or run.smoke))
        return
    records = run.records(case.records)
    # 75% to 125% of the length.
    lengths = np.full(records, case.item_len) if case.equal else (
        case.item_len * 3 // 4 + splitmix(3, np.arange(records)) % np.uint64(case.item_len // 2 + 1))
    array = source(run.folder, "walk", int(lengths.max()), records)
    for i, (record, length) in enumerate(zip(array, lengths.tolist())):
        folder = os.path.join(tree, f"class{i // case.folder:04}")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, f"{i:06}.bin"), "wb") as file:
            file.write(record[:length])


def measure_case(run, case, tree):
    paths = [os.path.join(where, name) for where, _, names in os.walk(tree) for name in names]
    files, size = len(paths), sum(map(os.path.getsize, paths))
    say(f"import of {files} files, {case.name}")
    ways = ways_of(run, case, tree)
    returned, durable, sizes = ({name: [] for name in ways} for _ in range(3))
    # The first one takes longer: it checks.
    for i in run.rounds(lambda i: i == 0):
        for name in in_turn(ways, i):
            out = run.path("imported")
            os.sync()
            begin = time.perf_counter()
            took = ways[name](out)
            returned[name].append(files / took)
            os.sync()
            durable[name].append(files / (time.perf_counter() - begin))
            sizes[name].append(on_disk(out) / size)
            if i == 0:
                check(run, case, name, out, tree)
            if name == ZRFS and size > MIB and on_disk(out) > 1.1 * size + 256 * files:
                # Table, checksum and name take some hundred bytes a record.
                raise Wrong("import: the store takes more disk than the files hold bytes and what is kept beside them")
            shutil.rmtree(out) if os.path.isdir(out) else os.remove(out)
    for peer in (name for name in ways if name != ZRFS):
        run.results.add(case.name, "files/s", ZRFS, returned[ZRFS], peer, returned[peer])
        run.results.add(f"{case.name}, and sync", "files/s", ZRFS, durable[ZRFS], peer, durable[peer])
        run.results.add(f"{case.name}, disk", "of source", ZRFS, sizes[ZRFS], peer, sizes[peer], at_most=True)


def ways_of(run, case, tree):
    """How a folder is imported, each to a path; gives back seconds."""
    ways = {
        ZRFS: lambda out: command(run.args.zrfs, "import", tree, out),
        TAR: lambda out: command("tar", "cf", out, "-C", tree, "."),
    }
    if case.equal:
        run.leave_out(f"{SQUASHFS} of {case.name}", "it compares them all with each other; see those of about 12 KiB")
        return ways | {LOADERX: lambda out: loaderx(tree, out)}
    run.leave_out(f"{LOADERX} in imports of files of many lengths", "its Dataset takes records of one length")
    missing = [program for program in ("mksquashfs", "unsquashfs") if not shutil.which(program, path=PATH)]
    if missing:
        run.leave_out(SQUASHFS, f"no {', '.join(missing)}: apt-get install squashfs-tools, or benches/peers/set_up.sh")
    else:
        ways[SQUASHFS] = lambda out: command(*squash(tree, out))
    return ways


def check(run, case, name, out, tree):
    """Whether what was made holds the files: all is read back."""
    if name == LOADERX:
        check_loaderx(run, out, tree)
        return
    back = run.path("back")
    os.mkdir(back)
    command(*{
        ZRFS: [run.args.zrfs, "export", out, back],
        TAR: ["tar", "xf", out, "-C", back],
        SQUASHFS: ["unsquashfs", "-quiet", "-no-progress", "-force", "-dest", back, out],
    }[name])
    # It ends with status 1 where a name or a byte differs.
    command("diff", "--recursive", tree, back)
    shutil.rmtree(back)


def check_loaderx(run, out, tree):
    """The files of one length, in the order of their paths."""
    paths = sorted(os.path.join(where, name) for where, _, names in os.walk(tree) for name in names)
    rows = np.stack([np.fromfile(path, np.uint8) for path in paths])
    with run.start(LOADERX) as sides:
        sides[LOADERX].ask("open", out)
        seen = sides[LOADERX].ask("whole", rows.shape[1], BATCH)
    expect(f"import by {LOADERX}", seen, [checksum(rows[at:at + BATCH]) for at in range(0, len(rows), BATCH)])


def command(*words):
    """Seconds that a command takes."""
    begin = time.perf_counter()
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                          env={**os.environ, "PATH": PATH})
    took = time.perf_counter() - begin
    if done.returncode:
        raise Wrong(f"{' '.join(words)}: {done.stdout.decode(errors='replace').strip()}")
    return took


def loaderx(tree, out):
    """Seconds that reading the files and writing them take, without the start of Python."""
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "loaderx_import.py")
    done = subprocess.run([sys.executable, "-B", script, tree, out], stdin=subprocess.DEVNULL, capture_output=True,
                          check=False)
    if done.returncode:
        raise Wrong(f"loaderx's import: {done.stderr.decode(errors='replace').strip()}")
    return float(done.stdout)


def on_disk(path):
    """Bytes of disk that a file, or all files below a folder, take."""
    if not os.path.isdir(path):
        return os.stat(path).st_blocks * 512
    return sum(os.stat(os.path.join(where, name)).st_blocks * 512
               for where, _, names in os.walk(path) for name in names)
