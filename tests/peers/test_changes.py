"""delete, compact and seal, as a user meets them, beside a plain Python list."""

import json
import os
import random
import shutil
import unittest

import numpy as np
from changing import (
    PAGE, Changing, disk, fingerprint, follow, sample, swap_last, write_empty_store,
)
from loaderx_client import Loaderx
from support import ENTRY, HEADER, KIB, META_SIZE, MIB, noise, read_header, read_meta, text, write_store, zrfs

SEAL_STEP = 64 * KIB


def stats(store):
    return json.loads(zrfs("stats", store, "--json").stdout)


class Model(unittest.TestCase):
    """The model itself, on what can be followed by hand."""

    def test_swap_last(self):
        self.assertEqual(swap_last(list("abcdef"), [1, 3]), (list("aecf"), {5: 3, 4: 1}))
        self.assertEqual(swap_last(list("abcdef"), [5, 0, 5]), (list("ebcd"), {4: 0}))
        # A record that takes a place, and then another's place, is told once.
        self.assertEqual(swap_last(list("abcd"), [1, 2]), (list("ad"), {3: 1}))
        self.assertEqual(swap_last(list("ab"), [0, 1]), ([], {}))

    def test_follow(self):
        self.assertEqual(follow(list("abcdef"), {5: 3, 4: 1}, 4), list("aecf"))


