#!/usr/bin/env python3
"""Measures zrfs beside loaderx 0.5.0, np.take and plain files, in pairs, in one run.

Run it with `cargo bench --bench beside_loaderx`; see benches/README.md.

zrfs runs in its side program, which this script drives by commands on a pipe (beside_loaderx.rs lists them); loaderx
and np.take run here. Each side times itself. A round takes the sides one after another and each round begins with
another one; a ratio is the median of the rounds' own ratios, so that a slow spell of the machine hits both sides.
Everything read is checked against its source before it is timed. Nothing is asserted about times.
"""

import argparse
import contextlib
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version

import numpy as np
from loaderx import Zrecord

KIB = 1024
MIB = 1024 * KIB
BATCH = 256
GAMMA = 0x9E3779B97F4A7C15

LOCATION = np.dtype([("offset", "<u4"), ("phys_length", "<u4"), ("logic_length", "<u4"),
                     ("chunk_id", "<u2"), ("compress", "u1"), ("reserved", "u1")])

# name, codec, bytes a record, records, batches a timing, target beside loaderx, target beside np.take.
# Few batches where one takes long: a timing is some milliseconds to some hundred.
GATHERS = [
    ("8 B raw", "raw", 8, 1_000_000, 400, 20, 0.8),
    ("3 KiB raw", "raw", 3 * KIB, 40_000, 100, 2, 0.8),
    ("12 KiB raw", "raw", 12 * KIB, 20_000, 50, 1.2, 0.8),
    ("150 KiB raw", "raw", 150 * KIB, 2_000, 10, None, 0.8),
    ("3 KiB Deflate", "flate", 3 * KIB, 40_000, 20, 3, None),
    ("12 KiB Deflate", "flate", 12 * KIB, 20_000, 8, 3, None),
    ("150 KiB Deflate", "flate", 150 * KIB, 2_000, 2, 3, None),
]
# name, codec, bytes a record, records, records a call, target of speed, target of size.
# 4096 records of 12 KiB a call is what loaderx's own benchmark does.
APPENDS = [
    ("8 B raw", "raw", 8, 500_000, 500_000, 10, None),
    ("12 KiB raw", "raw", 12 * KIB, 20_000, 4096, 1, None),
    ("12 KiB Deflate", "flate", 12 * KIB, 20_000, 4096, 2, 1.02),
]
# name, codec, data, bytes a record, records, target of cold reads by two clients.
MOUNTS = [
    ("12 KiB Deflate", "flate", "walk", 12 * KIB, 20_000, 1),
    ("110 kB raw", "raw", "noise", 110_000, 6_000, 1.8),
]


class Wrong(Exception):
    """A side read other bytes than it should, or could not do what it was asked."""


def say(text):
    print(text, file=sys.stderr, flush=True)


# --- data -----------------------------------------------------------------------------------------------------------

def splitmix(seed, count):
    """The first `count` numbers of the splitmix64 stream of `seed`: the side program computes the same."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(GAMMA)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def batches(seed, length, rounds):
    """`rounds` batches of indices below `length`; the same indices as the side program's."""
    return (splitmix(seed, rounds * BATCH) % np.uint64(length)).reshape(rounds, BATCH)


def checksums(rows):
    """One checksum a row of bytes: the little-endian 64-bit words, word i times 2 i + 1, added up and wrapping."""
    words = np.ascontiguousarray(rows).view("<u8")
    return (words * (2 * np.arange(words.shape[1], dtype=np.uint64) + np.uint64(1))).sum(axis=1, dtype=np.uint64)


def checksum(buffer):
    return int(checksums(buffer.reshape(1, -1))[0])


