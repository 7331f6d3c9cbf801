"""zrfs and loaderx change one store by turns, in any order, and never disagree about what it holds."""

import os
import random
import shutil
import unittest

from changing import Changing, MARK, remove, sample, swap_last, verify
from loaderx_client import Loaderx
from support import META_SIZE, noise, read_header, say, zrfs

ROUNDS = int(os.environ.get("ZRFS_TURNS", "70"))


class Turns(Changing):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.loaderx = cls.enterClassContext(Loaderx())

    # The turns: each changes the store and self.records alike.

    def some_new(self, rng):
        self.made += 1
        return [sample(rng, 1000 * self.made + i, 900) for i in range(rng.randint(1, 12))]

    def some_old(self, rng):
        n = len(self.records)
        return rng.choices(range(n), k=rng.randint(1, max(1, n // 4))) if n else []

    def zrfs_append(self, rng):
        more = self.some_new(rng)
        self.append(more, "--codec", rng.choice(["flate", "raw"]))
        self.records = self.records + more

    def loaderx_append(self, rng):
        more = self.some_new(rng)
        self.loaderx.append(self.store, more, rng.choice(["flate", "raw"]))
        self.records = self.records + more

    def zrfs_delete(self, rng):
        some = self.some_old(rng)
        if some:
            self.records, _ = self.delete(some, self.records, rng=rng)

    def loaderx_delete(self, rng):
        some = self.some_old(rng)
        self.loaderx.delete(self.store, some)
        self.records, _ = swap_last(self.records, some)

    def zrfs_compact(self, rng):
        self.compact()
        self.assert_dense()

    def loaderx_compact(self, rng):
        self.loaderx.compact(self.store)

    def zrfs_repair(self, rng):
        # Nothing is damaged, so nothing is to be repaired.
        zrfs("repair", self.store)

    def zrfs_seal(self, rng):
        zrfs("seal", self.store)
        self.assertLess(os.path.getsize(self.store / "meta.zr"), META_SIZE)
        self.assert_sound(self.records)
        self.assert_same(self.loaderx.read(self.store), self.records)
        zrfs("seal", self.store, "--undo")
        self.assertEqual(os.path.getsize(self.store / "meta.zr"), META_SIZE)

    def everyone_replaced(self, rng):
        # The store is all new to zrfs, though it may look as before.
        self.loaderx.delete(self.store, range(len(self.records)))
        self.loaderx.compact(self.store)
        self.records = []
        self.loaderx_append(rng)

    TURNS = {
        zrfs_append: 6, loaderx_append: 6, zrfs_delete: 4, loaderx_delete: 4, zrfs_compact: 3, loaderx_compact: 3,
        zrfs_repair: 1, zrfs_seal: 1, everyone_replaced: 1,
    }

    def play(self, seed, first):
        rng = random.Random(seed)
        remove(self.store)
        self.made, self.records = seed * 1000, []
        if first == "zrfs":
            self.records = self.some_new(rng)
            self.make(self.records)
        else:
            self.loaderx_append(rng)
        done = [f"{first} begins"]
        for number in range(ROUNDS):
            turn = rng.choices(list(self.TURNS), list(self.TURNS.values()))[0]
            done.append(turn.__name__)
            try:
                turn(self, rng)
                self.assertEqual(read_header(self.store)[1] & MARK, 0)
                self.assert_sound(self.records)
                if number % 10 == 9:
                    self.assert_same(self.loaderx.read(self.store), self.records)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, after {', '.join(done)}") from error
        self.assert_same(self.loaderx.read(self.store), self.records)
        self.compact()
        self.assertEqual(self.compact(), 0)
        self.assert_sound(self.records)
        with self.mount(self.store) as mount:
            self.assertEqual([mount.read(i) for i in range(len(self.records))], self.records)


class RandomTurns(Turns):
    def test_random_turns(self):
        for seed in range(6):
            first = ("zrfs", "loaderx")[seed % 2]
            with self.subTest(seed=seed, first=first):
                self.play(seed, first)
        say(f"6 stores, {ROUNDS} turns each")


class NewBytesInAnOldPlace(Turns):
    """What loaderx puts where zrfs has known something else is not bad, however much it looks like it."""

    LENGTH = 100

    def known(self, n):
        """A store of zrfs: every record is as long as the others, and stored raw."""
        self.records = [noise(self.LENGTH, 50 + i) for i in range(n)]
        self.make(self.records, "--codec", "raw")
        self.assertEqual(self.assert_verified()["unchecked"], 0)
        return self.table(n)

    def table(self, n):
        with open(self.store / "meta.zr", "rb") as f:
            return f.read(16 + 16 * n)

    def assert_looks_the_same(self, table):
        """Header and table are those that zrfs has written: only the bytes of a record differ."""
        self.assertEqual(self.table(len(self.records)), table)
        self.assert_sound(self.records)
        zrfs("repair", self.store)
        self.assert_sound(self.records)

    def test_the_last_one_replaced(self):
        table = self.known(3)
        self.loaderx.delete(self.store, [2])
        self.loaderx.append(self.store, [noise(self.LENGTH, 1)], "raw")
        self.loaderx.compact(self.store)
        self.records[2] = noise(self.LENGTH, 1)
        self.assert_looks_the_same(table)

    def test_all_replaced(self):
        table = self.known(5)
        self.loaderx.delete(self.store, range(5))
        self.loaderx.compact(self.store)
        self.records = [noise(self.LENGTH, i) for i in range(5)]
        self.loaderx.append(self.store, self.records, "raw")
        self.assert_looks_the_same(table)

    def test_deleted_and_no_more(self):
        # loaderx writes nothing but a smaller length. A damaged one looks the same, so that is told; no record is called
        # bad, and none is given up unasked.
        self.known(6)
        self.loaderx.delete(self.store, [3, 4, 5])
        status, found = verify(self.store)
        self.assertEqual((status, found["bad"]), (1, []))
        self.assertIn("another program has deleted the last records", found["faults"][0])
        self.assert_clear(zrfs("compact", self.store, check=None), "--accept", "repair")
        self.records = self.records[:3]
        self.assert_holds(self.records)
        zrfs("compact", "--accept", self.store)
        self.assert_sound(self.records)

    def test_deleted_and_appended_to(self):
        self.known(6)
        self.loaderx.delete(self.store, [4, 5])
        self.records = [*self.records[:4], noise(self.LENGTH, 9)]
        self.append(self.records[4:], "--codec", "raw")
        self.assert_sound(self.records)

    def test_moved_to_another_s_place(self):
        self.known(4)
        self.loaderx.delete(self.store, [0])
        self.loaderx.compact(self.store)
        self.records = [self.records[3], *self.records[1:3]]
        self.assert_sound(self.records)
        more = [noise(self.LENGTH, 9)]
        self.append(more, "--codec", "raw")
        self.records += more
        found = self.assert_verified()
        self.assertGreaterEqual(found["checked"], 1, "zrfs knows what it has appended itself")
        self.assert_sound(self.records)

    def test_a_store_that_was_made_anew(self):
        # The folder is the same, and what zrfs has left in it.
        table = self.known(3)
        other = self.dir / "other.zr"
        self.records = [noise(self.LENGTH, i) for i in range(3)]
        self.loaderx.append(other, self.records, "raw")
        for name in ("meta.zr", "0.zr"):
            shutil.move(other / name, self.store / name)
        self.assert_looks_the_same(table)

if __name__ == "__main__":
    unittest.main()
