#!/usr/bin/env python3
"""Rounds of kill -9 at random moments over import --append, delete and compact, all on one store.

After each kill the store holds what it held before, or what it was to hold; verify finds nothing bad; it is readable
before it is written again, or written again at once, and that may be killed as well. Standard library only.

  ROUNDS=N            rounds (default 500)
  SEED=N              for the same kills again, as far as the machine's timing lets them be the same
  ZRFS=PATH           the program (default target/release/zrfs)
  LOADERX_PYTHON=PATH a Python with loaderx 0.5.0 (default target/peers-venv's, or this one); without one its part is left out
"""

import collections
import hashlib
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/peers"))
sys.dont_write_bytecode = True

from changing import MARK, start, swap_last, verify  # noqa: E402
from loaderx_client import BAD_FORMAT, Loaderx, LoaderxError  # noqa: E402
from support import ZRFS, read_header, run, snapshot, zrfs  # noqa: E402

ROW = 1024
RECORDS = 20_000
POOL = random.Random(1).randbytes(1 << 16)


def record(name):
    """The bytes of a record: its name, then noise; every other one has a half that compresses."""
    at = name * 37 % (len(POOL) - ROW)
    noise = POOL[at:at + ROW - 8]
    return name.to_bytes(8, "little") + (noise if name % 2 else noise[:ROW // 2] + bytes(ROW // 2 - 8))


def write_npy(path, names):
    """An array of shape (records, ROW) and dtype u1, as NumPy saves it."""
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({len(names)}, {ROW}), }}"
    header = header.ljust(128 - 10 - 1) + "\n"
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode())
        f.writelines(map(record, names))


def python_with_loaderx():
    for python in (os.environ.get("LOADERX_PYTHON"), ROOT / "target/peers-venv/bin/python", sys.executable):
        if python and os.path.exists(python) and run(python, "-c", "import loaderx").returncode == 0:
            return python
    return None


class Change:
    """One command on the store: what it is called with, and what it makes of a list of names."""

    def __init__(self, kind, args, standard_input=b"", follow=lambda names: names):
        self.kind, self.args, self.standard_input, self.follow = kind, args, standard_input, follow


