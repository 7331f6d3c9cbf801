"""Two processes append to one store at the same time: nothing is lost, and nothing is mixed up."""

import collections
import os
import random
import re
import subprocess
import threading
import unittest

import numpy as np
from changing import Changing, sample
from support import ZRFS, read_header, say, stop, wait_until, zrfs

PROGRAM = os.path.basename(ZRFS)[:15]
REFUSAL = re.compile(rb"process (\d+) \(%s\)" % re.escape(PROGRAM.encode()))
APPENDS = int(os.environ.get("ZRFS_APPENDS", "300"))
ROWS = 100


class Writer(threading.Thread):
    """Appends one small array after another, each by a process of its own; notes what came of it."""

    def __init__(self, number, folder, store):
        super().__init__()
        self.number, self.store = number, store
        self.source = folder / f"{number}.npy"
        self.done, self.refused, self.wrong, self.pids = [], [], [], set()

    def rows(self, turn):
        """Records that say who wrote them, when, and where they belong in their append."""
        return np.array([[self.number, turn, i] for i in range(ROWS)], "<i8")

    def run(self):
        for turn in range(APPENDS):
            np.save(self.source, self.rows(turn))
            with subprocess.Popen(
                [ZRFS, "import", "--append", self.source, self.store],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            ) as process:
                self.pids.add(process.pid)
                try:
                    said = process.communicate(timeout=120)[1]
                except subprocess.TimeoutExpired:
                    process.kill()
                    said = b"it did not end"
            if process.returncode == 0:
                self.done.append(turn)
            elif process.returncode == 1 and len(said.splitlines()) == 1 and REFUSAL.search(said):
                self.refused.append(int(REFUSAL.search(said)[1]))
            else:
                self.wrong.append((process.returncode, said))


class TwoWriters(Changing):
    def test_two_writers(self):
        np.save(self.dir / "first.npy", np.full((1, 3), -1, "<i8"))
        zrfs("import", self.dir / "first.npy", self.store)
        writers = [Writer(number, self.dir, self.store) for number in range(2)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        self.assertEqual([writer.wrong for writer in writers], [[], []])
        for writer, other in (writers, writers[::-1]):
            # Who is named is the other one, as the process it then was.
            self.assertTrue(set(writer.refused) <= other.pids, "a refusal names a process that is no writer")
        say(f"appends done: {[len(w.done) for w in writers]}, refused: {[len(w.refused) for w in writers]}")

        done = sum(len(writer.done) for writer in writers)
        self.assertGreater(done, 0)
        n = 1 + ROWS * done
        self.assertEqual(read_header(self.store)[4], n)
        rows = np.frombuffer(zrfs("cat", self.store, f"0-{n - 1}").stdout, "<i8").reshape(n, 3)
        self.assertEqual(rows[0].tolist(), [-1, -1, -1])
        # Each append is there once, whole and in a row, in the order of its writer.
        found = collections.defaultdict(list)
        for block in rows[1:].reshape(done, ROWS, 3):
            number, turn = int(block[0, 0]), int(block[0, 1])
            self.assertEqual(block.tobytes(), writers[number].rows(turn).tobytes())
            found[number].append(turn)
        self.assertEqual([found[writer.number] for writer in writers], [writer.done for writer in writers])
        self.assert_verified()

    def test_a_killed_holder_of_the_lock_blocks_nobody(self):
        # More than zrfs packs before it writes for the first time.
        block = np.random.default_rng(1).integers(0, 12, (1024, 1000), dtype="<i8")
        np.save(self.dir / "large.npy", np.tile(block, (20, 1)))
        np.save(self.dir / "small.npy", np.zeros((5, 1000), "<i8"))
        zrfs("import", self.dir / "small.npy", self.store)
        size = os.path.getsize(self.store / "0.zr")
        process = subprocess.Popen(
            [ZRFS, "import", "--append", "--level", "9", self.dir / "large.npy", self.store],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        try:
            begun = lambda: os.path.getsize(self.store / "0.zr") > size or process.poll() is not None
            wait_until(begun, "the append has begun", 60)
            stop(process.pid)
            self.assertIsNone(process.poll(), "the append was over before it could be stopped")
            for _ in range(3):
                done = zrfs("import", "--append", self.dir / "small.npy", self.store, check=None, timeout=30)
                self.assert_clear(done, f"process {process.pid} ({PROGRAM})")
        finally:
            process.kill()
            process.wait()
        zrfs("import", "--append", self.dir / "small.npy", self.store)
        self.assertEqual(read_header(self.store)[4], 10)
        self.assertEqual(zrfs("cat", self.store, "0-9").stdout, bytes(10 * 8000))
        self.assert_verified()

    def test_what_one_has_appended_the_other_sees(self):
        rng = random.Random(1)
        records = [sample(rng, 0)]
        self.make(records)
        for turn in range(20):
            more = [sample(rng, 10 * turn + i) for i in range(1, 5)]
            self.append(more)
            records += more
            self.assert_same([zrfs("cat", self.store, str(i)).stdout for i in range(len(records) - 4, len(records))], more)
        self.assert_sound(records)


if __name__ == "__main__":
    unittest.main()