def source(folder, data, item_len, records):
    """The records as a mapped .npy of shape (records, item_len).

    `walk`: correlated bytes, each the one before plus 0 to 6, wrapping, as in loaderx's own benchmark.
    `noise`: uniform bytes, which Deflate cannot shrink, like JPEG.
    """
    path = os.path.join(folder, f"{data}-{item_len}-{records}.npy")
    if not os.path.exists(path):
        rng = np.random.default_rng(1)
        out = np.lib.format.open_memmap(path, "w+", np.uint8, (records, item_len))
        last = np.zeros(1, np.uint8)
        step = max(1, 64 * MIB // item_len)
        for start in range(0, records, step):
            block = out[start:start + step].reshape(-1)
            if data == "noise":
                block[:] = rng.integers(0, 256, block.size, np.uint8)
            else:
                steps = rng.integers(0, 7, block.size, np.uint8)
                block[:] = np.cumsum(steps, dtype=np.uint8) + last
                last = block[-1:].copy()
        out.flush()
    return np.load(path, mmap_mode="r")


def stored(store):
    """Stored bytes of all records, and how many of them are Deflate, as the record table has it."""
    with open(os.path.join(store, "meta.zr"), "rb") as meta:
        header = meta.read(16)
        length = int.from_bytes(header[12:16], "little")
        table = np.frombuffer(meta.read(16 * length), LOCATION)
    return int(table["phys_length"].sum(dtype=np.uint64)), int((table["compress"] == 1).sum())


# --- the side of zrfs -----------------------------------------------------------------------------------------------

class Side:
    """The side program: one command is one line, and so is its answer."""

    def __init__(self, program):
        self.process = subprocess.Popen([program, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, *words):
        self.process.stdin.write("\t".join(str(word) for word in words) + "\n")
        self.process.stdin.flush()
        status, *numbers = self.process.stdout.readline().rstrip("\n").split("\t")
        if status != "ok":
            raise Wrong(f"side program, {words[0]}: {' '.join(numbers) or 'it ended'}")
        return [int(number) for number in numbers if number]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # It ends at the end of its input.
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


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


# --- results --------------------------------------------------------------------------------------------------------

class Results:
    def __init__(self):
        self.rows = []

    def add(self, measure, unit, zrfs, peer_name, peer, target=None, at_most=False, rate=True):
        """Adds a row. `zrfs` and `peer` are samples, one a round; `rate` tells whether more is faster."""
        pairs = [z / p if rate or at_most else p / z for z, p in zip(zrfs, peer)]
        ratio = statistics.median(pairs)
        met = None if target is None else (ratio <= target if at_most else ratio >= target)
        self.rows.append({
            "measure": measure, "unit": unit, "zrfs": statistics.median(zrfs), "peer": peer_name,
            "peer_value": statistics.median(peer), "ratio": ratio, "ratio_min": min(pairs), "ratio_max": max(pairs),
            "target": None if target is None else f"{'<=' if at_most else '>='} {target}", "met": met,
            "zrfs_samples": zrfs, "peer_samples": peer,
        })
        say(f"  {measure} beside {peer_name}: {ratio:.3g}")

    def table(self):
        head = ["measure", "unit", "zrfs", "peer", "its", "ratio", "min-max", "target", "met"]
        lines = [head]
        for row in self.rows:
            lines.append([
                row["measure"], row["unit"], number(row["zrfs"]), row["peer"], number(row["peer_value"]),
                f"{row['ratio']:.3g}", f"{row['ratio_min']:.3g}-{row['ratio_max']:.3g}", row["target"] or "",
                {None: "", True: "yes", False: "no"}[row["met"]],
            ])
        widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
        lines.insert(1, ["-" * width for width in widths])
        right = {2, 4, 5}
        return "\n".join(
            "| " + " | ".join(cell.rjust(w) if i in right else cell.ljust(w)
                              for i, (cell, w) in enumerate(zip(line, widths))) + " |"
            for line in lines)


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def in_turn(sides, round_number):
    """The sides in the order of this round: each round begins with another one."""
    first = round_number % len(sides)
    return sides[first:] + sides[:first]


def expect(name, got, wanted):
    if list(got) != list(wanted):
        raise Wrong(f"{name}: what was read differs from its source")


# --- gather ---------------------------------------------------------------------------------------------------------

def gather(args, side, folder, results):
    for name, codec, item_len, records, count, target, take_target in GATHERS:
        say(f"gather {name}: {records} records")
        array = source(folder, "walk", item_len, records)
        path = os.path.join(folder, "gather.zr")
        if args.writer == "zrfs":
            side.ask("load", array.filename, array.offset)
            side.ask("append", path, codec, item_len, max(1, 64 * MIB // item_len))
            side.ask("load", os.devnull, 0)
        else:
            fill_by_loaderx(path, array, codec, max(1, 64 * MIB // item_len))
        size, deflated = stored(path)
        say(f"  stored {size / array.nbytes:.3f} of {array.nbytes / MIB:.0f} MiB, {deflated} records as Deflate")
        with Zrecord(path) as store:
            side.ask("open", path)
            indices = batches(11, records, count)
            buffer = np.empty((BATCH, item_len), np.uint8)

            def by_loaderx(seed):
                chosen = list(batches(seed, records, count))
                store.gather(chosen[-1], buffer, item_len)
                start = time.perf_counter_ns()
                for batch in chosen:
                    store.gather(batch, buffer, item_len)
                return time.perf_counter_ns() - start, checksum(buffer)

            def by_zrfs(seed):
                return side.ask("gather", item_len, BATCH, count, seed)

            def by_take(seed):
                chosen = list(batches(seed, records, count).astype(np.intp))
                # clip: with `raise`, NumPy fills a copy of `out` first and takes two to three times as long.
                np.take(array, chosen[-1], axis=0, out=buffer, mode="clip")
                start = time.perf_counter_ns()
                for batch in chosen:
                    np.take(array, batch, axis=0, out=buffer, mode="clip")
                return time.perf_counter_ns() - start, checksum(buffer)

            sums = [checksum(array[batch]) for batch in indices]
            expect(f"gather {name} by zrfs", side.ask("check", item_len, BATCH, count, 11), sums)
            for batch, wanted in zip(indices, sums):
                store.gather(batch, buffer, item_len)
                expect(f"gather {name} by loaderx", [checksum(buffer)], [wanted])

            sides = [("zrfs", by_zrfs), ("loaderx", by_loaderx)]
            if codec == "raw":
                sides.append(("np.take", by_take))
            samples = {which: [] for which, _ in sides}
            for i in range(args.gather_rounds):
                seen = {}
                for which, run in in_turn(sides, i):
                    nanoseconds, seen[which] = run(100 + i)
                    samples[which].append(nanoseconds / count / 1000)
                if len(set(seen.values())) != 1:
                    raise Wrong(f"gather {name}: the sides read different bytes")
            side.ask("close")
        shutil.rmtree(path)
        for peer, wanted in (("loaderx", target), ("np.take", take_target)):
            if peer in samples:
                results.add(f"gather {name}", "us/batch", samples["zrfs"], peer, samples[peer], wanted, rate=False)


# --- append ---------------------------------------------------------------------------------------------------------

def fill_by_loaderx(path, array, codec, step):
    """Times of the appends and of the sync after, in nanoseconds. The source is in memory before the clock starts."""
    blocks = [np.ascontiguousarray(array[at:at + step]) for at in range(0, len(array), step)]
    with Zrecord(path, codec=codec) as store:
        start = time.perf_counter_ns()
        for block in blocks:
            store.append(block, len(block), array.shape[1])
        appended = time.perf_counter_ns()
        store.sync()
        return appended - start, time.perf_counter_ns() - appended


def append(args, side, folder, results):
    for name, codec, item_len, records, step, target, size_target in APPENDS:
        say(f"append {name}: {records} records")
        array = np.array(source(folder, "walk", item_len, records))
        mapped = source(folder, "walk", item_len, records)
        side.ask("load", mapped.filename, mapped.offset)
        paths = {which: os.path.join(folder, f"append-{which}.zr") for which in ("zrfs", "loaderx")}
        sides = [("zrfs", lambda: side.ask("append", paths["zrfs"], codec, item_len, step)),
                 ("loaderx", lambda: fill_by_loaderx(paths["loaderx"], array, codec, step))]
        speed = {"zrfs": [], "loaderx": []}
        durable = {"zrfs": [], "loaderx": []}
        sizes = {"zrfs": [], "loaderx": []}
        for i in range(args.append_rounds):
            for which, run in in_turn(sides, i):
                # What the one before left to write back is not this one's.
                os.sync()
                appended, synced = run()
                speed[which].append(array.nbytes / MIB / (appended / 1e9))
                durable[which].append(array.nbytes / MIB / ((appended + synced) / 1e9))
                sizes[which].append(stored(paths[which])[0] / array.nbytes)
            if i == 0:
                check_appended(side, paths, array)
            for path in paths.values():
                shutil.rmtree(path)
        side.ask("load", os.devnull, 0)
        results.add(f"append {name}", "MiB/s", speed["zrfs"], "loaderx", speed["loaderx"], target)
        results.add(f"append and sync {name}", "MiB/s", durable["zrfs"], "loaderx", durable["loaderx"])
        if size_target:
            results.add(f"stored size {name}", "of source", sizes["zrfs"], "loaderx", sizes["loaderx"], size_target,
                        at_most=True)


def check_appended(side, paths, array):
    """Each side reads the store that the other wrote, whole."""
    records, item_len = array.shape
    with Zrecord(paths["zrfs"]) as store:
        if len(store) != records:
            raise Wrong(f"append: loaderx sees {len(store)} records of {records}")
        out = np.empty_like(array)
        store.gather(np.arange(records), out, item_len)
        if not np.array_equal(out, array):
            raise Wrong("append: loaderx reads other bytes than zrfs wrote")
    if side.ask("open", paths["loaderx"]) != [records]:
        raise Wrong("append: zrfs sees another number of records than loaderx wrote")
    rounds = -(-records // BATCH)
    wanted = [checksum(array[batch]) for batch in batches(5, records, rounds)]
    expect("append: loaderx's store by zrfs", side.ask("check", item_len, BATCH, rounds, 5), wanted)
    side.ask("close")


# --- mounted reads --------------------------------------------------------------------------------------------------

def mounted_reads(args, side, folder, results):
    cold = os.geteuid() == 0
    if not cold:
        say("cold reads are left out: only root may drop the caches")
    for name, codec, data, item_len, records, cold_target in MOUNTS:
        say(f"mounted reads {name}: {records} files")
        array = source(folder, data, item_len, records)
        store, plain = os.path.join(folder, "mounted.zr"), os.path.join(folder, "plain")
        # Without a schema the mount shows a record's own bytes, so the plain files are the same to the byte.
        side.ask("load", array.filename, array.offset)
        side.ask("append", store, codec, item_len, max(1, 64 * MIB // item_len))
        side.ask("load", os.devnull, 0)
        os.mkdir(plain)
        for i, record in enumerate(array):
            with open(os.path.join(plain, f"{i:08}.bin"), "wb") as file:
                file.write(record)
        with np.errstate(over="ignore"):
            wanted = int((np.concatenate([checksums(array[at:at + 1024]) for at in range(0, records, 1024)])
                          * (2 * np.arange(records, dtype=np.uint64) + np.uint64(1))).sum(dtype=np.uint64))

        def read(where, seed, clients, mode):
            took, files, size, total = side.ask("readfiles", where, "bin", records, seed, clients, mode)
            if (files, size) != (records, records * item_len) or (mode == "check" and total != wanted):
                raise Wrong(f"mounted reads {name}: {where} holds other bytes than the source")
            return files / (took / 1e9)

        read(plain, 1, 2, "check")
        for options in args.mount_options or [""]:
            dataonly = "dataonly" in options.split(",")
            label = f"{name}, -o {options}" if options else name
            with mounted(args.zrfs, store, folder, options) as where:
                read(where, 1, 2, "check")
            samples = {}

            def note(temperature, clients, which, i, path):
                samples.setdefault((temperature, clients, which), []).append(
                    read(path, 1000 + i, clients, temperature))

            for i in range(args.mounted_rounds):
                for clients in (1, 2) if cold else ():
                    for which in in_turn(["zrfs", "plain"], i):
                        # A mount of its own: pages that a daemon has mapped outlive the dropping of the caches.
                        fresh = mounted(args.zrfs, store, folder, options)
                        with fresh if which == "zrfs" else contextlib.nullcontext(plain) as path:
                            # Dirty pages are not dropped.
                            os.sync()
                            note("cold", clients, which, i, path)
                with mounted(args.zrfs, store, folder, options) as where:
                    paths = {"zrfs": where, "plain": plain}
                    for path in paths.values():
                        read(path, 1, 1, "warm")
                    for clients in (1, 2):
                        # A warm pass is short: three pairs a round.
                        for j in range(3 * i, 3 * i + 3):
                            for which in in_turn(["zrfs", "plain"], j):
                                note("warm", clients, which, j, paths[which])
            for temperature in ("cold", "warm") if cold else ("warm",):
                for clients in (1, 2):
                    if temperature == "warm":
                        target = 0.7 if dataonly else 0.2
                    elif clients == 2:
                        target = max(cold_target, 1.3) if dataonly else cold_target
                    else:
                        target = None
                    results.add(f"{temperature}, {clients} client{'s' * (clients > 1)}, {label}", "files/s",
                                samples[temperature, clients, "zrfs"], "plain files",
                                samples[temperature, clients, "plain"], target)
        shutil.rmtree(plain)
        shutil.rmtree(store)


# --- the run --------------------------------------------------------------------------------------------------------

def machine(folder):
    model = "unknown"
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as lines:
        for line in lines:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    device = os.stat(folder).st_dev
    file_system = "unknown"
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            if line.split(" ")[2] == f"{os.major(device)}:{os.minor(device)}":
                file_system = line.split(" - ", 1)[1].split(" ")[0]
    return {
        "cores": len(os.sched_getaffinity(0)), "cpu": model, "kernel": platform.release(),
        "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MIB,
        "file_system": file_system, "python": platform.python_version(), "numpy": np.__version__,
        "loaderx": version("loaderx"), "load_before": round(os.getloadavg()[0], 2),
    }


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--side", required=True, help="the side program: the bench target beside_loaderx, built")
    parser.add_argument("--zrfs", required=True, help="the program zrfs")
    parser.add_argument("--dir", default=".", help="where the temp folder goes; it wants 3 GB on a disk (default: .)")
    parser.add_argument("--quick", action="store_true", help="3 rounds of each")
    parser.add_argument("--json", metavar="FILE", help="write all samples to FILE, too")
    parser.add_argument("--only", nargs="+", choices=["gather", "append", "mounted"],
                        default=["gather", "append", "mounted"])
    parser.add_argument("--writer", choices=["loaderx", "zrfs"], default="loaderx",
                        help="who writes the store that both gather from (default: loaderx)")
    parser.add_argument("--mount-options", action="append", metavar="OPTS",
                        help="measure a mount with -o OPTS ('' is the default mount); may be given again")
    args = parser.parse_args()
    args.gather_rounds, args.append_rounds, args.mounted_rounds = (3, 3, 3) if args.quick else (15, 5, 7)
    return args


def main():
    args = arguments()
    # As exceptions, so that mounts and files are cleaned up.
    for number_of_signal in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number_of_signal, lambda *_: sys.exit(1))
    results = Results()
    failure = None
    with tempfile.TemporaryDirectory(prefix="beside-loaderx-", dir=args.dir) as folder:
        folder = os.path.realpath(folder)
        about = machine(folder)
        print(", ".join(f"{key} {value}" for key, value in about.items()), flush=True)
        try:
            with Side(args.side) as side:
                for part, run in (("gather", gather), ("append", append), ("mounted", mounted_reads)):
                    if part in args.only:
                        run(args, side, folder, results)
        except Wrong as wrong:
            failure = wrong
    print(f"\nmedians; ratio: zrfs over its peer in speed (in size: in bytes), the median of the rounds' own ratios\n"
          f"\n{results.table()}")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"machine": about, "rows": results.rows}, file, indent=1)
    if failure:
        sys.exit(f"beside_loaderx: {failure}")


if __name__ == "__main__":
    main()
