"""Programs that walk a whole mount from its root end, without complaint, as root and as another user: the endless files are
not listed, and every other file has the size that it says."""

import filecmp
import os
import subprocess
import unittest

import numpy as np

from support import NOBODY, Case, as_nobody, open_dev_fuse, run, zrfs


class WholeMount(Case):
    def setUp(self):
        super().setUp()
        np.save(self.dir / "a.npy", np.arange(40_000, dtype=np.float32).reshape(1000, 40))
        zrfs("import", self.dir / "a.npy", self.dir / "dense.zr")
        source = self.dir / "source"
        for i in range(600):
            path = source / f"class{i % 5}" / f"{i}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"needle %d\n" % i * (1 + i % 300))
        os.symlink("1.txt", source / "class1" / "link")
        zrfs("import", source, self.dir / "named.zr", "--links", "keep", "--labels", self.dir / "labels.zr")
        self.out = self.dir / "out"
        os.chmod(self.dir, 0o755)

    def walks(self, user):
        """Each command on the mount, and what it must say: nothing on stderr."""
        out = self.out
        run("chmod", "-R", "u+w", out) if out.exists() else None
        run("rm", "-rf", out, check=0)
        out.mkdir()
        os.chown(out, user, user)
        prefix = as_nobody() if user == NOBODY else []
        quiet = lambda *args: self.quiet(*prefix, *args)
        quiet("grep", "-r", "-c", "-e", "needle", "-e", "descr", self.mnt)
        quiet("find", self.mnt, "-size", "+0")
        quiet("du", "-s", self.mnt)
        quiet("tar", "-C", self.mnt, "-cf", out / "all.tar", ".")
        quiet("tar", "-tf", out / "all.tar")
        quiet("cp", "-r", self.mnt, out / "copy")
        self.same(out / "copy")
        quiet("rsync", "-a", f"{self.mnt}/", out / "synced/")
        again = quiet("rsync", "-a", "--stats", "--out-format=%n", f"{self.mnt}/", out / "synced/")
        self.assertIn(b"Number of regular files transferred: 0\n", again)
        self.same(out / "synced")

    def quiet(self, *args):
        done = run(*args, check=0, timeout=120)
        self.assertEqual(done.stderr, b"", args)
        return done.stdout

    def same(self, copy):
        """All that the root lists is in the copy, whole."""
        for where, folders, files in os.walk(self.mnt):
            there = copy / os.path.relpath(where, self.mnt)
            self.assertEqual(sorted(os.listdir(there)), sorted(folders + files))
            for name in files:
                # What has counters differs from one reading to the next.
                if where == str(self.mnt) and name == "stats":
                    continue
                self.assertTrue(filecmp.cmp(os.path.join(where, name), there / name, shallow=False), name)

    def test_as_root(self):
        for store, *options in ([self.dir / "dense.zr", "-o", "steps=3,batch_size=16"],
                                [self.dir / "named.zr", "-o", f"steps=2,batch_size=8,labels={self.dir}/labels.zr"]):
            with self.subTest(store=store.name), self.mount(store, *options):
                self.walks(os.geteuid())

    def test_as_another_user(self):
        self.need_root()
        with self.mount(self.dir / "named.zr", "-o", "allow_other"):
            self.walks(NOBODY)

    def test_a_reader_of_an_endless_file_is_killed_at_once(self):
        for store in ("dense.zr", "named.zr"):
            with self.subTest(store=store), self.mount(self.dir / store):
                for name in ("batch", "batch.tar"):
                    with open(os.devnull, "wb") as nothing:
                        done = subprocess.run(["timeout", "-s", "INT", "-k", "5", "1", "cat", self.mnt / name],
                                              stdout=nothing, stderr=subprocess.PIPE, timeout=20, check=False)
                    # 124: it ended by the first signal, not by the second one.
                    self.assertEqual((done.returncode, done.stderr), (124, b""), name)


if __name__ == "__main__":
    unittest.main()
