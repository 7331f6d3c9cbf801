"""Eight readers look at everything while one process deletes, appends and compacts through the mount, for TORTURE_SECONDS (15
here, 60 and more by itself), with the usual threads and with one.
"""

import collections
import errno
import json
import os
import pathlib
import random
import subprocess
import sys
import time
import unittest

from support import ROOT, Case, run, say, zrfs
from torture_records import body, name

SECONDS = float(os.environ.get("TORTURE_SECONDS", "15"))
READERS = 8
RECORDS, PROTECTED = 3000, 400


class Torture(Case):
    def append(self, *numbers, more=()):
        source = self.dir / f"new{numbers[0]}"
        for number in numbers:
            path = source / name(number)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(body(number))
        zrfs("import", source, self.store, *more)

    def order(self):
        """The numbers of all records, by index."""
        listed = [json.loads(line) for line in zrfs("ls", self.store, "--json").stdout.splitlines()]
        return [int(os.path.basename(record["name"]).split(".")[0]) for record in listed]

    def control(self, file, text):
        with open(self.mnt / file, "wb", buffering=0) as f:
            self.assertEqual(f.write(text), len(text))

    def status(self, file):
        return json.loads((self.mnt / file).read_bytes())

    def delete(self):
        """Deletes some records, and looks at the mount right after."""
        free = [i for i, number in enumerate(self.table) if number >= PROTECTED]
        doomed = sorted(self.random.sample(free, min(len(free), self.random.choice([1, 3, 20, 200]))), reverse=True)
        numbers = [self.table[i] for i in doomed]
        text = " ".join(map(str, doomed)).encode()
        self.control("delete", b"begin\n" + text + b"\nend\n" if len(doomed) > 5 else text + b"\n")
        before = list(self.table)
        for i in doomed:
            self.table[i] = self.table[-1]
            self.table.pop()
        self.deleted.update(numbers)
        said = self.status("delete")
        self.assertEqual((said["deleted"], said["records"]), (len(doomed), len(self.table)))
        for before_, after in said["moves"]:
            self.assertEqual(before[before_], self.table[after])
        # Right after: names, sizes, bytes and listings are the new ones.
        self.assertEqual(len(os.listdir(self.mnt / "records")), len(self.table))
        for number in numbers[:20]:
            with self.assertRaises(FileNotFoundError):
                os.stat(self.mnt / "tree" / name(number))
        moved = [after for _, after in said["moves"]]
        for index in self.random.sample(moved, min(10, len(moved))) + self.random.sample(range(len(self.table)), 10):
            number = self.table[index]
            by_index = self.mnt / "records" / f"{index:08}.{'abc'[number % 3]}"
            by_name = self.mnt / "tree" / name(number)
            self.assertEqual(os.stat(by_index).st_size, len(body(number)))
            self.assertEqual(os.stat(by_index).st_ino, os.stat(by_name).st_ino)
            self.assertEqual(by_index.read_bytes(), body(number))
            self.assertEqual(by_name.read_bytes(), body(number))
        folder = f"class{numbers[0] % 7}"
        expected = {os.path.basename(name(n)) for n in self.table if n % 7 == numbers[0] % 7}
        self.assertEqual(set(os.listdir(self.mnt / "tree" / folder)), expected)

    def grow(self):
        numbers = range(self.next, self.next + self.random.choice([1, 10, 100]))
        self.next = numbers[-1] + 1
        self.append(*numbers, more=["--append"])
        self.table = self.order()

    def compact(self):
        self.control("compact", b"1\n")
        while (said := self.status("compact"))["state"] == "running":
            try:
                self.control("delete", b"0\n")
                # It has ended meanwhile.
                self.fail(f"a delete during a compaction was taken: {self.status('compact')}")
            except OSError as e:
                self.assertIn(e.errno, (errno.EBUSY,))
                break
        while (said := self.status("compact"))["state"] == "running":
            time.sleep(0.01)
        self.assertEqual(said["state"], "done", said)

    def torture(self, *options):
        self.random = random.Random(5)
        self.store = self.dir / "s.zr"
        self.append(*range(RECORDS))
        self.next, self.deleted = RECORDS, set()
        self.table = self.order()
        with self.mount(self.store, *options):
            readers = [subprocess.Popen([sys.executable, ROOT / "tests/peers/torture_reader.py", self.mnt, str(i), str(PROTECTED)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE) for i in range(READERS)]
            self.addCleanup(lambda: [reader.kill() for reader in readers])
            stuck, done = collections.Counter(), collections.Counter()
            end, looked = time.monotonic() + SECONDS, time.monotonic()
            while time.monotonic() < end:
                if len(self.table) < RECORDS // 2:
                    work = self.grow
                else:
                    work = self.random.choice([self.delete] * 12 + [self.grow] * 4 + [self.compact])
                work()
                done[work.__name__] += 1
                if time.monotonic() - looked > 1:
                    looked = time.monotonic()
                    for reader in readers:
                        stat = pathlib.Path(f"/proc/{reader.pid}/stat").read_bytes()
                        state = stat.rpartition(b")")[2].split()[0]
                        stuck[reader.pid] = stuck[reader.pid] + 1 if state == b"D" else 0
                        self.assertLess(stuck[reader.pid], 10, "a reader waits in the kernel for more than 10 s")
            counts = collections.Counter()
            for reader in readers:
                out, _ = reader.communicate(timeout=60)
                self.assertEqual(reader.returncode, 0)
                said = json.loads(out)
                self.assertEqual(said["wrong"], [])
                self.assertLessEqual(set(said["gone"]), self.deleted, "a file of a live record was said to be gone")
                counts.update(said["counts"])
                counts["gone"] += len(said["gone"])
            say(f"{' '.join(options) or 'usual threads'}: {dict(done)}, {len(self.deleted)} deleted; readers: {dict(counts)}")
            self.assertGreater(done["delete"], 5)
            self.assertGreater(counts["reads"], 1000)
        zrfs("verify", self.store)
        self.assertEqual(self.order(), self.table)

    def test_many_readers_see_nothing_wrong(self):
        self.torture()

    def test_one_thread_is_enough(self):
        self.torture("-o", "threads=1")


if __name__ == "__main__":
    unittest.main()