class Rounds:
    def __init__(self, folder, seed, loaderx):
        self.folder, self.loaderx = folder, loaderx
        self.rng = random.Random(seed)
        self.store = folder / "store.zr"
        self.names, self.next_name = [], 0
        # How long each kind of change takes, in seconds.
        self.takes = {}
        self.count = collections.Counter()

    # Commands

    def new_names(self, n):
        names = list(range(self.next_name, self.next_name + n))
        self.next_name += n
        return names

    def append(self, n):
        names = self.new_names(n)
        write_npy(self.folder / "more.npy", names)
        return Change("append", ["import", "--append", self.folder / "more.npy", self.store], follow=lambda old: old + names)

    def delete(self, n):
        # Scattered, or a stretch.
        if self.rng.random() < 0.7:
            some = self.rng.sample(range(len(self.names)), n)
        else:
            begin = self.rng.randrange(len(self.names) - n)
            some = range(begin, begin + n)
        listed = " ".join(map(str, some)).encode()
        return Change("delete", ["delete", self.store, "-"], listed, lambda old: swap_last(old, some)[0])

    def compact(self):
        return Change("compact", ["compact", self.store])

    def next_change(self):
        while len(self.names) < RECORDS - 6000:
            # Left alone: an append that is killed adds nothing.
            more = self.append(6000)
            self.run(more)
            self.names = more.follow(self.names)
        if len(self.names) > RECORDS + 6000:
            return self.delete(6000)
        kind = self.rng.choices(["append", "delete", "compact"], [3, 4, 4])[0]
        if kind == "append":
            return self.append(self.rng.randint(2000, 4000))
        if kind == "delete":
            return self.delete(self.rng.randint(2000, 6000))
        return self.compact()

    def small_change(self):
        """What is asked of a store first thing after a kill."""
        return self.rng.choice([lambda: self.append(10), lambda: self.delete(5), self.compact])()

    def run(self, change, kill_after=None):
        """Run a change; kill it after so many seconds. True where it ended by itself."""
        (self.folder / "input").write_bytes(change.standard_input)
        with open(self.folder / "input", "rb") as listed, open(self.folder / "said", "wb") as said:
            process = start(*change.args, stdin=listed, stderr=said)
            try:
                process.wait(60 if kill_after is None else kill_after)
            except subprocess.TimeoutExpired:
                if kill_after is None:
                    raise AssertionError(f"{change.kind} did not end") from None
            finally:
                process.kill()
                process.wait()
        if process.returncode not in (0, -9):
            said = (self.folder / "said").read_text()
            raise AssertionError(f"{change.kind}: exit status {process.returncode}: {said}")
        return process.returncode == 0

    # What must hold

    def read(self):
        """The names of the records that are there, each of which must be whole."""
        n = len(zrfs("ls", self.store).stdout.splitlines())
        data = zrfs("cat", self.store, f"0-{n - 1}").stdout if n else b""
        rows = [data[at:at + ROW] for at in range(0, len(data), ROW)]
        names = [int.from_bytes(row[:8], "little") for row in rows]
        for index, (name, row) in enumerate(zip(names, rows)):
            if row != record(name):
                raise AssertionError(f"record {index} is wrong")
        if len(names) != n:
            raise AssertionError(f"ls lists {n} records, cat writes {len(names)}")
        return names

    def check(self, allowed, what):
        """The store holds one of these lists, and is sound; gives back which."""
        status, found = verify(self.store)
        if status or found["bad"] or found["faults"]:
            raise AssertionError(f"{what}: verify: {str(found)[:500]}")
        names = self.read()
        if found["records"] != len(names):
            raise AssertionError(f"{what}: verify counts {found['records']} records, ls {len(names)}")
        for which, right in enumerate(allowed):
            if names == right:
                return which
        raise AssertionError(f"{what}: {len(names)} records, none of the lists of {[len(a) for a in allowed]}")

    def ask_loaderx(self, marked, names):
        """loaderx reads the same, or refuses a store under change. It opens for writing, so it comes last."""
        if not self.loaderx:
            return
        try:
            found = self.loaderx.digest(self.store)
        except LoaderxError as error:
            if not marked or error.code != BAD_FORMAT:
                raise AssertionError(f"loaderx refuses: {error}") from None
            self.count["loaderx refused"] += 1
            return
        if marked:
            raise AssertionError("loaderx opened a store under change")
        if found != (len(names), hashlib.sha256(b"".join(map(record, names))).hexdigest()):
            raise AssertionError("loaderx reads something else")
        self.count["loaderx read the same"] += 1

    def is_marked(self):
        return bool(read_header(self.store)[1] & MARK)

    def round(self):
        change = self.next_change()
        kill_after = self.rng.uniform(0, 1.3 * self.takes[change.kind])
        was_marked = self.is_marked()
        ended = self.run(change, kill_after)
        after = change.follow(self.names)
        allowed = [after] if ended else [self.names, after]
        marked = self.is_marked()
        if not ended:
            self.count[f"{change.kind}: killed while it ran"] += 1
            self.count[f"{change.kind}: left the mark"] += marked and not was_marked
        elif marked:
            raise AssertionError(f"{change.kind} ended and left the mark")
        if marked and not was_marked and change.kind != "append":
            # Reading sees the change finished. A mark that was there before is that of a change before.
            allowed = [after]

        what = f"{change.kind}, {'ended' if ended else 'killed'} within {1000 * kill_after:.1f} ms, mark: {marked}"
        first = self.rng.choice(["read", "write", "write and kill"])
        if first == "read":
            before = snapshot(self.store)
            which = self.check(allowed, what)
            if snapshot(self.store) != before:
                raise AssertionError(f"{what}: reading has changed the store's files")
            self.names = allowed[which]
            if not ended and change.kind != "compact":
                self.count[f"{change.kind}: came out as it was {'to be' if self.names == after else 'before'}"] += 1
            if self.rng.random() < 0.2:
                self.ask_loaderx(marked, self.names)
            return

        # The indices of a delete have to be there, whichever list it is.
        self.names = min(allowed, key=len)
        then = self.small_change()
        if first == "write":
            self.run(then)
            both = [then.follow(names) for names in allowed]
        else:
            ended = self.run(then, self.rng.uniform(0, 0.5 * self.takes["compact"]))
            both = [then.follow(names) for names in allowed]
            if not ended:
                self.count["killed twice in a row"] += 1
                both = allowed + both
        what = f"{what}; then {then.kind}, {'ended' if first == 'write' or ended else 'killed'}"
        self.names = both[self.check(both, what)]

    def begin(self):
        """The store, and how long each change takes if it is left alone."""
        self.names = self.new_names(RECORDS)
        write_npy(self.folder / "first.npy", self.names)
        zrfs("import", self.folder / "first.npy", self.store)
        (self.folder / "first.npy").unlink()
        self.check([self.names], "import")
        times = collections.defaultdict(list)
        for _ in range(3):
            for make in (lambda: self.append(3000), lambda: self.delete(4000), self.compact):
                change = make()
                begin = time.monotonic()
                self.run(change)
                times[change.kind].append(time.monotonic() - begin)
                self.names = change.follow(self.names)
                self.check([self.names], change.kind)
        self.takes = {kind: statistics.median(found) for kind, found in times.items()}
        told = ", ".join(f"{kind} {1000 * seconds:.0f} ms" for kind, seconds in self.takes.items())
        print(f"    left alone, a change takes: {told}", flush=True)

    def end(self):
        """After all this the store is as any other, and nothing has piled up."""
        for make in (lambda: self.append(100), lambda: self.delete(100), self.compact):
            change = make()
            self.run(change)
            self.names = change.follow(self.names)
        self.check([self.names], "at the end")
        self.ask_loaderx(False, self.names)
        used = int(run("du", "-s", "--block-size=1", self.store, check=0).stdout.split()[0])
        if used > len(self.names) * (ROW + 256) + (4 << 20):
            raise AssertionError(f"{len(self.names)} records of {ROW} bytes take {used} bytes of disk: {os.listdir(self.store)}")


