"""Ordinary programs on a mount: each must give the answer that it gives on the files that were imported."""

import errno
import hashlib
import json
import mmap
import os
import pathlib
import stat
import subprocess
import unittest

import numpy as np
from support import ZRFS, KIB, MIB, Case, import_folder, is_mounted, make_folder, noise, run, text, wait_until, zrfs

SPECIAL = [
    b"", b"x", noise(4095, 1), noise(4096, 2), noise(4097, 3), text(4095), text(4096), text(4097),
    noise(128 * KIB - 1, 4), noise(128 * KIB, 5), noise(128 * KIB + 1, 6),
    text(128 * KIB - 1), text(128 * KIB), text(128 * KIB + 1),
    noise(MIB, 7), text(MIB), noise(4 * MIB, 8), text(4 * MIB), b"\0" * (4 * MIB),
]
SMALL = [text(i % 700, i) if i % 3 else noise(i % 500, i) for i in range(5000)]
CONTENTS = SPECIAL + SMALL
REFUSALS = (errno.EROFS, errno.EPERM, errno.EACCES)


def hashes(output):
    """{record index: hash} out of sha256sum's lines."""
    found = {}
    for line in output.splitlines():
        value, name = line.split(maxsplit=1)
        found[int(os.path.basename(name.decode())[:8])] = value.decode()
    return found


class Tools(Case):
    contents = CONTENTS

    def setUp(self):
        super().setUp()
        self.store = import_folder(self.dir, "mixed.zr", self.contents)
        self.expected = {i: hashlib.sha256(c).hexdigest() for i, c in enumerate(self.contents)}

    def assert_copy(self, folder):
        """A copy of records/ holds all of them, and nothing else."""
        folder = pathlib.Path(folder)
        self.assertEqual(sorted(os.listdir(folder)), [f"{i:08}.bin" for i in range(len(self.contents))])
        for i, content in enumerate(self.contents):
            self.assertTrue((folder / f"{i:08}.bin").read_bytes() == content, f"record {i} in the copy")


