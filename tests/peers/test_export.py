"""export: a folder comes out as it went in, tar archives are what GNU tar and Python read, arrays are what NumPy saved."""

import json
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import tarfile
import unittest

import numpy as np
from changing import Changing, sample, start
from support import ENTRY, MIB, ZRFS, make_folder, make_tree, noise, read_header, read_meta, run, say, wait_until, zrfs
from test_openclipart import clipart_root
from trees import odd_tree, tree_of


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


class Exporting(Changing):
    def setUp(self):
        super().setUp()
        self.out = self.dir / "out"

    def export(self, *args, check=0, **kwargs):
        return zrfs("export", self.store, *args, check=check, **kwargs)

    def assert_nothing_left(self, *names):
        """Nothing but these beside the store."""
        found = sorted(os.listdir(self.dir))
        self.assertEqual(found, sorted(["store.zr", *names]))

    def assert_trees_equal(self, found, expected):
        if found != expected:
            wrong = [path for path in found.keys() | expected.keys() if found.get(path) != expected.get(path)]
            first = min(wrong)
            self.fail(f"{len(wrong)} paths differ: {first!r} is {found.get(first)!r:.300}, not {expected.get(first)!r:.300}")

    def assert_no_difference(self, a, b, roots_time=True):
        """By the programs that people compare folders with."""
        run("diff", "-r", "--no-dereference", a, b, check=0)
        found = run("rsync", "-rltn", "--delete", "--modify-window=-1", "--itemize-changes", f"{a}/", f"{b}/", check=0).stdout
        found = [line for line in found.splitlines() if roots_time or line != b".d..t...... ./"]
        self.assertEqual(found, [])