def main():
    rounds = int(os.environ.get("ROUNDS", "500"))
    seed = int(os.environ.get("SEED", time.time_ns() % 1_000_000))
    python = python_with_loaderx()
    print(f"    SEED={seed}, loaderx: {python or 'not found, its part is left out'}", flush=True)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="zrfs-kill-"))
    number = 0
    try:
        with Loaderx(python) if python else open(os.devnull) as loaderx:
            play = Rounds(folder, seed, loaderx if python else None)
            play.begin()
            begin = time.monotonic()
            for number in range(1, rounds + 1):
                play.round()
                if number % 50 == 0:
                    print(f"    {number} rounds, {time.monotonic() - begin:.0f} s", flush=True)
            play.end()
    except AssertionError as error:
        sys.exit(f"tests/kill_rounds.py: SEED={seed}, round {number}: {error}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for what, times in sorted(play.count.items()):
        print(f"    {what}: {times}")
    hit = sum(times for what, times in play.count.items() if what.endswith("killed while it ran"))
    marks = sum(times for what, times in play.count.items() if what.endswith("left the mark"))
    if not hit:
        sys.exit("tests/kill_rounds.py: no kill hit a running process")
    print(f"kill_rounds: {rounds} rounds: {hit} kills hit a running process, {marks} of them left the mark")


if __name__ == "__main__":
    main()