class Reading(Tools):
    def test_sha256sum_with_1_2_and_8_readers(self):
        for readers in (1, 2, 8):
            # A new mount each time, so that the daemon is asked and not the page cache.
            with self.subTest(readers=readers), self.mount(self.store) as mount:
                for _ in ("cold", "warm"):
                    script = f"find . -type f -print0 | xargs -0 -P {readers} -n 32 sha256sum"
                    done = run("bash", "-o", "pipefail", "-c", script, cwd=mount.records, check=0)
                    self.assertEqual(hashes(done.stdout), self.expected)
                self.assertTrue(mount.alive())

    def test_cp(self):
        with self.mount(self.store) as mount:
            run("cp", "-r", mount.point, self.dir / "copy", check=0)
            self.assert_copy(self.dir / "copy" / "records")
            self.assertEqual(sorted(os.listdir(self.dir / "copy")), sorted(os.listdir(mount.point)))
            run("chmod", "-R", "u+w", self.dir / "copy", check=0)

    def test_rsync_twice(self):
        with self.mount(self.store) as mount:
            command = ["rsync", "-a", "--chmod=Du+w", "--stats", "--out-format=%n", f"{mount.records}/", f"{self.dir}/copy/"]
            run(*command, check=0)
            self.assert_copy(self.dir / "copy")
            again = run(*command, check=0).stdout.decode()
            self.assertRegex(again, r"Number of regular files transferred: 0\b")
            checked = run(*command[:2], "-c", *command[2:], check=0).stdout.decode()
            self.assertRegex(checked, r"Number of regular files transferred: 0\b")

    def test_tar(self):
        (self.dir / "copy").mkdir()
        with self.mount(self.store) as mount:
            script = 'tar c -C "$1" records | tar x -C "$2"'
            done = run("bash", "-o", "pipefail", "-c", script, "-", mount.point, self.dir / "copy", check=0)
            self.assertEqual(done.stderr, b"")
        self.assert_copy(self.dir / "copy" / "records")
        run("chmod", "-R", "u+w", self.dir / "copy", check=0)

    def test_diff(self):
        """diff -r against the source, named as the records are."""
        (self.dir / "source").mkdir()
        for i, content in enumerate(self.contents):
            (self.dir / "source" / f"{i:08}.bin").write_bytes(content)
        with self.mount(self.store) as mount:
            done = run("diff", "-r", self.dir / "source", mount.records)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"", b""))

    def test_du(self):
        with self.mount(self.store) as mount:
            for options, size in (
                (["-a", "-B1", "--apparent-size"], len),
                (["-a", "-B512"], lambda content: -(-len(content) // 512)),
            ):
                rows = run("du", *options, ".", cwd=mount.records, check=0).stdout.decode().splitlines()
                files = {name: int(n) for n, name in (row.split("\t") for row in rows) if name != "."}
                self.assertEqual(files, {f"./{i:08}.bin": size(c) for i, c in enumerate(self.contents)})
            total = int(run("du", "-s", "-B1", mount.records, check=0).stdout.split()[0])
            blocks = sum(-(-len(c) // 512) * 512 for c in self.contents)
            own = os.stat(mount.records).st_blocks * 512
            self.assertEqual(total, blocks + own)

    def test_df(self):
        with self.mount(self.store) as mount:
            rows = run("df", "-B1", "--output=size,used,avail,target", mount.point, check=0).stdout.decode().splitlines()
            size, used, free, target = rows[1].split(maxsplit=3)
            self.assertGreater(int(size), 0)
            self.assertGreater(int(used), 0)
            self.assertEqual(int(free), 0)
            self.assertEqual(target, str(mount.point))
            self.assertEqual(os.statvfs(mount.point).f_bfree, 0)
            self.assertGreaterEqual(os.statvfs(mount.point).f_namemax, 12)

    def test_find_stat_walk_and_scandir_agree(self):
        names = [f"{i:08}.bin" for i in range(len(self.contents))]
        with self.mount(self.store) as mount:
            found = run("find", ".", "-type", "f", "-printf", "%f %s %b %m\n", cwd=mount.records, check=0).stdout.decode()
            expected = [f"{n} {len(c)} {-(-len(c) // 512)} 444" for n, c in zip(names, self.contents)]
            self.assertEqual(sorted(found.splitlines()), expected)
            everything = run("find", mount.point, "-type", "f", check=0).stdout.decode().splitlines()
            # Each record has a name in records/ and one in tree/.
            self.assertEqual(len(everything), 2 * len(names) + len([e for e in os.scandir(mount.point) if e.is_file()]))

            (root, folders, _), *rest = os.walk(mount.point)
            self.assertEqual((root, "records" in folders), (str(mount.point), True))
            walked = {where: files for where, _, files in rest}
            self.assertEqual(sorted(walked[str(mount.records)]), names)

            with os.scandir(mount.records) as entries:
                seen = {e.name: (e.is_file(), e.inode(), e.stat().st_size) for e in entries}
            self.assertEqual(sorted(seen), names)
            self.assertEqual(len({inode for _, inode, _ in seen.values()}), len(names), "inode numbers repeat")
            for i in (0, 1, 4, 16, len(names) - 1):
                st = os.stat(mount.path(i))
                self.assertEqual(seen[names[i]], (True, st.st_ino, st.st_size))

    def test_attributes(self):
        with self.mount(self.store) as mount:
            for folder in (mount.point, mount.records):
                st = os.stat(folder)
                self.assertTrue(stat.S_ISDIR(st.st_mode))
                self.assertEqual(stat.S_IMODE(st.st_mode), 0o555, folder)
                inner = len([e for e in os.scandir(folder) if e.is_dir()])
                self.assertIn(st.st_nlink, (1, 2 + inner))
                self.assertGreater(st.st_mtime, 0)
                self.assertGreater(st.st_ctime, 0)
            for i in (0, 1, 14, 16, len(self.contents) - 1):
                st = os.stat(mount.path(i))
                self.assertTrue(stat.S_ISREG(st.st_mode))
                self.assertEqual(stat.S_IMODE(st.st_mode), 0o444)
                self.assertEqual((st.st_size, st.st_nlink), (len(self.contents[i]), 2))
                self.assertEqual(st.st_blocks, -(-len(self.contents[i]) // 512))
                self.assertEqual((st.st_uid, st.st_gid), (os.getuid(), os.getgid()))
                self.assertGreater(st.st_mtime, 0)
            self.assertEqual(sorted(os.listdir(mount.point)), ["README", "batches", "compact", "delete", "records", "stats", "tree"])

    def test_stats_and_readme(self):
        with self.mount(self.store) as mount:
            readme = (mount.point / "README").read_text()
            self.assertIn("records/", readme)
            self.assertEqual(os.stat(mount.point / "README").st_size, len(readme.encode()))
            raw = (mount.point / "stats").read_bytes()
            self.assertEqual(os.stat(mount.point / "stats").st_size, len(raw))
            stats = json.loads(raw)
            outside = json.loads(zrfs("stats", self.store, "--json").stdout)
            for key in ("records", "live_bytes", "chunk_bytes", "reclaimable"):
                self.assertEqual(stats[key], outside[key], key)
            self.assertEqual(stats["records"], len(self.contents))
            self.assertEqual(outside["logical_bytes"], sum(map(len, self.contents)))
            self.assertEqual(outside["damaged"], 0)

    def test_mmap(self):
        with self.mount(self.store) as mount:
            for i, content in enumerate(self.contents[:25]):
                if not content:
                    continue
                with open(mount.path(i), "rb") as f, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as mapped:
                    self.assertTrue(mapped[:] == content, f"record {i}")
                # Backwards, page by page.
                with open(mount.path(i), "rb") as f, mmap.mmap(f.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ) as mapped:
                    for at in range(len(content) - 1, -1, -4096):
                        self.assertEqual(mapped[at], content[at])

    def test_pread_at_odd_places_and_past_the_end(self):
        with self.mount(self.store) as mount:
            for i, content in enumerate(self.contents[:25]):
                fd = os.open(mount.path(i), os.O_RDONLY)
                try:
                    size = len(content)
                    places = {0, 1, 511, 4095, 4096, 4097, 131071, 131072, 131073, size // 3, size // 2 + 1,
                              max(size - 4097, 0), max(size - 1, 0), size, size + 1, size + 4096, 1 << 40, (1 << 62)}
                    for at in sorted(places, reverse=True):
                        for length in (0, 1, 7, 4096, 65537, 300_001):
                            got = os.pread(fd, length, at)
                            self.assertTrue(got == content[at:at + length], f"record {i}, {length} at {at}")
                finally:
                    os.close(fd)

    def test_seek(self):
        with self.mount(self.store) as mount, open(mount.path(17), "rb") as f:
            content = self.contents[17]
            self.assertEqual(f.seek(0, os.SEEK_END), len(content))
            self.assertEqual(f.read(1), b"")
            for back in (1, 100, 131073, len(content)):
                f.seek(-back, os.SEEK_END)
                self.assertTrue(f.read(300) == content[-back:][:300])

    def test_head_tail_dd_direct_and_sendfile(self):
        content = self.contents[16]
        with self.mount(self.store) as mount:
            path = mount.path(16)
            self.assertTrue(run("head", "-c", "70001", path, check=0).stdout == content[:70001])
            self.assertTrue(run("tail", "-c", "70001", path, check=0).stdout == content[-70001:])
            done = run("dd", f"if={path}", "bs=1000", "skip=17", "count=300", "iflag=fullblock", check=0)
            self.assertTrue(done.stdout == content[17_000:317_000])
            direct = os.open(path, os.O_RDONLY | os.O_DIRECT)
            try:
                self.assertTrue(os.preadv(direct, [buffer := mmap.mmap(-1, MIB)], MIB) == MIB)
                self.assertTrue(buffer[:] == content[MIB:2 * MIB])
            finally:
                os.close(direct)
            source, target = os.open(path, os.O_RDONLY), os.open(self.dir / "sent", os.O_WRONLY | os.O_CREAT)
            try:
                while os.sendfile(target, source, None, 1 << 20):
                    pass
            finally:
                os.close(source)
                os.close(target)
            self.assertTrue((self.dir / "sent").read_bytes() == content)


class NamesAndWrites(Tools):
    contents = [b"zero", b"one", noise(5000, 1), text(100_000)]

    def test_names_that_do_not_exist(self):
        with self.mount(self.store) as mount:
            for name in (
                "00000000.png", "00000000.npy", "00000000", "0.bin", "0", "000000000.bin", "0000000.bin", "00000004.bin",
                "99999999.bin", "+0000001.bin", "-0000001.bin", "0000000a.bin", "00000000.BIN", "00000000.bin.bin",
                " 0000000.bin", "x", "x" * 255,
            ):
                self.assert_errno((errno.ENOENT,), os.stat, mount.records / name)
                self.assert_errno((errno.ENOENT,), os.open, mount.records / name, os.O_RDONLY)
            self.assert_errno((errno.ENOENT,), os.stat, mount.point / "nothing")
            self.assert_errno((errno.ENOTDIR,), os.stat, mount.path(0) / "x")
            self.assert_errno((errno.ENOTDIR,), os.listdir, mount.path(0))
            self.assert_errno((errno.ENOENT, errno.ENAMETOOLONG), os.stat, mount.records / ("x" * 256))
            self.assertEqual(mount.read(0), b"zero")

    def test_every_write_is_refused(self):
        with self.mount(self.store) as mount:
            record, other = mount.path(0), mount.path(1)
            for path in (record, mount.point / "README", mount.point / "stats"):
                for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC, os.O_WRONLY | os.O_APPEND):
                    self.assert_errno(REFUSALS, os.open, path, flags)
            for folder in (mount.point, mount.records):
                self.assert_errno(REFUSALS, os.open, folder / "new", os.O_WRONLY | os.O_CREAT)
                self.assert_errno(REFUSALS, os.mkdir, folder / "new")
                self.assert_errno(REFUSALS, os.mkfifo, folder / "new")
                self.assert_errno(REFUSALS, os.symlink, "x", folder / "new")
                self.assert_errno(REFUSALS, os.link, record, folder / "new")
                self.assert_errno(REFUSALS, os.rename, record, folder / "new")
            self.assert_errno(REFUSALS, os.unlink, record)
            self.assert_errno(REFUSALS, os.rename, record, other)
            self.assert_errno(REFUSALS, os.rmdir, mount.records)
            self.assert_errno(REFUSALS, os.chmod, record, 0o644)
            self.assert_errno(REFUSALS, os.chown, record, os.getuid(), os.getgid())
            self.assert_errno(REFUSALS, os.truncate, record, 0)
            self.assert_errno(REFUSALS, os.utime, record)
            for command in (
                ["rm", "-f", record], ["rm", "-rf", mount.records], ["mv", record, other], ["ln", record, mount.point / "l"],
                ["mkdir", mount.point / "d"], ["chmod", "u+w", record], ["truncate", "-s", "0", record],
                ["cp", other, record], ["touch", mount.point / "t"],
            ):
                done = run(*command)
                self.assertNotEqual(done.returncode, 0, command)
                self.assertRegex(done.stderr, rb"Read-only file system|not permitted|denied")
            self.assertEqual([mount.read(i) for i in range(4)], self.contents)

    def test_growth_shows_within_a_second(self):
        with self.mount(self.store) as mount:
            self.assertFalse(mount.path(4).exists())
            self.assertEqual(len(mount.names()), 4)
            before = json.loads((mount.point / "stats").read_text())
            have = list(self.contents)
            for turn in range(5):
                make_folder(self.dir / f"more{turn}", [b"new %d" % turn, text(50_000, turn)])
                zrfs("import", "--append", self.dir / f"more{turn}", self.store)
                have += [b"new %d" % turn, text(50_000, turn)]
                last = len(have) - 1
                wait_until(mount.path(last).exists, f"record {last} opens", 5)
                self.assertTrue(mount.read(last - 1) == have[-2] and mount.read(last) == have[-1])
                wait_until(lambda: len(mount.names()) == len(have), "the listing has the new records", 5)
                wait_until(
                    lambda: json.loads((mount.point / "stats").read_text())["records"] == len(have),
                    "stats counts the new records", 5,
                )
            self.assertEqual([mount.read(i) for i in range(len(have))], have)
            self.assertGreater(json.loads((mount.point / "stats").read_text())["live_bytes"], before["live_bytes"])

    def test_readers_go_on_while_records_are_appended(self):
        """A loop of readers and listings beside an appender: never a wrong byte, never an error."""
        with self.mount(self.store) as mount:
            make_folder(self.dir / "more", [text(20_000, i) for i in range(300)])
            with subprocess.Popen(
                [ZRFS, "import", "--append", self.dir / "more", self.store],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            ) as appender:
                while appender.poll() is None:
                    self.assertEqual([mount.read(i) for i in range(4)], self.contents)
                    for name in mount.names()[4:]:
                        i = int(name[:8]) - 4
                        self.assertTrue((mount.records / name).read_bytes() == text(20_000, i), name)
                self.assertEqual(appender.returncode, 0, appender.stderr.read())
            wait_until(lambda: len(mount.names()) == 304, "all are listed", 5)

    def test_an_empty_store(self):
        # A store can have no records: an array of no rows, say.
        np.save(self.dir / "none.npy", np.zeros((0, 3), dtype="<f4"))
        done = zrfs("import", self.dir / "none.npy", self.dir / "none.zr", check=None)
        if done.returncode:
            self.assert_clear(done)
            self.assertFalse((self.dir / "none.zr").exists())
            return
        with self.mount(self.dir / "none.zr") as mount:
            self.assertEqual(mount.names(), [])
            self.assertEqual(json.loads((mount.point / "stats").read_text())["records"], 0)
            run("df", mount.point, check=0)
            self.assertTrue(is_mounted(mount.point))


if __name__ == "__main__":
    unittest.main()