class Trees(Exporting):
    """A store of a folder that has everything in it."""

    def setUp(self):
        super().setUp()
        self.tree = self.dir / "tree"
        self.files = odd_tree(self.tree)
        zrfs("import", self.tree, self.store, "--links", "keep")

    def test_a_folder_comes_out_as_it_went_in(self):
        for dest in ("out", "out2/", self.dir / "out3"):
            done = self.export(dest, cwd=self.dir)
            self.assertRegex(done.stdout, rb"exported %d records and 6 links" % len(self.files))
            self.assertEqual(done.stderr, b"")
        for out in (self.dir / "out", self.dir / "out2", self.dir / "out3"):
            self.assert_trees_equal(tree_of(out), tree_of(self.tree))
            self.assert_no_difference(self.tree, out)
        self.assert_nothing_left("tree", "out", "out2", "out3")

    def test_after_a_delete_what_is_left_comes_out_and_folders_stay(self):
        gone = [name for name in self.files if name.startswith(b"a/b/c/d/e/")]
        zrfs("delete", self.store, "--names", "-", "-0", input=b"".join(name + b"\0" for name in gone))
        self.export(self.out)
        expected = tree_of(self.tree)
        for name in gone:
            del expected[name]
        self.assert_trees_equal(tree_of(self.out), expected)
        self.assertIn(b"a/b/c/d/e", expected)

    def test_a_tar_is_what_gnu_tar_and_python_read(self):
        archive = self.dir / "all.tar"
        done = self.export(archive)
        self.assertRegex(done.stdout, rb"exported %d records and 6 links" % len(self.files))
        self.assertEqual(self.export("-").stdout, archive.read_bytes())
        # GNU tar: all of it, each time to the nanosecond. The folder to unpack into stays as it is.
        self.out.mkdir(mode=0o700)
        done = run("tar", "--warning=no-timestamp", "-xf", archive, "-C", self.out, check=0)
        self.assertEqual(done.stderr, b"")
        self.assert_trees_equal(tree_of(self.out, roots_time=False), tree_of(self.tree, roots_time=False))
        self.assert_no_difference(self.tree, self.out, roots_time=False)
        self.assertEqual(self.out.stat().st_mode & 0o777, 0o700)
        listed = run("tar", "-tf", archive, "--quoting-style=literal", "--show-transformed-names", check=0).stdout
        self.assertIn(b"caf\xe9\n", listed)
        # Python's tarfile: its times are floating point, and it gives links none.
        with tarfile.open(archive, encoding="utf-8", errors="surrogateescape") as tar:
            members = tar.getmembers()
            self.assertEqual(len({m.name for m in members}), len(members))
            files = {os.fsencode(m.name): tar.extractfile(m).read() for m in members if m.isfile()}
            for m in members:
                st = os.lstat(os.path.join(os.fsencode(self.tree), os.fsencode(m.name)))
                self.assertLess(abs(m.mtime * 1e9 - st.st_mtime_ns), 1000, m.name)
                self.assertEqual((m.isdir(), m.issym()), (os.path.stat.S_ISDIR(st.st_mode), os.path.stat.S_ISLNK(st.st_mode)))
                if m.isfile():
                    self.assertEqual(bool(m.mode & 0o100), bool(st.st_mode & 0o100), m.name)
        self.assertTrue(files == self.files)
        # Every file is before every link, whatever a reader does with links.
        kinds = [m.issym() or m.isdir() for m in members]
        self.assertEqual(kinds, sorted(kinds))

    def test_an_archive_goes_in_again(self):
        self.export(self.dir / "all.tar")
        zrfs("import", self.dir / "all.tar", self.dir / "again.zr", "--links", "keep")
        zrfs("export", self.dir / "again.zr", self.out)
        self.assert_trees_equal(tree_of(self.out, roots_time=False), tree_of(self.tree, roots_time=False))

    def test_a_tar_that_is_broken_off_does_not_look_whole(self):
        whole = self.export("-").stdout
        with subprocess.Popen([ZRFS, "export", self.store, "-"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            head = process.stdout.read(1000)
            process.stdout.close()
            said = process.stderr.read()
            process.wait()
        self.assertEqual((head, said), (whole[:1000], b""))
        self.assertIn(process.returncode, (0, -signal.SIGPIPE))
        self.assertTrue(whole.endswith(bytes(1024)))

    def test_some_records_and_the_folders_that_lead_there(self):
        order = [os.fsencode(json.loads(line)["name"]) for line in zrfs("ls", self.store, "--json").stdout.splitlines()]
        whole = tree_of(self.tree)
        rng = random.Random(3)
        for round in range(6):
            some = rng.sample(range(len(order)), rng.choice([1, 2, 10]))
            wanted = {b"."}
            for index in some:
                path = order[index]
                while path:
                    wanted.add(path)
                    path = os.path.dirname(path)
            expected = {path: whole[path] for path in wanted}
            out, archive = self.dir / f"out{round}", self.dir / f"{round}.tar"
            with self.subTest(indices=some):
                # Twice is once: they are files.
                self.export(out, *map(str, some + some[:1]))
                self.assert_trees_equal(tree_of(out), expected)
                names = b"".join(order[index] + b"\0" for index in some)
                self.export(archive, "--names", "-", "-0", input=names)
                with tarfile.open(archive, encoding="utf-8", errors="surrogateescape") as tar:
                    self.assertEqual({os.fsencode(name) for name in tar.getnames()} | {b"."}, wanted)
        self.export(self.dir / "none", "-", input=b"")
        self.assertEqual(os.listdir(self.dir / "none"), [])

    def test_refusals_change_nothing(self):
        (self.dir / "file").write_bytes(b"mine")
        (self.dir / "file.tar").write_bytes(b"mine")
        (self.dir / "file.npy").write_bytes(b"mine")
        (self.dir / "full").mkdir()
        (self.dir / "full" / "x").write_bytes(b"mine")
        (self.dir / "busy.partial").mkdir()
        (self.dir / "busy.partial" / "x").write_bytes(b"mine")
        os.symlink("nowhere", self.dir / "dangling")
        os.symlink("nowhere", self.dir / "dangling.tar")
        before = tree_of(self.dir, times=False)
        for dest, *words in (
            ("file", "exists"), ("file.tar", "exists"), ("full", "not empty"), ("full/", "not empty"), ("busy", "in the way"),
            ("dangling", "dangling"), ("dangling.tar", "exists"), ("file/x", "file/x"), ("no such/x", "no such"),
            (".", "name"), ("..", "name"), ("store.zr/x", "in the store"), ("store.zr/.zrfs/x.tar", "in the store"),
            ("store.zr", "not empty"), ("x.npy", "schema"), ("file.npy", "exists"),
        ):
            with self.subTest(dest=dest):
                self.assert_refused_unchanged(["export", self.store, dest], *words, cwd=self.dir)
                self.assert_trees_equal(tree_of(self.dir, times=False), before)
        self.assert_refused_unchanged(["export", self.store, self.out, "--names", "-"], "not there", input=b"none\n")
        self.assert_trees_equal(tree_of(self.dir, times=False), before)

    def test_an_empty_folder_is_filled(self):
        for mode in (0o750, 0o2555):
            self.out.mkdir()
            os.chmod(self.out, mode)
            self.export(self.out)
            self.assertEqual(self.out.stat().st_mode & 0o7777, mode)
            self.assert_trees_equal(tree_of(self.out), tree_of(self.tree))
            shutil.rmtree(self.out)
        self.need_root()
        disk = self.dir / "disk"
        disk.mkdir()
        run("mount", "-t", "tmpfs", "tmpfs", disk, check=0)
        self.addCleanup(run, "umount", disk, check=0)
        self.assert_clear(self.export(disk, check=None), "mount point")
        self.export(disk / "in it")
        self.assert_trees_equal(tree_of(disk / "in it"), tree_of(self.tree))
        # Somebody else's stays theirs.
        theirs = self.dir / "theirs"
        theirs.mkdir()
        os.chown(theirs, 65534, 65534)
        self.export(theirs)
        self.assertEqual((theirs.stat().st_uid, theirs.stat().st_gid), (65534, 65534))

    def test_damage_costs_only_what_is_damaged(self):
        order = [os.fsencode(json.loads(line)["name"]) for line in zrfs("ls", self.store, "--json").stdout.splitlines()]
        bad = [3, 4, 50]
        with open(self.store / "meta.zr", "r+b") as f:
            for index in bad:
                entry = list(ENTRY.unpack(os.pread(f.fileno(), 16, 16 + 16 * index)))
                entry[4] = 9
                os.pwrite(f.fileno(), ENTRY.pack(*entry), 16 + 16 * index)
        expected = tree_of(self.tree)
        # Folders get their own times, whatever is missing in them.
        for index in bad:
            del expected[order[index]]
        done = self.export(self.out, check=None)
        self.assert_clear(done, "record 3", "2 more: 4 50", "out has all others")
        self.assertIn(b"exported %d records" % (len(order) - 3), done.stdout)
        self.assert_trees_equal(tree_of(self.out), expected)
        self.assert_clear(self.export(self.dir / "all.tar", check=None), "record 3", "all.tar has all others")
        with tarfile.open(self.dir / "all.tar") as tar:
            self.assertEqual(sum(m.isfile() for m in tar), len(order) - 3)

    def test_bytes_that_were_changed_are_not_passed_off_as_good(self):
        """A raw record decodes whatever its bytes are: only its checksum tells."""
        shutil.rmtree(self.store)
        contents = [noise(5000, seed) for seed in range(20)]
        make_folder(self.dir / "noise", contents)
        zrfs("import", self.dir / "noise", self.store)
        shutil.rmtree(self.dir / "noise")
        with open(self.store / "0.zr", "r+b") as f:
            os.pwrite(f.fileno(), b"\0" * 10, 5000 * 7 + 100)
        self.assert_clear(self.export(self.out, check=None), "record 7", "not those that were appended", "out has all others")
        self.assertEqual(len(os.listdir(self.out)), 19)
        done = zrfs("cat", self.store, "0-19", check=None)
        self.assert_clear(done, "record 7")
        self.assertEqual(done.stdout, b"".join(contents[:7] + contents[8:]))

    def test_hostile_names_lead_nowhere(self):
        """A sidecar made to lead out: its checksums are right, its names are not."""
        make_tree(self.dir / "evil", {name: name.encode() for name in ("aa", "bbbbbb", "dd/file", "cccc/dddddd", "ok")})
        os.symlink("cccc", self.dir / "evil" / "ln")
        shutil.rmtree(self.store)
        for old, new in (
            (b"aa", b".."), (b"aa", b"/x"), (b"aa", b"a\0"), (b"bbbbbb", b"../../"), (b"bbbbbb", b"../bad"), (b"bbbbbb", b"/tmp/x"),
            (b"dd", b".."), (b"dddddd", b"../bad"), (b"dd", b"ln"), (b"aa", b"ok"), (b"aa", b"ln"),
        ):
            with self.subTest(old=old, new=new):
                zrfs("import", self.dir / "evil", self.store, "--links", "keep")
                self.rename_in_sidecar(b"ln", b"ln", b"/tmp")
                self.rename_in_sidecar(old, new)
                before = tree_of(self.dir, times=False)
                for dest in ("jail/out", "jail/out.tar"):
                    (self.dir / "jail").mkdir()
                    done = self.export(self.dir / dest, check=None)
                    self.assertNotIn(b"panicked", done.stderr)
                    inside = os.listdir(self.dir / "jail")
                    if done.returncode == 0:
                        self.assertEqual(inside, [os.path.basename(dest)])
                        if dest.endswith(".tar"):
                            (self.dir / "jail" / "x").mkdir()
                            run("tar", "-xf", self.dir / dest, "-C", self.dir / "jail" / "x")
                            with tarfile.open(self.dir / dest) as tar:
                                for m in tar:
                                    parts = os.fsencode(m.name).split(b"/")
                                    self.assertFalse({b"", b".", b".."} & set(parts), m.name)
                        else:
                            # By its name or by its index, nothing is lost.
                            found = [v[3] for v in tree_of(self.dir / dest).values() if v[0] == "file"]
                            self.assertEqual(sorted(found), sorted([b"aa", b"bbbbbb", b"dd/file", b"cccc/dddddd", b"ok"]))
                    else:
                        self.assert_clear(done)
                        self.assertEqual(inside, [])
                    shutil.rmtree(self.dir / "jail")
                    self.assert_trees_equal(tree_of(self.dir, times=False), before)
                self.assertFalse(os.path.lexists("/tmp/x") or os.path.lexists("/tmp/bad") or os.path.lexists("/x"))
                shutil.rmtree(self.store)

    def rename_in_sidecar(self, old, new, target=b""):
        """Another name, and another target of a link, of the same lengths."""
        path = self.store / ".zrfs" / "tree"
        data = bytearray(path.read_bytes())
        done, at = 0, data.find(old)
        while at >= 0:
            node = at - 40
            name_len, target_len = struct.unpack_from("<HI", data, node + 34) if node >= 256 else (0, 0)
            if node % 8 == 0 and name_len == len(old):
                data[at:at + len(old)] = new
                data[at + len(old):at + len(old) + len(target)] = target
                struct.pack_into("<I", data, node, crc32c(data[node + 20:node + 40 + name_len + target_len]))
                done += 1
            at = data.find(old, at + 1)
        self.assertEqual(done, 1)
        path.write_bytes(data)


class Arrays(Exporting):
    def save(self, array):
        np.save(self.dir / "a.npy", array)
        zrfs("import", self.dir / "a.npy", self.store)

    def test_arrays_come_out_as_they_went_in(self):
        for dtype in ("?", "u1", "<i2", ">i4", "<i8", "<f2", "<f4", ">f8", "<c8"):
            for shape in ((7,), (1, 3), (1000, 3, 4)):
                with self.subTest(dtype=dtype, shape=shape):
                    array = np.frombuffer(noise(int(np.prod(shape)) * 16, 1), "u1")[:int(np.prod(shape))].astype(dtype)
                    array = array.reshape(shape)
                    self.save(array)
                    self.export(self.dir / "b.npy")
                    found = np.load(self.dir / "b.npy", mmap_mode="r")
                    self.assertEqual((found.dtype, found.shape, found.flags.c_contiguous), (array.dtype, array.shape, True))
                    self.assertTrue(found.tobytes() == array.tobytes())
                    shutil.rmtree(self.store)
                    os.unlink(self.dir / "b.npy")

    def test_rows_are_those_that_are_named(self):
        array = np.arange(100_000, dtype="<i4").reshape(1000, 100)
        self.save(array)
        for words, rows in (("7 7 999 0-2", [7, 7, 999, 0, 1, 2]), ("500-999", list(range(500, 1000)))):
            self.export(self.dir / "b.npy", words)
            self.assertTrue(np.array_equal(np.load(self.dir / "b.npy"), array[rows]))
            os.unlink(self.dir / "b.npy")
        self.export(self.dir / "b.npy", "-", input=b"")
        self.assertEqual(np.load(self.dir / "b.npy").shape, (0, 100))

    def test_a_large_array(self):
        array = np.random.default_rng(1).integers(0, 9, (100, MIB), "u1")
        self.save(array)
        self.export(self.dir / "b.npy")
        self.assertTrue(np.array_equal(np.load(self.dir / "b.npy", mmap_mode="r"), array))

    def test_a_damaged_row_leaves_nothing(self):
        self.save(np.arange(40).reshape(10, 4))
        with open(self.store / "meta.zr", "r+b") as f:
            for index in (3, 4, 8):
                os.pwrite(f.fileno(), b"\xff" * 4, 16 + 16 * index)
        done = self.export(self.dir / "b.npy", check=None)
        self.assert_clear(done, "record 3", "4 8", "nothing was exported")
        self.assert_nothing_left("a.npy")
        self.export(self.dir / "b.npy", "0-2 5-7 9")
        self.assertEqual(np.load(self.dir / "b.npy").shape, (7, 4))

    def test_a_stack_of_arrays_comes_out_as_such_files(self):
        (self.dir / "in" / "class").mkdir(parents=True)
        arrays = [np.arange(12, dtype=">i2").reshape(3, 4) + i for i in range(5)]
        for i, array in enumerate(arrays):
            np.save(self.dir / "in" / "class" / f"{i}.npy", array)
        zrfs("import", "--stack", self.dir / "in", self.store)
        self.export(self.out)
        self.export(self.dir / "all.tar")
        run("tar", "-xf", self.dir / "all.tar", "-C", self.dir, check=0)
        for folder in (self.out / "class", self.dir / "class"):
            self.assertEqual(sorted(os.listdir(folder)), [f"{i}.npy" for i in range(5)])
            for i, array in enumerate(arrays):
                found = np.load(folder / f"{i}.npy")
                self.assertEqual((found.dtype, found.shape, found.tobytes()), (array.dtype, array.shape, array.tobytes()))
        self.export(self.dir / "all.npy")
        self.assertTrue(np.array_equal(np.load(self.dir / "all.npy"), np.stack(arrays)))

    def test_records_go_by_index_where_they_have_no_names(self):
        array = np.arange(1200, dtype=">f4").reshape(100, 3, 4)
        self.save(array)
        self.export(self.out)
        self.export(self.dir / "all.tar", "3 99")
        self.assertEqual(sorted(os.listdir(self.out)), [f"{i:08}.npy" for i in range(100)])
        for i in range(100):
            found = np.load(self.out / f"{i:08}.npy")
            self.assertEqual((found.dtype, found.tobytes()), (array.dtype, array[i].tobytes()))
        with tarfile.open(self.dir / "all.tar") as tar:
            self.assertEqual(tar.getnames(), ["00000003.npy", "00000099.npy"])
            self.assertTrue(tar.extractfile("00000099.npy").read() == (self.out / "00000099.npy").read_bytes())
        # As a mount has them.
        with self.mount(self.store) as mount:
            self.assertEqual(tree_of(self.out, times=False)[b"00000042.npy"][3], mount.read(42, "npy"))
            self.assertEqual(os.stat(mount.path(42, "npy")).st_mtime_ns, os.stat(self.out / "00000042.npy").st_mtime_ns)


class Nameless(Exporting):
    def test_names_that_are_taken(self):
        """Of a store with names, a record that has lost its own goes by its index, unless a file is called so."""
        make_tree(self.dir / "tree", {"00000002.bin": b"a name like an index", "b": b"bb", "c": b"ccc", "d": b"dddd"})
        zrfs("import", self.dir / "tree", self.store)
        order = [json.loads(line)["name"] for line in zrfs("ls", self.store, "--json").stdout.splitlines()]
        self.assertEqual(order, ["00000002.bin", "b", "c", "d"])
        self.take_name(2)
        self.assertEqual(zrfs("ls", self.store, "2").stdout.split(b"\t")[3], b"\n")
        for dest in (self.out, self.dir / "all.tar", "-"):
            done = self.export(dest, check=None)
            self.assert_clear(done, "1 record", "without a name", '"00000002.bin"')
            self.assertEqual(done.stdout, b"")
        self.assert_clear(self.export(self.out, "0 2", check=None), "1 record")
        self.assert_nothing_left("tree")
        self.export(self.out, "1-3")
        self.assertEqual(sorted(os.listdir(self.out)), ["00000002.bin", "b", "d"])
        self.assertEqual((self.out / "00000002.bin").read_bytes(), b"ccc")

    def take_name(self, index):
        with open(self.store / ".zrfs" / "names", "r+b") as f:
            os.pwrite(f.fileno(), bytes(4), 16 + 4 * index)


class Ending(Exporting):
    """Exports that can't end well leave nothing."""

    COUNT = 30_000

    def test_full_disks(self):
        self.need_root()
        make_folder(self.dir / "source", [noise(3000, i) for i in range(1000)])
        zrfs("import", self.dir / "source", self.store)
        shutil.rmtree(self.dir / "source")
        disk = self.dir / "disk"
        disk.mkdir()
        run("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk, check=0)
        self.addCleanup(run, "umount", disk, check=0)
        for name in ("out", "out.tar"):
            self.assert_clear(self.export(disk / name, check=None), "space", name)
            self.assertEqual(os.listdir(disk), [])
        # The archive on standard output, too, says what is wrong.
        with open(disk / "x", "wb") as f:
            done = subprocess.run([ZRFS, "export", self.store, "-"], stdout=f, stderr=subprocess.PIPE)
        self.assert_clear(done, "space")
        os.unlink(disk / "x")
        self.export(disk / "some", "0-99")
        self.assertEqual(len(os.listdir(disk / "some")), 100)

    def test_signals(self):
        np.save(self.dir / "a.npy", np.arange(self.COUNT * 16).reshape(self.COUNT, 16))
        zrfs("import", self.dir / "a.npy", self.store)
        for name in ("out", "out.tar"):
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                with self.subTest(dest=name, signal=number):
                    self.interrupt(name, number)
        # Killed, it leaves what the next one names.
        process = start("export", self.store, self.out)
        wait_until(lambda: (self.dir / "out.partial").exists() or process.poll() is not None, "the export has begun")
        process.kill()
        process.wait()
        self.assertFalse(self.out.exists())
        self.assert_clear(self.export(self.out, check=None), "out.partial is in the way", "rm -r")
        shutil.rmtree(self.dir / "out.partial")
        self.export(self.out)
        self.assertEqual(len(os.listdir(self.out)), self.COUNT)

    def interrupt(self, name, number):
        dest, partial = self.dir / name, self.dir / f"{name}.partial"
        begun = lambda: (os.listdir(partial) if partial.is_dir() else partial.exists() and partial.stat().st_size)
        for _ in range(20):
            process = start("export", self.store, dest, stderr=subprocess.PIPE)
            wait_until(lambda: process.poll() is not None or quiet(begun), "the export has begun", 60)
            process.send_signal(number)
            said = process.communicate(timeout=60)[1]
            if process.returncode == 0:
                # Too late: then it is complete.
                self.assertTrue(dest.exists())
                shutil.rmtree(dest) if dest.is_dir() else dest.unlink()
                continue
            self.assertEqual(process.returncode, 1)
            self.assertIn(b"interrupted: nothing was exported", said)
            self.assert_nothing_left("a.npy")
            return
        self.fail("20 signals, and all came too late")


def quiet(look):
    """What a look at something that may go away meanwhile gives."""
    try:
        return look()
    except FileNotFoundError:
        return None


class Openclipart(Exporting):
    def test_a_real_folder_comes_out_as_it_went_in(self):
        root = pathlib.Path(clipart_root())
        zrfs("import", root, self.store, "--links", "keep", timeout=300)
        self.export(self.out, timeout=300)
        self.assert_no_difference(root, self.out)
        self.assert_trees_equal(tree_of(self.out), tree_of(root))
        shutil.rmtree(self.out)
        self.out.mkdir()
        packed = subprocess.Popen([ZRFS, "export", self.store, "-"], stdout=subprocess.PIPE)
        run("tar", "-x", "-C", self.out, stdin=packed.stdout, check=0, timeout=300)
        packed.stdout.close()
        self.assertEqual(packed.wait(), 0)
        self.assert_no_difference(root, self.out, roots_time=False)


if __name__ == "__main__":
    unittest.main()
