"""Damaged stores: a clear error for the command, EIO for the record in a mount, and everything else still readable."""

import errno
import os
import shutil
import struct
import subprocess
import unittest

from support import (
    ENTRY, MIB, ZRFS, Case, copy_store, daemons, import_folder, is_mounted, noise, read_header, read_meta, run, snapshot,
    text, wait_until, write_store, zrfs,
)

# Raw and Deflate by turns, of many sizes: what the flips hit is neither first nor last.
CONTENTS = [noise(700 + 13 * i, i) if i % 2 else text(900 + 57 * i, i) for i in range(24)]
ALL = f"0-{len(CONTENTS) - 1}"
RAW, DEFLATED = 11, 12
EIO = (errno.EIO,)


class Damage(Case):
    def setUp(self):
        super().setUp()
        self.good = import_folder(self.dir, "good.zr", CONTENTS)
        self.store = self.dir / "bad.zr"
        self.fresh()

    def fresh(self):
        """An undamaged copy to damage."""
        if self.store.is_dir():
            shutil.rmtree(self.store)
        elif self.store.exists():
            self.store.unlink()
        return copy_store(self.good, self.store)

    def patch(self, offset, value, name="meta.zr"):
        with open(self.store / name, "r+b") as f:
            f.seek(offset)
            f.write(value)

    def flip(self, offset, bit):
        with open(self.store / "meta.zr", "rb") as f:
            f.seek(offset)
            byte = f.read(1)[0]
        self.patch(offset, bytes([byte ^ (1 << bit)]))

    # What must hold however a store is damaged

    def command(self, *args, **kwargs):
        """A reading command on a damaged store: it ends by itself with 0, or with 1 and one clear line."""
        # A limit on memory, so that a size made of rubbish is not believed.
        done = run("prlimit", f"--data={512 * MIB}", ZRFS, *args, check=None, timeout=60, **kwargs)
        self.assertIn(done.returncode, (0, 1), (args, done.stderr))
        self.assertNotIn(b"panicked", done.stderr, args)
        if done.returncode:
            self.assert_clear(done)
        return done

    def read_all(self, right=None):
        """cat, ls and stats of the whole store; True where all of them were content."""
        right = CONTENTS if right is None else right
        cat = self.command("cat", self.store, ALL)
        whole = b"".join(right)
        if cat.returncode == 0:
            self.assertTrue(cat.stdout == whole, "cat gave wrong bytes")
        else:
            self.assertTrue(whole.startswith(cat.stdout), "cat gave wrong bytes before it failed")
        # A length made of rubbish lists millions of lines.
        listed = self.command("ls", self.store, stdout=subprocess.DEVNULL)
        others = [listed, self.command("stats", self.store), self.command("stats", self.store, "--json")]
        return not any(done.returncode for done in [cat, *others])

    def refused(self, *words):
        """All reading commands, and mount, refuse the store in one line that holds `words`."""
        for args in (["cat", self.store, "0"], ["ls", self.store], ["stats", self.store], ["stats", self.store, "--json"]):
            self.assert_clear(self.command(*args), *words)
        self.mount_refused(*words)

    def mount_refused(self, *words):
        self.mnt.mkdir(exist_ok=True)
        self.assert_clear(zrfs("mount", self.store, self.mnt, check=None), *words)
        self.assertFalse(is_mounted(self.mnt))
        self.assertEqual(daemons(self.mnt), [])

    def read_mounted(self, mount, damaged=(), right=None):
        """Every record of a mount: EIO for the damaged, right bytes for all others."""
        for i, content in enumerate(CONTENTS if right is None else right):
            if i in damaged:
                self.assert_errno(EIO, mount.read, i)
            else:
                self.assertTrue(mount.read(i) == content, f"records/{i:08}.bin")
        self.assertTrue(mount.alive(), "the daemon is gone")

    def damaged_records(self, damaged, *words):
        """The damaged records fail, by command and by mount; all others are right."""
        for i, content in enumerate(CONTENTS):
            if i in damaged:
                done = self.command("cat", self.store, str(i))
                self.assert_clear(done, *words)
                self.assertEqual(done.stdout, b"")
        rest = [i for i in range(len(CONTENTS)) if i not in damaged]
        done = zrfs("cat", self.store, " ".join(map(str, rest))) if rest else None
        self.assertTrue(not rest or done.stdout == b"".join(CONTENTS[i] for i in rest))
        self.command("ls", self.store)
        self.command("stats", self.store)
        with self.mount(self.store) as mount:
            self.assertEqual(len(mount.names()), len(CONTENTS))
            self.read_mounted(mount, damaged)


