"""Disks that are full, limits on files, files that may not be read, file systems that are read-only."""

import contextlib
import json
import os
import random
import shutil
import unittest

from changing import Changing, PAGE, Saved, fingerprint, sample, start, swap_last, verify
from support import KIB, MIB, NOBODY, ZRFS, as_nobody, make_folder, noise, read_header, run, say, snapshot, zrfs


class FullDisk(Changing):
    """A store on a disk of 1 MiB."""

    def setUp(self):
        super().setUp()
        self.need_root()
        self.disk = self.dir / "disk"
        self.disk.mkdir()
        run("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", self.disk, check=0)
        self.addCleanup(run, "umount", self.disk, check=0)
        self.records = [noise(3000 + 10 * i, i) for i in range(30)]
        self.store = self.disk / "store.zr"
        make_folder(self.dir / "source", self.records)
        zrfs("import", self.dir / "source", self.store)

    def free(self):
        st = os.statvfs(self.disk)
        return st.f_bfree * st.f_frsize

    def fill_by_appends(self, sizes=(5000, 700, 1)):
        """Append until the disk takes no more, of records of each size."""
        seed = 1000
        for size in sizes:
            for _ in range(300):
                more = [noise(size, seed + i) for i in range(20)]
                seed += 20
                header, listed = read_header(self.store), sorted(os.listdir(self.store))
                done = self.append(more, check=None)
                if done.returncode:
                    self.assert_clear(done, "space")
                    self.assertEqual(read_header(self.store), header)
                    self.assertEqual(sorted(os.listdir(self.store)), listed)
                    break
                self.records = self.records + more
            else:
                self.fail("the disk never was full")

    @contextlib.contextmanager
    def filled_up(self):
        """Not one block is left, as long as the block of code lasts."""
        filler = self.disk / "filler"
        with open(filler, "wb", buffering=0) as f, contextlib.suppress(OSError):
            while True:
                f.write(bytes(PAGE))
        self.assertEqual(self.free(), 0)
        try:
            yield
        finally:
            filler.unlink()

    def test_a_refused_append_costs_nothing(self):
        self.fill_by_appends()
        self.assert_sound(self.records)
        say(f"{len(self.records)} records, {self.free()} bytes free, {sorted(os.listdir(self.store))}")
        # What the last ones wrote before they were refused has been given back.
        before = self.free()
        for _ in range(5):
            self.assert_clear(self.append([noise(300 * KIB, 1)], check=None), "space")
            self.assertEqual(self.free(), before)
        self.assert_sound(self.records)
        with self.filled_up():
            self.assert_clear(self.append([noise(PAGE, 1)], check=None), "space")
            self.assert_sound(self.records)
        self.assert_sound(self.records)

    def test_delete_and_compact_make_room_again(self):
        self.fill_by_appends((5000, 700))
        full = self.free()
        rng = random.Random(1)
        some = rng.sample(range(len(self.records)), len(self.records) // 2)
        self.records, _ = self.delete(some, self.records)
        self.assert_sound(self.records)
        self.assertGreater(self.compact(), 0)
        self.assert_dense()
        self.assert_sound(self.records)
        self.assertGreater(self.free(), full + 200 * KIB)
        # The room is good for new records.
        more = [noise(5000, i) for i in range(30)]
        self.append(more)
        self.records = self.records + more
        self.assert_sound(self.records)
        self.fill_by_appends((5000,))
        self.assert_sound(self.records)

    def test_not_one_block_left(self):
        """Then a change is done as always, or refused before it has begun."""
        for args in (["delete", self.store, "0 7 12-20"], ["compact", self.store], ["repair", self.store]):
            with self.subTest(command=args[0]), self.filled_up():
                before = fingerprint(self.store)
                done = zrfs(*args, check=None)
                say(f"{args[0]}, 0 bytes free: status {done.returncode} {done.stderr.decode().strip()}")
                if done.returncode:
                    self.assert_clear(done, "space")
                    self.assertEqual(fingerprint(self.store), before)
                elif args[0] == "delete":
                    self.records, _ = swap_last(self.records, [0, 7, *range(12, 21)])
                self.assert_sound(self.records)
        self.records, _ = self.delete([1, 2, 3], self.records)
        self.compact()
        self.assert_sound(self.records)

    def test_a_new_store_that_does_not_fit(self):
        make_folder(self.dir / "large", [noise(MIB, 1), noise(MIB, 2)])
        before = sorted(os.listdir(self.disk))
        self.assert_clear(zrfs("import", self.dir / "large", self.disk / "new.zr", check=None), "space")
        self.assertEqual(sorted(os.listdir(self.disk)), before)


class FileSizeLimit(Changing):
    """A write past the limit of a process is an error, no signal."""

    def limited(self, size, *args, **kwargs):
        done = run("prlimit", f"--fsize={size}", ZRFS, *args, **kwargs)
        self.assertGreaterEqual(done.returncode, 0, "ended by a signal")
        return done

    def setUp(self):
        super().setUp()
        self.records = [noise(10_000, i) for i in range(30)]
        self.make(self.records)

    def test_append(self):
        make_folder(self.dir / "more", [noise(10_000, 100 + i) for i in range(30)])
        for size in (0, 1, 4096, 300_000, 300_001, 450_000, 599_999):
            with self.subTest(limit=size):
                before = {name: found for name, found in fingerprint(self.store).items() if name.endswith("zr")}
                done = self.limited(size, "import", "--append", self.dir / "more", self.store)
                self.assert_clear(done, "store.zr", "too large")
                self.assertEqual({name: found for name, found in fingerprint(self.store).items() if name in before}, before)
                self.assert_sound(self.records)
        zrfs("import", "--append", self.dir / "more", self.store)
        self.assert_sound(self.records + [noise(10_000, 100 + i) for i in range(30)])

    def test_delete_compact_seal_repair(self):
        saved = Saved(self.store)
        for size in (0, 16, 100, 4096, 100_000):
            for args in (["delete", self.store, "0 5-9"], ["compact", self.store], ["seal", self.store], ["repair", self.store]):
                with self.subTest(limit=size, command=args[0]):
                    saved.restore()
                    done = self.limited(size, *args)
                    if done.returncode:
                        self.assert_clear(done, "store.zr")
                    # Done or not done, nothing between; and what follows goes on without a limit.
                    whole = swap_last(self.records, [0, *range(5, 10)])[0] if args[0] == "delete" else self.records
                    status, found = verify(self.store)
                    self.assertEqual(status, 0, found)
                    left = whole if done.returncode == 0 or found["records"] == len(whole) else self.records
                    self.compact()
                    self.assert_sound(left)


class ReadOnly(Changing):
    def setUp(self):
        super().setUp()
        self.need_root()
        self.records = [sample(random.Random(1), i) for i in range(20)]
        self.make(self.records)
        self.fixed = self.dir / "fixed"
        self.fixed.mkdir()
        make_folder(self.dir / "more", [b"more"])

    def assert_read_only(self):
        before = snapshot(self.store)
        self.assert_same([zrfs("cat", self.fixed, str(i)).stdout for i in range(20)], self.records)
        zrfs("stats", self.fixed, "--json")
        self.assertEqual(verify(self.fixed)[0], 0)
        with self.mount(self.fixed) as mount:
            self.assertEqual(mount.read(3), self.records[3])
        for args in (
            ["delete", self.fixed, "0"], ["compact", self.fixed], ["repair", self.fixed], ["seal", self.fixed],
            ["seal", "--undo", self.fixed], ["import", "--append", self.dir / "more", self.fixed],
        ):
            with self.subTest(command=args[0]):
                self.assert_clear(zrfs(*args, check=None), "fixed", "read-only")
        self.assertEqual(snapshot(self.store), before)

    def test_read_only_mount(self):
        run("mount", "-o", "bind,ro", self.store, self.fixed, check=0)
        try:
            if not os.statvfs(self.fixed).f_flag & os.ST_RDONLY:
                run("mount", "-o", "remount,ro,bind", self.fixed, check=0)
            self.assert_read_only()
        finally:
            run("umount", self.fixed, check=0)

    def test_a_change_under_way_on_a_read_only_mount(self):
        # A delete that was killed, or had ended: reading sees one or the other, and writes nothing.
        process = start("delete", self.store, "0 3 5")
        process.kill()
        process.wait()
        run("mount", "-o", "bind,ro", self.store, self.fixed, check=0)
        try:
            before = snapshot(self.store)
            status, found = verify(self.fixed)
            self.assertEqual(status, 0)
            self.assertIn(found["records"], (17, 20))
            self.assertEqual(len(zrfs("ls", self.fixed).stdout.splitlines()), found["records"])
            self.assertEqual(snapshot(self.store), before)
        finally:
            run("umount", self.fixed, check=0)


class Unreadable(Changing):
    """A chunk that cannot be read is told, and costs nobody a record."""

    def setUp(self):
        super().setUp()
        self.records = [sample(random.Random(2), i) for i in range(20)]
        self.make(self.records)
        make_folder(self.dir / "more", [b"more"])
        self.chunk = self.store / "0.zr"

    CHANGES = (["delete", "0 5"], ["compact"], ["repair"], ["seal"])

    def as_owner(self):
        """The store becomes nobody's, who may run the program, wherever that lies. Gives back the program."""
        self.need_root()
        program = self.dir / "bin" / os.path.basename(ZRFS)
        program.parent.mkdir()
        shutil.copy(ZRFS, program)
        self.dir.chmod(0o755)
        run("chown", "-R", f"{NOBODY}:{NOBODY}", self.store, check=0)
        run("chmod", "-R", "a+rX", self.dir / "more", check=0)
        return program

    def test_without_permission(self):
        program = self.as_owner()
        nobody = lambda *args: run(*as_nobody(program, *args), cwd="/")
        self.assertEqual(nobody("cat", self.store, "3").stdout, self.records[3])
        self.chunk.chmod(0)
        before = fingerprint(self.store)
        self.assert_clear(nobody("cat", self.store, "3"), "0.zr", "permission")
        done = nobody("verify", self.store)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(len(done.stderr.splitlines()), 1)
        # A delete needs no chunk.
        for command, *records in self.CHANGES[1:]:
            with self.subTest(command=command):
                # Nothing says that the records are damaged.
                self.assert_clear(nobody(command, self.store, *records), "permission")
                self.assertEqual(fingerprint(self.store), before)
        self.assert_clear(nobody("import", "--append", self.dir / "more", self.store), "permission")
        self.assertEqual(fingerprint(self.store), before)
        self.chunk.chmod(0o644)
        self.assertEqual(nobody("verify", self.store).returncode, 0)
        self.assertEqual(nobody("delete", self.store, "0 5").returncode, 0)
        self.assertEqual(nobody("compact", self.store).returncode, 0)
        self.assert_sound(swap_last(self.records, [0, 5])[0])

    def test_a_folder_that_may_not_be_written(self):
        program = self.as_owner()
        run("chown", "-R", "root:root", self.store, check=0)
        run("chmod", "-R", "a+rX,go-w", self.store, check=0)
        nobody = lambda *args: run(*as_nobody(program, *args), cwd="/")
        self.assertEqual(nobody("cat", self.store, "3").stdout, self.records[3])
        self.assertEqual(nobody("verify", self.store).returncode, 0)
        before = fingerprint(self.store)
        for command, *records in self.CHANGES:
            with self.subTest(command=command):
                self.assert_clear(nobody(command, self.store, *records), "permission")
        self.assert_clear(nobody("import", "--append", self.dir / "more", self.store), "permission")
        self.assertEqual(fingerprint(self.store), before)

    def test_replaced_by_a_folder_or_gone(self):
        aside = self.dir / "aside"
        os.rename(self.chunk, aside)
        for how in ("folder", "gone"):
            if how == "folder":
                self.chunk.mkdir()
            with self.subTest(chunk=how):
                before = fingerprint(self.store)
                status, found = verify(self.store)
                self.assertEqual(status, 1)
                self.assertTrue(found["bad"] or found["faults"])
                for args in (["compact", self.store], ["import", "--append", self.dir / "more", self.store]):
                    self.assert_clear(zrfs(*args, check=None), "0.zr")
                self.assertEqual(fingerprint(self.store), before, "and nothing is created, 0.zr least of all")
            if how == "folder":
                self.chunk.rmdir()
        os.rename(aside, self.chunk)
        self.assert_sound(self.records)

    def test_the_folder_zrfs_is_a_file(self):
        # Someone else's file of that name is not written over.
        shutil.rmtree(self.store / ".zrfs", ignore_errors=True)
        (self.store / ".zrfs").write_bytes(b"mine")
        self.assert_same([zrfs("cat", self.store, str(i)).stdout for i in range(20)], self.records)
        for command, *records in (["delete", "0 5"], ["compact"]):
            done = zrfs(command, self.store, *records, check=None)
            if done.returncode:
                self.assert_clear(done, ".zrfs")
            elif command == "delete":
                self.records, _ = swap_last(self.records, [0, 5])
        self.assertEqual((self.store / ".zrfs").read_bytes(), b"mine")
        self.assert_holds(self.records)


class LargeRecords(Changing):
    """Records that do not fit through what is kept for a compaction: the gaps have to give their disk first."""

    def test_compact_with_nothing_free(self):
        self.need_root()
        disk = self.dir / "disk"
        disk.mkdir()
        run("mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", disk, check=0)
        self.addCleanup(run, "umount", "-l", disk)
        records = [noise(100_000, 0), *(noise(MIB, i) for i in range(1, 31))]
        store = disk / "store.zr"
        source = self.dir / "source"
        make_folder(source, records)
        zrfs("import", source, store, "--codec", "raw")
        with open(disk / "fill", "wb", buffering=0) as f:
            try:
                while True:
                    f.write(bytes(4096))
            except OSError:
                pass
        doomed = [0, *range(8, 16)]
        zrfs("delete", store, *map(str, doomed))
        records, _ = swap_last(records, doomed)
        self.assert_sound(records, store)
        done = zrfs("compact", store, check=None)
        say(f"compact, nothing free: status {done.returncode} {done.stdout.decode().splitlines()}")
        if done.returncode:
            self.assert_clear(done, "space")
        self.assert_sound(records, store)
        (disk / "fill").unlink()
        zrfs("compact", store)
        self.assert_sound(records, store)
        self.assertEqual(json.loads(zrfs("stats", store, "--json").stdout)["reclaimable"], 0)


if __name__ == "__main__":
    unittest.main()