class Delete(Changing):
    def test_random_lists(self):
        for seed in range(12):
            rng = random.Random(seed)
            records = [sample(rng, i) for i in range(rng.choice([1, 2, 3, 5, 17, 60, 200]))]
            labels = [f"label {i}" for i in range(len(records))]
            self.make(records)
            while records:
                with self.subTest(seed=seed, records=len(records)):
                    # Any order, some twice, now and then a whole range.
                    some = rng.choices(range(len(records)), k=rng.randint(1, max(1, len(records) // 2)))
                    if rng.random() < 0.3:
                        some += range(min(some), max(some) + 1)
                    rng.shuffle(some)
                    labels_left, _ = swap_last(labels, some)
                    records, moves = self.delete(some, records, rng=rng)
                    labels = follow(labels, moves, len(records))
                    self.assertEqual(labels, labels_left)
                    self.assert_sound(records)

    def test_ranges(self):
        records = [b"<%d>" % i for i in range(300)]
        self.make(records)
        done = zrfs("delete", self.store, "7 12", "100-199, 299")
        records, moves = swap_last(records, [7, 12, *range(100, 200), 299])
        self.assertEqual(done.stdout.splitlines()[-1], b"%s: deleted 103 records, 197 left" % os.fsencode(self.store))
        self.assertEqual(len(done.stdout.splitlines()), len(moves) + 1)
        self.assert_sound(records)

    def test_everything_and_then_more(self):
        records = [sample(random.Random(1), i) for i in range(20)]
        self.make(records)
        self.assertEqual(self.delete(range(20), records), ([], {}))
        self.assert_sound([])
        self.append(records[:3])
        self.assert_sound(records[:3])

    def test_one_record(self):
        self.make([b"alone"])
        self.assertEqual(self.delete([0, 0], [b"alone"]), ([], {}))
        self.assert_sound([])

    def test_a_store_without_records(self):
        write_empty_store(self.store)
        self.assert_refused_unchanged(["delete", self.store, "0"])
        self.assert_sound([])

    def test_no_record_named(self):
        self.make([b"a", b"b"])
        before = fingerprint(self.store)
        zrfs("delete", self.store, check=2)
        done = zrfs("delete", self.store, "-", input=b"\n", check=None)
        self.assertIn(done.returncode, (0, 2), done)
        self.assertEqual(fingerprint(self.store)["meta.zr"], before["meta.zr"])
        self.assert_sound([b"a", b"b"])

    def test_one_that_is_not_there_and_all_stay(self):
        self.make([sample(random.Random(2), i) for i in range(30)])
        for spelling in ("30", "0 1 30", "29-30", "0-4294967295", "0 18446744073709551616"):
            with self.subTest(records=spelling):
                self.assert_refused_unchanged(["delete", self.store, spelling], "30")
        self.assert_refused_unchanged(["delete", self.store, "-"], "30", input=b"5\n30\n6\n")

    def test_what_is_no_record(self):
        self.make([b"a", b"b", b"c"])
        for spelling in ("x", "1-", "2-1", "1.0", "0x1", "+1"):
            with self.subTest(records=spelling):
                self.assert_refused_unchanged(["delete", self.store, "0", spelling], status=(1, 2))

    def test_what_is_no_store(self):
        (self.dir / "folder").mkdir()
        for command in (["delete", "0"], ["compact"], ["seal"], ["seal", "--undo"], ["repair"], ["verify"]):
            for name in ("absent", "folder"):
                with self.subTest(command=command, store=name):
                    done = zrfs(command[0], self.dir / name, *command[1:], check=None)
                    self.assert_clear(done, name)
        self.assertEqual(sorted(os.listdir(self.dir)), ["folder"])
        self.assertEqual(os.listdir(self.dir / "folder"), [])

    def test_many_from_standard_input(self):
        np.save(self.dir / "a.npy", np.arange(50_000, dtype="<i8"))
        zrfs("import", self.dir / "a.npy", self.store)
        records = [i.to_bytes(8, "little") for i in range(50_000)]
        records, _ = self.delete(random.Random(3).sample(range(50_000), 20_000), records)
        self.assert_sound(records)

    def test_empty_records_and_large_ones(self):
        records = [b"", noise(MIB + 1, 1), b"", text(3 * MIB), b"x", b""]
        self.make(records)
        self.assertEqual(read_header(self.store)[1], 2)
        for some in ([1], [0, 3], [0]):
            records, _ = self.delete(some, records)
            self.assert_sound(records)
            self.compact()
            self.assert_dense()
            self.assert_sound(records)

    def test_what_is_deleted_stays_on_disk_until_compact(self):
        records = [noise(10_000, i) for i in range(40)]
        self.make(records)
        before = stats(self.store)
        self.assertEqual((before["reclaimable"], before["freeable"]), (0, 0))
        records, _ = self.delete(range(10, 30), records)
        after = stats(self.store)
        self.assertEqual((after["records"], after["live_bytes"], after["reclaimable"]), (20, 200_000, 200_000))
        self.assertEqual(after["chunk_bytes"], before["chunk_bytes"])
        self.assertGreater(after["freeable"], 150_000)
        self.compact()
        self.assert_sound(records)
        after = stats(self.store)
        self.assertEqual((after["reclaimable"], after["freeable"], after["chunk_bytes"]), (0, 0, 200_000))


class With(Changing):
    """The labels of a store, in a store of their own, lose the same records."""

    def setUp(self):
        super().setUp()
        self.records = [sample(random.Random(4), i) for i in range(50)]
        self.make(self.records)
        self.labels = self.dir / "labels.zr"
        np.save(self.dir / "labels.npy", np.arange(50, dtype="<i8") ** 2)
        zrfs("import", self.dir / "labels.npy", self.labels)
        self.numbers = [(i * i).to_bytes(8, "little") for i in range(50)]

    def test_both_lose_the_same(self):
        rng = random.Random(5)
        while self.records:
            some = rng.choices(range(len(self.records)), k=min(len(self.records), 12))
            self.numbers, _ = swap_last(self.numbers, some)
            self.records, _ = self.delete(some, self.records, "--with", self.labels, rng=rng)
            self.assert_sound(self.records)
            self.assert_sound(self.numbers, self.labels)

    def test_two_others(self):
        third = self.make([b"%d" % i for i in range(50)], name="third.zr")
        zrfs("delete", self.store, "3 40-49", "--with", self.labels, "--with", third)
        gone = [3, *range(40, 50)]
        self.assert_sound(swap_last(self.records, gone)[0])
        self.assert_sound(swap_last(self.numbers, gone)[0], self.labels)
        self.assert_sound(swap_last([b"%d" % i for i in range(50)], gone)[0], third)

    def test_another_number_of_records(self):
        self.append([b"one more"])
        both = [self.store, self.labels]
        done = self.assert_refused_unchanged(["delete", self.store, "0", "--with", self.labels], "labels.zr", stores=both)
        self.assertRegex(done.stderr, b"50.*51|51.*50")

    def test_what_cannot_be_done_to_one_is_done_to_none(self):
        both = [self.store, self.labels]
        os.symlink(self.store, self.dir / "link.zr")
        for args in (
            ["50", "--with", self.labels], ["0", "--with", self.dir / "absent.zr"], ["0", "--with", self.store],
            ["0", "--with", self.dir / "link.zr"], ["0", "--with", self.labels, "--with", self.labels],
            ["0", "--with", self.labels, "--with", self.dir / "absent.zr"],
        ):
            with self.subTest(args=args):
                self.assert_refused_unchanged(["delete", self.store, *args], status=(1, 2), stores=both)


class Compact(Changing):
    def test_files_shrink(self):
        records = [noise(16 * KIB, i) for i in range(256)]
        self.make(records)
        before = disk(self.store / "0.zr")
        self.assertGreaterEqual(before, 4 * MIB)
        records, _ = self.delete(range(0, 256, 2), records)
        # The first byte belongs to a deleted record, so all that are left move.
        self.assertEqual(self.compact(), 128)
        self.assert_dense()
        self.assertEqual(os.path.getsize(self.store / "0.zr"), 2 * MIB)
        self.assertLessEqual(disk(self.store / "0.zr"), 2 * MIB + 4 * PAGE)
        self.assert_sound(records)

    def test_a_second_run_moves_nothing(self):
        records = [sample(random.Random(6), i) for i in range(60)]
        self.make(records)
        records, _ = self.delete([0, 5, 6, 7, 59, 30], records)
        self.assertGreater(self.compact(), 0)
        before = fingerprint(self.store)
        self.assertEqual(self.compact(), 0)
        after = fingerprint(self.store)
        self.assertEqual((after["0.zr"], after["meta.zr"]), (before["0.zr"], before["meta.zr"]))
        self.assert_sound(records)

    def test_physical_order_stays(self):
        for seed in range(8):
            with self.subTest(seed=seed):
                rng = random.Random(seed)
                records = [sample(rng, i) for i in range(80)]
                self.make(records)
                for _ in range(3):
                    records, _ = self.delete(rng.sample(range(len(records)), 15), records)
                    more = [sample(rng, i) for i in range(5)]
                    self.append(more)
                    records += more
                places = [(e[3], e[0]) for e in read_meta(self.store)[1]]
                order = sorted(range(len(places)), key=places.__getitem__)
                self.compact()
                places = [(e[3], e[0]) for e in read_meta(self.store)[1]]
                self.assertEqual(sorted(range(len(places)), key=places.__getitem__), order)
                self.assert_dense()
                self.assert_sound(records)

    def test_nothing_deleted(self):
        records = [sample(random.Random(7), i) for i in range(20)]
        self.make(records)
        before = fingerprint(self.store)
        self.assertEqual(self.compact(), 0)
        self.assertEqual(before["0.zr"], fingerprint(self.store)["0.zr"])
        self.assert_sound(records)

    def test_no_record_left(self):
        for records in ([], [noise(100_000, 1)] * 3):
            with self.subTest(records=len(records)):
                self.make(records)
                if records:
                    self.delete(range(3), records)
                self.assertEqual(self.compact(), 0)
                self.assert_dense()
                self.assertEqual(disk(self.store / "0.zr"), 0)
                self.append([b"again"])
                self.assert_sound([b"again"])

    def test_two_chunks_become_one(self):
        records = [noise(5000, 1), text(9000), noise(700, 2), b"x"]
        high = (1 << 32) - 1 - len(records[1])
        shutil.rmtree(self.store, ignore_errors=True)
        raw = [(at, len(r), len(r), chunk, 0, 0) for r, at, chunk in zip(records, [100, high, 0, 700], [0, 0, 1, 1])]
        write_store(self.store, raw, {0: {100: records[0], high: records[1]}, 1: {0: records[2] + records[3]}})
        self.assert_sound(records)
        self.assertEqual(self.compact(), 4)
        self.assert_dense()
        self.assert_sound(records)

    def test_loaderx_goes_on_after_it(self):
        records = [sample(random.Random(8), i) for i in range(50)]
        with Loaderx() as loaderx:
            # loaderx makes its chunk 4 GiB long.
            loaderx.append(self.store, records)
            for _ in range(3):
                records, _ = self.delete([0, 7, len(records) - 1], records)
                self.compact()
                self.assertLess(disk(self.store / "0.zr"), sum(map(len, records)) + MIB)
                self.assert_same(loaderx.read(self.store), records)
                loaderx.append(self.store, records[:2])
                records += records[:2]
                self.assert_sound(records)


class Seal(Changing):
    def assert_sealed(self, records):
        header, entries = read_meta(self.store)
        size = os.path.getsize(self.store / "meta.zr")
        self.assertEqual(size, -(-(HEADER.size + ENTRY.size * len(records)) // SEAL_STEP) * SEAL_STEP)
        self.assertEqual(os.path.getsize(self.store / f"{header[2]}.zr"), header[3])
        self.assert_sound(records)

    def test_seal_and_undo(self):
        for n in (0, 1, 40, 4095, 4096, 5000):
            with self.subTest(records=n), Loaderx() as loaderx:
                records = [b"<%d>" % i for i in range(n)]
                self.make(records)
                before = stats(self.store)
                done = zrfs("seal", self.store)
                self.assertIn(b"loaderx", done.stdout + done.stderr)
                self.assert_sealed(records)
                self.assertLess(stats(self.store)["apparent_bytes"], before["apparent_bytes"])
                self.assertLess(stats(self.store)["apparent_bytes"], 2 * MIB)
                self.assert_same(loaderx.read(self.store), records)
                # Once more changes nothing.
                zrfs("seal", self.store)
                self.assert_sealed(records)
                zrfs("seal", self.store, "--undo")
                self.assertEqual(os.path.getsize(self.store / "meta.zr"), META_SIZE)
                self.assert_sound(records)
                loaderx.append(self.store, [b"by loaderx"])
                self.assert_sound(records + [b"by loaderx"])

    def test_the_next_append_undoes_it(self):
        records = [sample(random.Random(9), i) for i in range(30)]
        self.make(records)
        zrfs("seal", self.store)
        self.append([b"one more"])
        self.assertEqual(os.path.getsize(self.store / "meta.zr"), META_SIZE)
        self.assert_sound(records + [b"one more"])

    def test_chunks_of_loaderx(self):
        records = [sample(random.Random(10), i) for i in range(30)]
        with Loaderx() as loaderx:
            loaderx.append(self.store, records)
            self.assertEqual(os.path.getsize(self.store / "0.zr"), 1 << 32)
            zrfs("seal", self.store)
            self.assert_sealed(records)
            self.assert_same(loaderx.read(self.store), records)
        apparent = stats(self.store)
        self.assertEqual(apparent["apparent_bytes"] // MIB, 0)
        self.assertGreater(apparent["allocated_bytes"], 0)

    def test_delete_and_compact_of_a_sealed_store(self):
        records = [sample(random.Random(11), i) for i in range(30)]
        self.make(records)
        zrfs("seal", self.store)
        records, _ = self.delete([3, 4, 29], records)
        self.assert_sound(records)
        self.compact()
        self.assert_dense()
        self.assert_sound(records)
        with Loaderx() as loaderx:
            self.assert_same(loaderx.read(self.store), records)


if __name__ == "__main__":
    unittest.main()
