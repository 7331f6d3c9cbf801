"""verify finds every single bit that changed; repair keeps every record that it did not hit."""

import os
import random
import unittest

import numpy as np
from changing import Changing, Saved, pieces, records_of, swap_last, verify
from loaderx_client import Loaderx
from support import MIB, ZRFS, noise, read_meta, run, say, text, write_store, zrfs

# ZRFS_FULL=1 flips every bit; else every seventh, which goes through all eight bits of a byte, and the whole header.
STEP = 1 if os.environ.get("ZRFS_FULL") == "1" else 7
HEADER_BITS = 16 * 8
# Raw and deflated by turns, about 60 bytes each.
RECORDS = [noise(61, 0), text(60, 1) * 2, noise(47, 2), text(75, 3) * 2, noise(3, 4), noise(64, 5)]


class Damaged(Changing):
    def setUp(self):
        super().setUp()
        self.make_store()
        self.header, self.entries = read_meta(self.store)
        self.assertEqual({e[4] for e in self.entries}, {0, 1}, "the records should be stored both ways")
        self.saved = Saved(self.store)

    def make_store(self):
        self.make(RECORDS)

    def put(self, name, offset, value):
        """Write over a part of a file as a disk that rots: no time of change tells of it."""
        path = self.store / name
        st = os.stat(path)
        with open(path, "r+b") as f:
            f.seek(offset)
            f.write(value)
        os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))

    def flip(self, name, bit):
        with open(self.store / name, "rb") as f:
            f.seek(bit // 8)
            byte = f.read(1)[0]
        self.put(name, bit // 8, bytes([byte ^ 1 << bit % 8]))

    def verified(self):
        """(exit status, indices that verify calls bad); what it says is in order."""
        done = zrfs("verify", self.store, check=None, timeout=60)
        if done.returncode:
            self.assert_clear(done, "store.zr")
        else:
            self.assertEqual((done.stderr, done.returncode), (b"", 0))
        bad = [line.split(b"\t") for line in done.stdout.splitlines() if b"\t" in line]
        for fields in bad:
            self.assertEqual(len(fields), 3, fields)
            self.assertTrue(all(fields), fields)
        return done.returncode, [int(fields[0]) for fields in bad]

    def repair(self):
        """`zrfs repair`, after which verify has nothing to say; gives back the records that are left."""
        done = zrfs("repair", self.store, timeout=60)
        self.assertNotEqual(done.stdout, b"")
        status, bad = self.verified()
        self.assertEqual((status, bad), (0, []), done.stdout)
        return records_of(self.store, [e[2] for e in read_meta(self.store)[1]])

    def assert_all_but(self, lost, found):
        """Everything is there, bit for bit: all of it, or all but the record that was hit."""
        self.assertIn(found, (RECORDS, swap_last(RECORDS, [lost])[0]))
        if len(found) < len(RECORDS):
            self.assertTrue(list((self.store / ".zrfs").glob("set-aside*")), "the damaged record is not kept anywhere")

    def repaired_or_refused(self, how):
        """What cannot be repaired is left as it is; whatever is brought back was there before."""
        before = {path: parts for path, (_, parts) in Saved(self.store).files.items()}
        done = zrfs("repair", self.store, check=None, timeout=60)
        if done.returncode:
            self.assert_clear(done, "store.zr")
            self.assertEqual({path: parts for path, (_, parts) in Saved(self.store).files.items()}, before)
            say(f"{how}: refused: {done.stderr.decode().strip()}")
            return
        self.assertEqual(self.verified(), (0, []))
        found = records_of(self.store)
        self.assertTrue(set(found) <= set(RECORDS), f"{how}: records that never were there")
        say(f"{how}: {len(found)} of {len(RECORDS)} records are back")

    def record_at(self, offset):
        """The record whose bytes lie there in chunk 0."""
        found = [i for i, e in enumerate(self.entries) if e[0] <= offset < e[0] + e[1]]
        self.assertEqual(len(found), 1, f"byte {offset} of 0.zr belongs to one record")
        return found[0]


class EveryBit(Damaged):
    def test_the_undamaged_store(self):
        found = self.assert_verified()
        self.assertEqual((found["records"], found["checked"], found["unchecked"]), (len(RECORDS), len(RECORDS), 0))
        self.assertEqual(self.verified(), (0, []))
        self.assertEqual(self.repair(), RECORDS)

    def test_header(self):
        length = len(RECORDS)
        unnoticed = 0
        for bit in range(HEADER_BITS):
            with self.subTest(byte=bit // 8, bit=bit % 8):
                self.saved.restore()
                self.flip("meta.zr", bit)
                status, _ = self.verified()
                shorter = length ^ 1 << bit - 96 if bit >= 96 else length
                if status == 0 and shorter < length:
                    # A smaller length, and nothing else, is also what loaderx leaves when it deletes the last records.
                    unnoticed += 1
                    self.assertEqual(self.repair(), RECORDS[:shorter])
                else:
                    self.assertEqual(status, 1)
                    self.assertEqual(self.repair(), RECORDS)
        say(f"{HEADER_BITS} bits of the header, {unnoticed} of them taken for a delete by loaderx")

    def test_table(self):
        bits = range(HEADER_BITS, HEADER_BITS * (1 + len(RECORDS)), STEP)
        for bit in bits:
            index = bit // HEADER_BITS - 1
            with self.subTest(entry=index, byte=bit // 8 % 16, bit=bit % 8):
                self.saved.restore()
                self.flip("meta.zr", bit)
                status, bad = self.verified()
                self.assertEqual(status, 1)
                # The table as a whole may be found damaged; no other record may be.
                self.assertIn(bad, ([], [index]))
                self.assert_all_but(index, self.repair())
        say(f"{len(bits)} bits of the table")

    def test_chunk(self):
        bits = range(0, 8 * self.header[3], STEP)
        for bit in bits:
            index = self.record_at(bit // 8)
            with self.subTest(record=index, byte=bit // 8, bit=bit % 8):
                self.saved.restore()
                self.flip("0.zr", bit)
                self.assertEqual(self.verified(), (1, [index]))
                self.assertEqual(self.repair(), swap_last(RECORDS, [index])[0])
                self.assertTrue(list((self.store / ".zrfs").glob("set-aside*")))
        say(f"{len(bits)} bits of 0.zr")

    def test_what_zrfs_itself_keeps(self):
        """Damage in .zrfs costs no record, and repair ends it."""
        names = [os.path.relpath(path, self.store) for path in self.saved.files if "/.zrfs/" in path]
        self.assertTrue(names, "zrfs keeps checksums somewhere in .zrfs")
        for name in names:
            used = [8 * (at + i) for at, page in pieces(self.store / name) for i in range(len(page.rstrip(b"\0")))]
            bits = used[:: 1 if STEP == 1 else max(1, len(used) // 60)]
            for number, bit in enumerate(bits):
                with self.subTest(file=name, byte=bit // 8):
                    self.saved.restore()
                    self.flip(name, bit + number % 8)
                    self.assertEqual(records_of(self.store), RECORDS)
                    self.assertEqual(self.repair(), RECORDS)
            for how, damage in (
                ("cut", lambda path: os.truncate(path, 5)), ("empty", lambda path: os.truncate(path, 0)),
                ("gone", os.unlink), ("noise", lambda path: path.write_bytes(noise(5000, 1))),
            ):
                with self.subTest(file=name, damage=how):
                    self.saved.restore()
                    damage(self.store / name)
                    self.assertEqual(records_of(self.store), RECORDS)
                    self.assertEqual(self.repair(), RECORDS)
            say(f"{len(bits)} bits of {name}")


class JSON(Damaged):
    def test_a_bad_record(self):
        self.flip("0.zr", 8 * self.entries[2][0])
        status, found = verify(self.store)
        self.assertEqual(status, 1)
        self.assertEqual(found["records"], len(RECORDS))
        self.assertEqual(len(found["bad"]), 1, found)
        bad = found["bad"][0]
        offset, stored, _, chunk, _, _ = self.entries[2]
        self.assertEqual((bad["index"], bad["chunk"], bad["offset"], bad["stored_bytes"]), (2, chunk, offset, stored))
        self.assertTrue(bad["reason"])
        self.assertIsInstance(found["notes"], list)

    def test_a_fault_of_a_file(self):
        os.unlink(self.store / "0.zr")
        status, found = verify(self.store)
        self.assertEqual(status, 1)
        self.assertTrue(found["faults"] or len(found["bad"]) == len(RECORDS), found)
        self.assertTrue(all(isinstance(fault, str) for fault in found["faults"]))

    def test_several_bad_records(self):
        for index in (1, 4, 5):
            self.flip("0.zr", 8 * self.entries[index][0] + 3)
        self.assertEqual(self.verified(), (1, [1, 4, 5]))
        self.assertEqual([bad["index"] for bad in verify(self.store)[1]["bad"]], [1, 4, 5])
        self.assertEqual(self.repair(), swap_last(RECORDS, [1, 4, 5])[0])

    def test_reading_commands_change_nothing(self):
        self.flip("0.zr", 8 * self.entries[1][0])
        before = {path: (st.st_ino, st.st_mtime_ns) for path, (st, _) in Saved(self.store).files.items()}
        self.verified()
        verify(self.store)
        self.assertEqual({path: (st.st_ino, st.st_mtime_ns) for path, (st, _) in Saved(self.store).files.items()}, before)


class Lost(Damaged):
    """More than a bit."""

    def test_header_overwritten(self):
        for header in (bytes(16), b"\xff" * 16, noise(16, 1), b"ZREC" + bytes(12)):
            with self.subTest(header=header):
                self.saved.restore()
                self.put("meta.zr", 0, header)
                self.assertEqual(self.verified()[0], 1)
                self.assertEqual(self.repair(), RECORDS)

    def test_table_cut_short(self):
        for kept in (3, 1, 0):
            with self.subTest(kept=kept):
                self.saved.restore()
                os.truncate(self.store / "meta.zr", 16 + 16 * kept + 5)
                self.assertEqual(self.verified()[0], 1)
                found = self.repair()
                self.assert_same(found[:kept], RECORDS[:kept])
                self.assertTrue(set(found) <= set(RECORDS) and len(set(found)) == len(found))
                say(f"table cut behind entry {kept} of {len(RECORDS)}: {len(found)} records are back")

    def test_meta_of_zeros_or_too_small(self):
        zeros = lambda path: path.write_bytes(bytes(16 + 16 * len(RECORDS)))
        for how, damage in (
            ("zeros", zeros), ("a header's half", lambda path: os.truncate(path, 8)),
            ("empty", lambda path: os.truncate(path, 0)), ("noise", lambda path: path.write_bytes(noise(500, 1))),
        ):
            with self.subTest(meta=how):
                self.saved.restore()
                damage(self.store / "meta.zr")
                self.assertEqual(self.verified()[0], 1)
                self.repaired_or_refused(how)

    def test_chunk_cut_short(self):
        for index in (5, 3, 0):
            with self.subTest(cut_in=index):
                self.saved.restore()
                os.truncate(self.store / "0.zr", self.entries[index][0] + 2)
                status, bad = self.verified()
                self.assertEqual((status, bad), (1, list(range(index, len(RECORDS)))))
                self.assertEqual(self.repair(), RECORDS[:index])
                # It takes appends again.
                self.append([b"again"])
                self.assert_sound([*RECORDS[:index], b"again"])

    def test_hostile_bytes(self):
        rng = random.Random(1)
        size = 16 + 16 * len(RECORDS)
        for seed in range(150):
            with self.subTest(seed=seed):
                self.saved.restore()
                for _ in range(rng.randint(1, 4)):
                    name, end = rng.choice([("meta.zr", size), ("0.zr", self.header[3])])
                    at = rng.randrange(4 if name == "meta.zr" and rng.random() < 0.7 else 0, end)
                    value = rng.choice([b"\0", b"\xff", b"\x7f", b"\x80"]) * 16 if rng.random() < 0.5 else rng.randbytes(16)
                    self.put(name, at, value[:rng.randint(1, min(16, end - at))])
                # A size made of rubbish is not believed.
                for command in (["verify"], ["verify", "--json"], ["repair"], ["verify"]):
                    done = run("prlimit", f"--data={512 * MIB}", ZRFS, *command, self.store, timeout=60)
                    if done.returncode:
                        self.assert_clear(done, "store.zr")
                status, found = verify(self.store)
                # Without a checksum that fits nobody can tell rubbish from what another program has written.
                if status == 0 and found["unchecked"] == 0:
                    self.assertTrue(set(records_of(self.store)) <= set(RECORDS), "records that never were there")

    def test_two_entries_of_one_place(self):
        # The second of two entries that name the same bytes is one too many; which of them stays is repair's choice.
        self.put("meta.zr", 16 + 16 * 3, b"".join(v.to_bytes(4, "little") for v in self.entries[2][:3]) + b"\0\0\0\0")
        self.assertEqual(self.verified()[0], 1)
        self.assert_all_but(3, self.repair())


class ByLoaderx(Damaged):
    """Nothing is known of the bytes of a store that loaderx made: only what contradicts itself is bad."""

    def make_store(self):
        with Loaderx() as loaderx:
            loaderx.append(self.store, RECORDS)

    def test_the_undamaged_store(self):
        found = self.assert_verified()
        self.assertEqual((found["records"], found["checked"], found["unchecked"]), (6, 0, 6))
        self.assertEqual(self.repair(), RECORDS)
        with Loaderx() as loaderx:
            self.assert_same(loaderx.read(self.store), RECORDS)

    def test_magic_and_version(self):
        for bit in range(48):
            with self.subTest(byte=bit // 8, bit=bit % 8):
                self.saved.restore()
                self.flip("meta.zr", bit)
                self.assertEqual(self.verified()[0], 1)

    def test_table(self):
        missed = 0
        bits = range(HEADER_BITS, HEADER_BITS * (1 + len(RECORDS)), 3 * STEP)
        for bit in bits:
            index = bit // HEADER_BITS - 1
            with self.subTest(entry=index, byte=bit // 8 % 16, bit=bit % 8):
                self.saved.restore()
                self.flip("meta.zr", bit)
                status, bad = self.verified()
                missed += status == 0
                if bad in ([], [index]):
                    # Whatever becomes of the record that was hit, the others stay.
                    left = self.repair()
                    self.assertTrue(set(swap_last(RECORDS, [index])[0]) <= set(left))
        say(f"{len(bits)} bits of the table, {missed} unnoticed")

    def test_deflated_bytes(self):
        index = next(i for i, e in enumerate(self.entries) if e[4] == 1)
        offset, stored = self.entries[index][:2]
        # 0xff begins a block of a type that Deflate does not have.
        self.put("0.zr", offset, b"\xff" * stored)
        self.assertEqual(self.verified(), (1, [index]))
        self.assertEqual(self.repair(), swap_last(RECORDS, [index])[0])

    def test_header_lost(self):
        self.put("meta.zr", 0, noise(16, 1))
        self.assertEqual(self.verified()[0], 1)
        self.repaired_or_refused("loaderx's header overwritten")


class OtherStores(Changing):
    def test_by_hand_over_two_chunks(self):
        records = [noise(500, 1), noise(300, 2)]
        write_store(self.store, [(40, 500, 500, 0, 0, 0), (0, 300, 300, 1, 0, 0)], {0: {40: records[0]}, 1: {0: records[1]}})
        self.assertEqual(self.assert_verified()["unchecked"], 2)
        os.unlink(self.store / "0.zr")
        status, found = verify(self.store)
        self.assertEqual((status, [bad["index"] for bad in found["bad"]]), (1, [0]))
        # It may be found again.
        self.assert_clear(zrfs("repair", self.store, check=None), "0.zr", "missing")
        (self.store / "0.zr").touch()
        zrfs("repair", self.store)
        self.assert_sound(records[1:])

    def test_checked_after_every_way_to_write(self):
        rows = np.arange(60, dtype="<i8")
        np.save(self.dir / "a.npy", rows)
        zrfs("import", self.dir / "a.npy", self.store)
        records = [int(i).to_bytes(8, "little") for i in rows]
        for change in ("append", "delete", "compact", "seal", "undo", "repair"):
            with self.subTest(after=change):
                if change == "append":
                    zrfs("import", "--append", self.dir / "a.npy", self.store)
                    records = records * 2
                elif change == "delete":
                    records, _ = self.delete([0, 50, 100], records)
                elif change == "undo":
                    zrfs("seal", "--undo", self.store)
                else:
                    zrfs(change, self.store)
                self.assertEqual(self.assert_verified()["unchecked"], 0)
                self.assert_holds(records)

    def test_large_records(self):
        self.make([noise(3 * MIB, 1), text(5 * MIB), b""])
        _, entries = read_meta(self.store)
        self.assertEqual(self.assert_verified()["checked"], 3)
        with open(self.store / "0.zr", "r+b") as f:
            f.seek(entries[0][0] + 2 * MIB)
            byte = f.read(1)[0]
            st = os.stat(f.fileno())
            f.seek(entries[0][0] + 2 * MIB)
            f.write(bytes([byte ^ 1]))
        os.utime(self.store / "0.zr", ns=(st.st_atime_ns, st.st_mtime_ns))
        status, found = verify(self.store)
        self.assertEqual((status, [bad["index"] for bad in found["bad"]]), (1, [0]))
        zrfs("repair", self.store)
        self.assert_sound([b"", text(5 * MIB)])


if __name__ == "__main__":
    unittest.main()