class Files(Damage):
    def test_the_undamaged_store(self):
        self.assertTrue(self.read_all())
        with self.mount(self.store) as mount:
            self.read_mounted(mount)

    def test_meta_truncated(self):
        for size in (0, 1, 15):
            with self.subTest(size=size):
                self.fresh()
                os.truncate(self.store / "meta.zr", size)
                self.refused("meta.zr")
        for size in (16, 17, 31, 32, 16 + 16 * len(CONTENTS) - 1):
            with self.subTest(size=size):
                self.fresh()
                os.truncate(self.store / "meta.zr", size)
                # The header promises more than the table holds: what it holds is still there.
                kept = (size - 16) // 16
                for args in (["cat", self.store, str(kept)], ["ls", self.store], ["stats", self.store]):
                    self.assert_clear(self.command(*args), "meta.zr")
                if kept:
                    cat = self.command("cat", self.store, f"0-{kept - 1}")
                    self.assertEqual((cat.returncode, cat.stdout), (0, b"".join(CONTENTS[:kept])))
                with self.mount(self.store) as mount:
                    for i, content in enumerate(CONTENTS):
                        if i < kept:
                            self.assertEqual(mount.read(i), content)
                        else:
                            self.assert_errno(EIO, mount.read, i)
                    self.assertTrue(mount.alive())
                done = zrfs("import", self.good, self.store, "--append", check=None)
                self.assertEqual(done.returncode, 1)

    def test_a_length_of_a_gib_from_a_mib_ends_in_an_error(self):
        shutil.rmtree(self.store)
        self.store.mkdir()
        header = struct.pack("<4sHHII", b"ZREC", 2, 0, 2 * MIB - 1, 2)
        bomb = struct.pack("<IIIHBB", 1, 1040448, 1 << 30, 0, 1, 0)
        good = struct.pack("<IIIHBB", 2 * MIB - 9, 8, 8, 0, 0, 0)
        (self.store / "meta.zr").write_bytes(header + bomb + good)
        with open(self.store / "0.zr", "wb") as f:
            f.seek(2 * MIB - 9)
            f.write(b"sample 1")
        self.assert_clear(self.command("cat", self.store, "0"), "record 0")
        self.assertEqual(self.command("cat", self.store, "1").stdout, b"sample 1")

    def test_meta_trimmed_after_the_last_entry_is_no_damage(self):
        os.truncate(self.store / "meta.zr", 16 + 16 * len(CONTENTS))
        self.assertTrue(self.read_all())
        with self.mount(self.store) as mount:
            self.read_mounted(mount)

    def test_meta_missing_or_a_directory(self):
        os.unlink(self.store / "meta.zr")
        self.refused("meta.zr")
        os.mkdir(self.store / "meta.zr")
        self.refused("meta.zr")

    def test_meta_a_fifo_does_not_hang(self):
        os.unlink(self.store / "meta.zr")
        os.mkfifo(self.store / "meta.zr")
        self.refused("meta.zr")

    def test_store_missing_or_a_file(self):
        shutil.rmtree(self.store)
        self.refused("bad.zr")
        self.store.write_bytes(b"not a store")
        self.refused("bad.zr")
        self.store.unlink()
        self.store.mkdir()
        self.refused("bad.zr")

    def test_wrong_magic(self):
        for magic in (b"\0\0\0\0", b"zrec", b"ZREX", b"PK\3\4"):
            with self.subTest(magic=magic):
                self.fresh()
                self.patch(0, magic)
                self.refused("meta.zr")

    def test_versions_that_do_not_exist(self):
        for version in (0, 3, 4, 255, 256, 0x7FFF, 0x8000, 0x8003, 0xFFFF):
            with self.subTest(version=version):
                self.fresh()
                self.patch(4, version.to_bytes(2, "little"))
                self.refused("version")

    def test_missing_chunk(self):
        os.unlink(self.store / "0.zr")
        self.damaged_records(range(len(CONTENTS)), "0.zr")

    def test_chunk_is_a_directory(self):
        os.unlink(self.store / "0.zr")
        os.mkdir(self.store / "0.zr")
        self.damaged_records(range(len(CONTENTS)), "0.zr")

    def test_short_chunk(self):
        _, entries = read_meta(self.store)
        end = entries[-1][0] + entries[-1][1]
        for size in (0, 1, entries[5][0], entries[9][0] + 1, end // 2, end - 1):
            with self.subTest(size=size):
                self.fresh()
                os.truncate(self.store / "0.zr", size)
                damaged = [i for i, e in enumerate(entries) if e[0] + e[1] > size]
                self.damaged_records(damaged, "0.zr")

    def test_deflate_data_overwritten(self):
        _, entries = read_meta(self.store)
        self.assertEqual((entries[RAW][4], entries[DEFLATED][4]), (0, 1))
        offset, size = entries[DEFLATED][:2]
        # 0xff begins a block of the type that Deflate does not have.
        self.patch(offset, b"\xff" * size, "0.zr")
        self.damaged_records([DEFLATED], str(DEFLATED))

    def test_deflate_data_of_another_length(self):
        # The data decodes, but to another length than the table says.
        _, entries = read_meta(self.store)
        for logic in (entries[DEFLATED][2] - 1, entries[DEFLATED][2] + 1):
            with self.subTest(logic=logic):
                self.fresh()
                self.patch(16 + 16 * DEFLATED + 8, logic.to_bytes(4, "little"))
                self.damaged_records([DEFLATED], str(DEFLATED))

    def test_entries_that_point_nowhere(self):
        (_, _, tail, frontier, _), entries = read_meta(self.store)
        offset, phys, logic, chunk, codec, _ = entries[RAW]
        for entry in (
            (offset, phys, logic, 1, codec, 0),
            (offset, phys, logic, 4095, codec, 0),
            (offset, phys, logic, 4096, codec, 0),
            (offset, phys, logic, 65535, codec, 0),
            (offset, phys, logic, chunk, 2, 0),
            (offset, phys, logic, chunk, 255, 0),
            (frontier, phys, logic, chunk, codec, 0),
            (0xFFFFFFFF, phys, logic, chunk, codec, 0),
            (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFF, 0, 0),
            (offset, phys, MIB + 1, chunk, 1, 0),
            (offset, 0xFFFFFFFF, logic, chunk, 1, 0),
            (offset, phys, logic + 1, chunk, codec, 0),
            (0, 0, 0, 0, 0, 0),
        ):
            with self.subTest(entry=entry):
                self.fresh()
                self.patch(16 + 16 * RAW, ENTRY.pack(*entry))
                self.damaged_records([RAW], str(RAW))


class Chunks(Damage):
    """A store that rolls over: two records in chunk 0, the second just below 4 GiB, two in chunk 1."""

    RECORDS = [b"first" * 20, b"last of 0" * 5, b"first of 1" * 9, noise(3000, 1)]

    def setUp(self):
        super().setUp()
        r = self.RECORDS
        high = (1 << 32) - 1 - len(r[1])
        shutil.rmtree(self.store)
        write_store(
            self.store,
            [(0, len(r[0]), len(r[0]), 0, 0, 0), (high, len(r[1]), len(r[1]), 0, 0, 0),
             (0, len(r[2]), len(r[2]), 1, 0, 0), (len(r[2]), len(r[3]), len(r[3]), 1, 0, 0)],
            {0: {0: r[0], high: r[1]}, 1: {0: r[2] + r[3]}},
        )

    def check(self, damaged, word):
        for i, record in enumerate(self.RECORDS):
            if i in damaged:
                self.assert_clear(self.command("cat", self.store, str(i)), word)
            else:
                self.assertEqual(zrfs("cat", self.store, str(i)).stdout, record)
        with self.mount(self.store) as mount:
            self.read_mounted(mount, damaged, self.RECORDS)

    def test_whole(self):
        self.check([], "")

    def test_chunk_0_missing(self):
        os.unlink(self.store / "0.zr")
        self.check([0, 1], "0.zr")

    def test_chunk_1_missing(self):
        os.unlink(self.store / "1.zr")
        self.check([2, 3], "1.zr")

    def test_chunk_0_short(self):
        os.truncate(self.store / "0.zr", 1 << 31)
        self.check([1], "0.zr")


class Flips(Damage):
    """Every single bit of the header and of two table entries."""

    def test_header(self):
        survived = 0
        for bit in range(128):
            with self.subTest(byte=bit // 8, bit=bit % 8):
                self.fresh()
                self.flip(bit // 8, bit % 8)
                content = self.read_all()
                if bit < 48:
                    self.assertFalse(content, "a wrong magic or version must be refused")
                    self.mount_refused("version" if bit >= 32 else "meta.zr")
                    continue
                self.mnt.mkdir(exist_ok=True)
                done = zrfs("mount", self.store, self.mnt, check=None)
                if done.returncode:
                    self.assert_clear(done)
                    self.assertFalse(is_mounted(self.mnt))
                    continue
                zrfs("umount", self.mnt)
                wait_until(lambda: not daemons(self.mnt), "the daemon ended")
                survived += 1
                with self.mount(self.store) as mount:
                    for i, content in enumerate(CONTENTS):
                        try:
                            self.assertTrue(mount.read(i) == content, f"records/{i:08}.bin")
                        except FileNotFoundError:
                            # A smaller length is a shorter store, as far as anybody can tell.
                            self.assertLess(read_header(self.store)[4], len(CONTENTS))
                            self.assertGreaterEqual(i, read_header(self.store)[4])
                        except OSError as error:
                            self.assertEqual(error.errno, errno.EIO)
                    self.assertTrue(mount.alive())

    def flip_entry(self, index, version=1):
        others = [i for i in range(len(CONTENTS)) if i != index]
        spelled = " ".join(map(str, others))
        right = b"".join(CONTENTS[i] for i in others)
        for bit in range(128):
            with self.subTest(byte=bit // 8, bit=bit % 8):
                self.fresh()
                if version == 2:
                    self.patch(4, b"\2\0")
                self.flip(16 + 16 * index + bit // 8, bit % 8)
                # Without a checksum a changed location may name other bytes: only the record itself may suffer.
                self.command("cat", self.store, str(index))
                self.command("ls", self.store)
                self.command("stats", self.store)
                self.assertTrue(zrfs("cat", self.store, spelled).stdout == right)
                with self.mount(self.store) as mount:
                    self.assertEqual(len(mount.names()), len(CONTENTS))
                    try:
                        mount.read(index)
                    except OSError as error:
                        self.assertEqual(error.errno, errno.EIO)
                    for i in others:
                        self.assertTrue(mount.read(i) == CONTENTS[i], f"records/{i:08}.bin")
                    self.assertTrue(mount.alive())

    def test_entry_of_a_raw_record(self):
        self.flip_entry(RAW)

    def test_entry_of_a_deflated_record(self):
        self.flip_entry(DEFLATED)


class Mounted(Damage):
    """Files that shrink under a mount: EIO, never zeros, never the end of the daemon."""

    def test_chunk_truncated(self):
        _, entries = read_meta(self.store)
        half = len(CONTENTS) // 2
        with self.mount(self.store) as mount:
            # Opened and mapped by the daemon before, but these bytes were not asked for.
            self.assertEqual(mount.read(0), CONTENTS[0])
            fd = os.open(mount.path(half + 3), os.O_RDONLY)
            try:
                os.truncate(self.store / "0.zr", entries[half][0] + 1)
                self.assert_errno(EIO, os.pread, fd, 10, 0)
            finally:
                os.close(fd)
            self.read_mounted(mount, range(half, len(CONTENTS)))
            os.truncate(self.store / "0.zr", 0)
            for i in range(half, len(CONTENTS)):
                self.assert_errno(EIO, mount.read, i)
            self.assertTrue(mount.alive())
            self.assertEqual(len(mount.names()), len(CONTENTS))

    def test_chunk_truncated_within_a_large_raw_record(self):
        large = noise(3 * MIB, 1)
        store = import_folder(self.dir, "large.zr", [b"first", large, b"last"])
        _, entries = read_meta(store)
        with self.mount(store) as mount:
            fd = os.open(mount.path(1), os.O_RDONLY)
            try:
                os.truncate(store / "0.zr", entries[1][0] + MIB + 1)
                for at in range(0, 3 * MIB, 65536):
                    try:
                        self.assertTrue(os.pread(fd, 65536, at) == large[at:at + 65536], f"wrong bytes at {at}")
                    except OSError as error:
                        self.assertEqual(error.errno, errno.EIO)
                self.assert_errno(EIO, os.pread, fd, 65536, 2 * MIB)
            finally:
                os.close(fd)
            self.assertEqual(mount.read(0), b"first")
            self.assert_errno(EIO, mount.read, 2)
            self.assertTrue(mount.alive())

    def test_meta_truncated(self):
        for size in (16 + 16 * 12, 16, 5, 0):
            with self.subTest(size=size):
                self.fresh()
                with self.mount(self.store) as mount:
                    self.assertEqual(mount.read(0), CONTENTS[0])
                    os.truncate(self.store / "meta.zr", size)
                    for i, content in enumerate(CONTENTS):
                        try:
                            self.assertTrue(mount.read(i) == content, f"records/{i:08}.bin")
                            # Without its entry a record cannot be found; only what the kernel keeps may answer.
                            self.assertTrue(16 + 16 * (i + 1) <= size or i == 0, f"records/{i:08}.bin")
                        except OSError as error:
                            self.assertEqual(error.errno, errno.EIO)
                    self.assertTrue(mount.alive())
                    run("ls", mount.records, timeout=20)
                    run("cat", mount.point / "stats", timeout=20)
                    run("df", mount.point, timeout=20)
                    self.assertTrue(mount.alive())

    def test_truncated_then_grown_again_with_zeros(self):
        # A sparse tail is not data that was written: no test can tell by size, so only other records are checked.
        _, entries = read_meta(self.store)
        half = len(CONTENTS) // 2
        with self.mount(self.store) as mount:
            os.truncate(self.store / "0.zr", entries[half][0])
            self.read_mounted(mount, range(half, len(CONTENTS)))
            os.truncate(self.store / "0.zr", entries[-1][0] + entries[-1][1])
            self.read_some(mount, half)

    def read_some(self, mount, n):
        for i in range(n):
            self.assertTrue(mount.read(i) == CONTENTS[i])
        self.assertTrue(mount.alive())

    def test_store_removed(self):
        with self.mount(self.store) as mount:
            shutil.rmtree(self.store)
            for i, content in enumerate(CONTENTS):
                try:
                    self.assertTrue(mount.read(i) == content)
                except OSError as error:
                    self.assertIn(error.errno, (errno.EIO, errno.ENOENT))
            self.assertTrue(mount.alive())


class ReadingWritesNothing(Damage):
    def read(self, store):
        zrfs("ls", store)
        zrfs("ls", store, "--json")
        zrfs("cat", store, ALL)
        zrfs("stats", store, "--json")
        with self.mount(store) as mount:
            self.read_mounted(mount)
            (mount.point / "stats").read_bytes()

    def test_store_is_as_before(self):
        before = snapshot(self.store)
        self.read(self.store)
        self.assertEqual(snapshot(self.store), before)

    def test_after_failures_too(self):
        os.unlink(self.store / "0.zr")
        before = snapshot(self.store)
        self.damaged_records(range(len(CONTENTS)), "0.zr")
        self.assertEqual(snapshot(self.store), before)

    def test_read_only_file_system(self):
        self.need_root()
        fixed = self.dir / "fixed"
        fixed.mkdir()
        run("mount", "--bind", self.store, fixed, check=0)
        try:
            run("mount", "-o", "remount,ro,bind", fixed, check=0)
            before = snapshot(self.store)
            self.read(fixed)
            self.assertEqual(snapshot(self.store), before)
        finally:
            run("umount", fixed, check=0)


if __name__ == "__main__":
    unittest.main()
