"""Imports: a folder of files into one store, beside `tar`, `mksquashfs` and a Python loop into loaderx's Dataset.write."""

import os
import shutil
import subprocess
import sys
import time
from typing import NamedTuple

from data import KIB, MIB, source
from results import say
from sides import LOADERX, ZRFS, Wrong, in_turn

TAR = "tar cf"
SQUASHFS = "mksquashfs gzip"


class Case(NamedTuple):
    name: str
    item_len: int
    records: int
    # Files of a folder.
    folder: int


CASES = [
    Case("12 KiB files", 12 * KIB, 20_000, 1_000),
    # mksquashfs takes minutes for 100,000 of them.
    Case("1 KiB files", KIB, 40_000, 10_000),
]


def measure(run):
    for case in run.cases(CASES):
        measure_case(run, case)


def measure_case(run, case):
    records = run.records(case.records)
    say(f"import of {records} {case.name}")
    array = source(run.folder, "walk", case.item_len, records)
    tree = run.path("tree")
    for i, record in enumerate(array):
        folder = os.path.join(tree, f"class{i // case.folder:04}")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, f"{i:06}.bin"), "wb") as file:
            file.write(record)
    ways = {
        ZRFS: lambda out: command(run.args.zrfs, "import", tree, out),
        TAR: lambda out: command("tar", "cf", out, "-C", tree, "."),
        LOADERX: lambda out: loaderx(tree, out),
    }
    if shutil.which("mksquashfs"):
        ways[SQUASHFS] = lambda out: command(
            "mksquashfs", tree, out, "-comp", "gzip", "-noappend", "-quiet", "-no-progress")
    else:
        say("mksquashfs is left out: apt-get install squashfs-tools")
    returned, durable, sizes = ({name: [] for name in ways} for _ in range(3))
    for i in run.rounds():
        for name in in_turn(ways, i):
            out = run.path("imported")
            os.sync()
            begin = time.perf_counter()
            took = ways[name](out)
            returned[name].append(records / took)
            os.sync()
            durable[name].append(records / (time.perf_counter() - begin))
            sizes[name].append(on_disk(out) / array.nbytes)
            if name == ZRFS and i == 0:
                check(run, out, array)
            shutil.rmtree(out) if os.path.isdir(out) else os.remove(out)
    shutil.rmtree(tree)
    for peer in (name for name in ways if name != ZRFS):
        run.results.add(case.name, "files/s", ZRFS, returned[ZRFS], peer, returned[peer])
        run.results.add(f"{case.name}, and sync", "files/s", ZRFS, durable[ZRFS], peer, durable[peer])
        run.results.add(f"{case.name}, disk", "of source", ZRFS, sizes[ZRFS], peer, sizes[peer], at_most=True)


def command(*words):
    """Seconds that a command takes."""
    begin = time.perf_counter()
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
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


def check(run, store, array):
    done = subprocess.run([run.args.zrfs, "cat", store, f"0-{len(array) - 1}"], stdin=subprocess.DEVNULL,
                          capture_output=True, check=False)
    if done.stdout != array.tobytes():
        raise Wrong(f"import: the store holds other bytes than the files ({done.stderr.decode(errors='replace')})")
    if MIB > array.nbytes:
        return
    # Table, checksum and name take some hundred bytes a record.
    if on_disk(store) > 1.1 * array.nbytes + 256 * len(array):
        raise Wrong("import: the store takes more disk than the files hold bytes and what is kept beside them")
