"""What import makes of folders, lists and arrays: links, labels, dense stores, hints; refusals that leave nothing."""

import io
import json
import os
import pathlib
import struct
import sys
import unittest
import zipfile

import numpy as np
from loaderx import Dataset
from support import ZRFS, Case, as_nobody, imagefolder_order, make_tree, run, zrfs

# A process of its own, since loaderx's DataLoader can hang when it is closed.
TRAINING = """
import os, sys
import numpy as np
from loaderx import DataLoader, Dataset
loader = DataLoader(Dataset(sys.argv[1]), Dataset(sys.argv[2]), batch_size=16, num_workers=2)
for _ in range(20):
    batch = next(loader)
    assert batch["data"].shape == (16, 2, 3)
    np.testing.assert_array_equal(batch["data"][:, 0, 0], batch["label"])
os._exit(0)
"""


class Import(Case):
    def setUp(self):
        super().setUp()
        self.root, self.store, self.labels = self.dir / "tree", self.dir / "store.zr", self.dir / "labels.zr"

    def refused(self, *args, status=(1,), words=()):
        """The import fails in one clear line and leaves the folder as it was."""
        before = sorted(os.listdir(self.dir))
        done = zrfs("import", *args, check=None)
        self.assert_clear(done, *words, status=status)
        self.assertEqual(sorted(os.listdir(self.dir)), before)

    def records(self, store=None):
        """The records' bytes, by index."""
        store = store or self.store
        count = json.loads(zrfs("stats", store, "--json").stdout)["records"]
        return [zrfs("cat", store, str(i)).stdout for i in range(count)]

    def names(self, store=None):
        lines = zrfs("ls", store or self.store, "--json").stdout.splitlines()
        return [os.fsencode(json.loads(line)["name"]) for line in lines]


class Links(Import):
    def setUp(self):
        super().setUp()
        make_tree(self.root, {"a/1.txt": b"one", "a/2.txt": b"two", "b/3.txt": b"three"})
        make_tree(self.dir / "outside", {"4.txt": b"four", "deep/5.txt": b"five"})

    def link(self, where, target):
        os.symlink(target, self.root / where)

    def test_follow_takes_what_is_behind(self):
        self.link("a/l.txt", "1.txt")
        self.link("b/l", "../a")
        self.link("c", self.dir / "outside")
        zrfs("import", self.root, self.store)
        expected = [pathlib.Path(os.fsdecode(path)).read_bytes() for path in imagefolder_order(self.root)]
        self.assertEqual(self.records(), expected)
        self.assertEqual(len(expected), 9)
        self.assertEqual(self.names(), [os.path.relpath(path, os.fsencode(self.root)) for path in imagefolder_order(self.root)])

    def test_keep_follows_only_what_leads_out(self):
        self.link("a/inside.txt", "1.txt")
        self.link("b/up", "../a")
        self.link("b/self", ".")
        self.link("b/gone", "nowhere")
        self.link("b/circle", "circle")
        kept = 5
        self.link("a/absolute.txt", self.root / "a/1.txt")
        self.link("a/escaping.txt", "../../outside/4.txt")
        self.link("a/through.txt", "../../tree/a/1.txt")
        self.link("outside", "../outside")
        done = zrfs("import", "--links", "keep", self.root, self.store)
        self.assertEqual(
            self.records(), [b"one", b"two", b"one", b"four", b"one", b"three", b"four", b"five"]
        )
        self.assertEqual(self.names(), [
            b"a/1.txt", b"a/2.txt", b"a/absolute.txt", b"a/escaping.txt", b"a/through.txt", b"b/3.txt", b"outside/4.txt",
            b"outside/deep/5.txt",
        ])
        self.assertIn(f"Kept as links in {self.root}: {kept}.", done.stdout.decode())

    def test_loops_and_links_to_nothing_are_named(self):
        for target, word in (("..", "leads back"), ("nowhere", "link to nothing"), ("../../nowhere", "link to nothing")):
            with self.subTest(target=target):
                self.link("b/l", target)
                self.refused(self.root, self.store, words=("b/l", word))
                os.unlink(self.root / "b/l")
        self.link("b/l", "../../nowhere")
        self.refused(self.root, self.store, "--links", "keep", words=("b/l", "link to nothing"))
        os.unlink(self.root / "b/l")
        # A folder above the tree: what it leads to holds the link again.
        self.link("b/l", self.dir)
        self.refused(self.root, self.store, "--links", "keep", words=("b/l", "leads back"))

    def test_an_unreadable_folder_is_named(self):
        self.need_root()
        os.chmod(self.dir, 0o777)
        os.chmod(self.root / "b", 0)
        self.assert_clear(run(*as_nobody(ZRFS, "import", self.root, self.store)), self.root / "b", "permission")
        self.assertFalse(os.path.lexists(self.store))


class Stores(Import):
    def test_a_mount_is_refused_for_what_is_in_it(self):
        make_tree(self.root, {"a/1": b"one", "b/2": b"two"})
        zrfs("import", self.root, self.store)
        with self.mount(self.store) as mount:
            self.refused(mount.point, self.dir / "x.zr", words=(f"import {mount.point}/tree instead",))
            zrfs("import", mount.point / "tree", self.dir / "again.zr")
            zrfs("import", mount.records, self.dir / "records.zr")
        self.assertEqual(self.names(self.dir / "again.zr"), [b"a/1", b"b/2"])
        self.assertEqual(self.records(self.dir / "records.zr"), [b"one", b"two"])
        os.rename(self.store, self.root / "store.zr")
        elsewhere = self.dir / "elsewhere"
        elsewhere.mkdir()
        with self.mount(self.root / "store.zr"):
            os.symlink(self.mnt, elsewhere / "link")
            self.refused(elsewhere, self.dir / "x.zr", words=(elsewhere / "link", "unmount it"))
        self.refused(self.root, self.dir / "x.zr", words=(self.root / "store.zr", "is a store"))


class Labels(Import):
    FILES = {
        "dog/2.png": b"d2", "dog/1.png": b"d1", "cat/x/1.png": b"c1", "Zebra/1.png": b"z1", b"\xff/1.png": b"f1",
        "\uffee/1.png": b"e1", "cat/notes.txt": b"text",
    }

    def classes(self):
        return [os.fsencode(name) for name in json.loads((self.labels / "classes.json").read_text())]

    def numbered(self, root):
        """(class names, class of each record) by ImageFolder's published rule."""
        root = os.fsencode(root)
        classes = sorted((e.name for e in os.scandir(root) if e.is_dir()), key=os.fsdecode)
        order = imagefolder_order(root)
        return classes, sorted(classes.index(os.path.relpath(path, root).split(b"/")[0]) for path in order)

    def test_numbers_are_imagefolder_s(self):
        make_tree(self.root, self.FILES)
        os.mkdir(self.root / "empty")
        os.symlink("cat", self.root / "linked")
        done = zrfs("import", self.root, self.store, "--labels", self.labels)
        classes, numbers = self.numbered(self.root)
        self.assertIn("7 classes", done.stdout.decode())
        self.assertEqual(self.classes(), classes)
        with Dataset(self.labels) as labels:
            self.assertEqual((labels.dtype.str, labels.shape), ("<i8", ()))
            self.assertEqual(labels[:].tolist(), numbers)
        self.assertEqual(json.loads(zrfs("verify", self.labels, "--json").stdout)["bad"], [])

    def test_loaderx_trains_on_the_pair(self):
        """Each record holds its own class, so that a loader that pairs them wrongly is seen."""
        for number, name in enumerate(("a", "b", "c")):
            for i in range(20):
                (self.root / name).mkdir(parents=True, exist_ok=True)
                np.save(self.root / name / f"{i:02}.npy", np.full((2, 3), number, "<f4"))
        zrfs("import", self.root, self.store, "--stack", "--labels", self.labels)
        run(sys.executable, "-c", TRAINING, self.store, self.labels, check=0)
        zrfs("delete", self.store, "0-9", "--with", self.labels)
        with Dataset(self.store) as data, Dataset(self.labels) as labels:
            np.testing.assert_array_equal(data[:][:, 1, 2], labels[:])

    def test_a_file_outside_any_class_is_named(self):
        make_tree(self.root, {**self.FILES, "one.png": b"1", "two.png": b"2"})
        before = sorted(os.listdir(self.dir))
        done = zrfs("import", self.root, self.store, "--labels", self.labels, check=1)
        said = done.stderr.decode().splitlines()
        self.assertIn("2 of 9", said[0])
        self.assertEqual([line.strip() for line in said[1:]], ["one.png", "two.png"])
        self.assertEqual(sorted(os.listdir(self.dir)), before)
        zrfs("import", self.root, self.store, "--labels", self.labels, "--only", "*/**/*.png")
        self.assertEqual(len(self.records()), 6)

    def test_append_goes_on_with_the_numbers(self):
        make_tree(self.root, {"b/1": b"b1", "d/1": b"d1"})
        make_tree(self.dir / "more", {"b/2": b"b2", "e/1": b"e1"})
        make_tree(self.dir / "wrong", {"b/3": b"b3", "c/1": b"c1", "f/1": b"f1"})
        zrfs("import", self.root, self.store, "--labels", self.labels)
        zrfs("import", "--append", self.dir / "more", self.store, "--labels", self.labels)
        self.refused("--append", self.dir / "wrong", self.store, "--labels", self.labels, words=("shift", ": c;"))
        self.assertEqual(self.classes(), [b"b", b"d", b"e"])
        with Dataset(self.labels) as labels:
            self.assertEqual(labels[:].tolist(), [0, 1, 0, 2])
        self.assertEqual(self.records(), [b"b1", b"d1", b"b2", b"e1"])
        zrfs("delete", self.store, "0")
        self.refused(
            "--append", self.dir / "wrong", self.store, "--labels", self.labels, words=("4 labels for 3 records",)
        )

    def test_one_class_is_said(self):
        """What makes every label 0 is a folder above the classes, mostly."""
        make_tree(self.root, {"photos/cat/1.png": b"1", "photos/dog/2.png": b"2"})
        run("tar", "-C", self.root, "-czf", self.dir / "p.tar.gz", "photos", check=0)
        for source, args in (
            (self.root, {}), (self.dir / "p.tar.gz", {}), ("@-", {"input": b"photos/cat/1.png\nphotos/dog/2.png\n"}),
        ):
            with self.subTest(source=str(source)):
                store, labels = (self.dir / f"{kind}-{os.path.basename(source)}.zr" for kind in ("data", "labels"))
                said = zrfs("import", source, store, "--labels", labels, cwd=self.root, **args).stdout.decode()
                self.assertIn("a label for each record, 1 class in", said)
                self.assertRegex(said, r"one class, photos: .* labels are 0\. .* import photos itself .*tar -C photos \.")
        # No folder in it would be a class.
        said = zrfs("import", self.root / "photos", self.store, "--labels", self.labels, "--only", "cat/*").stdout.decode()
        self.assertIn("2 classes", said)
        make_tree(self.dir / "one", {"cat/1.png": b"1"})
        said = zrfs("import", self.dir / "one", self.dir / "one.zr", "--labels", self.dir / "onel.zr").stdout.decode()
        self.assertIn("imported 1 record;", said)
        self.assertIn("one class, cat: all records lie below cat/, so all labels are 0.\n", said)

    def test_what_has_no_labels_or_is_in_the_way(self):
        make_tree(self.root, {"b/1": b"b1"})
        np.save(self.dir / "a.npy", np.zeros(3))
        self.refused(self.dir / "a.npy", self.store, "--labels", self.labels, status=(2,), words=("--labels",))
        self.refused(self.root, self.store, "--labels", self.store, status=(2,), words=("of their own",))
        os.mkdir(self.labels)
        self.refused(self.root, self.store, "--labels", self.labels, words=("labels.zr exists",))
        os.rename(self.labels, self.dir / "labels.zr.partial")
        self.refused(self.root, self.store, "--labels", self.labels, words=("labels.zr.partial", "in the way"))
        zrfs("import", self.root, self.store)
        self.refused(
            "--append", self.root, self.store, "--labels", self.store, status=(2,), words=("of their own",)
        )
        zrfs("import", self.dir / "a.npy", self.dir / "array.zr")
        make_tree(self.dir / "more", {"b/2": b"b2"})
        self.refused(
            "--append", self.dir / "more", self.store, "--labels", self.dir / "array.zr", words=("not made by --labels",)
        )


class Lists(Import):
    def setUp(self):
        super().setUp()
        make_tree(self.root, {"b/2": b"two", "a/1": b"one", "a/new\nline": b"three", "c": b"four"})

    def test_records_have_the_list_s_order(self):
        lines = f"./b/2\n{self.root}/c\na/1\n".encode()
        (self.dir / "list").write_bytes(lines)
        zrfs("import", f"@{self.dir}/list", self.store, cwd=self.root)
        self.assertEqual(self.records(), [b"two", b"four", b"one"])
        self.assertEqual(self.names(), [b"b/2", os.fsencode(self.root / "c")[1:], b"a/1"])
        done = zrfs("import", "@-", self.dir / "stdin.zr", input=lines, cwd=self.root)
        self.assertIn("imported 3 records", done.stdout.decode())
        zrfs("import", "--null", "@-", self.dir / "nul.zr", input=b"a/new\nline\0a/1\0", cwd=self.root)
        self.assertEqual(self.records(self.dir / "nul.zr"), [b"three", b"one"])
        self.assertEqual(self.names(self.dir / "nul.zr"), [b"a/new\nline", b"a/1"])
        zrfs("import", "@-", self.dir / "l.zr", "--labels", self.labels, input=b"b/2\na/1\n", cwd=self.root)
        with Dataset(self.labels) as labels:
            self.assertEqual(labels[:].tolist(), [1, 0])

    def test_a_wrong_line_is_named(self):
        for line, words in (
            (b"b", ("line 2", "b is a folder")), (b"../tree/c", ("line 2", "..")), (b"x", ("line 2", "x", "no such")),
            (b"b/2", ("b/2",)), (b"/dev/null", ("line 2", "/dev/null")),
        ):
            with self.subTest(line=line):
                (self.dir / "list").write_bytes(b"b/2\n" + line + b"\n")
                self.refused_in_root(f"@{self.dir}/list", self.store, words=words)
        self.refused_in_root("@nowhere", self.store, words=("nowhere",))
        self.refused(self.root, self.store, "-0", status=(2,), words=("--null",))

    def refused_in_root(self, *args, words):
        self.assert_clear(zrfs("import", *args, check=None, cwd=self.root), *words)
        self.assertFalse(os.path.lexists(self.store) or os.path.lexists(f"{self.store}.partial"))


class Arrays(Import):
    def test_stack_makes_a_dense_store(self):
        self.root.mkdir()
        arrays = np.random.default_rng(0).standard_normal((5, 4, 3)).astype("<f4")
        for i, array in enumerate(arrays):
            np.save(self.root / f"{i}.npy", array)
        zrfs("import", self.root, self.store, "--stack")
        with Dataset(self.store) as data:
            self.assertEqual((data.dtype.str, data.shape), ("<f4", (4, 3)))
            np.testing.assert_array_equal(data[:], arrays)
        # Another shape, another dtype, Fortran order, no array, another suffix.
        for name, content, words in (
            ("z.npy", np.zeros((3, 4), "<f4"), ("z.npy", "[3, 4]", "[4, 3]")),
            ("z.npy", np.zeros((4, 3), "<f8"), ("z.npy", "<f8")),
            ("z.npy", np.asfortranarray(np.ones((4, 3), "<f4")), ("z.npy", "Fortran")),
            ("z.npy", None, ("z.npy", "not a .npy file")),
            ("z.txt", None, ("z.txt", "--only")),
        ):
            with self.subTest(words=words):
                path = self.root / name
                path.write_bytes(b"no array") if content is None else np.save(path, content)
                self.refused(self.root, self.dir / "other.zr", "--stack", words=words)
                if name == "z.txt":
                    zrfs("import", self.root, self.dir / "picked.zr", "--stack", "--only", "*.npy")
                path.unlink()
        make_tree(self.dir / "files", {"a": b"x" * 48})
        self.refused("--append", self.dir / "files", self.store, words=("not files",))
        np.save(self.root / "more.npy", arrays[0])
        zrfs("import", "--append", self.root, self.store, "--stack", "--only", "more.npy")
        with Dataset(self.store) as data:
            np.testing.assert_array_equal(data[5], arrays[0])

    def test_rows_cut_a_long_array(self):
        tokens = np.arange(100, dtype="<u2")
        np.save(self.dir / "t.npy", tokens)
        done = zrfs("import", self.dir / "t.npy", self.store, "--rows", "8")
        self.assertRegex(done.stdout.decode(), r"last 4 items of .*t\.npy.* record of 8")
        with Dataset(self.store) as data:
            np.testing.assert_array_equal(data[:], tokens[:96].reshape(12, 8))
        np.save(self.dir / "m.npy", np.zeros((4, 4)))
        self.refused(self.dir / "m.npy", self.dir / "x.zr", "--rows", "2", status=(2,), words=("1-D",))
        self.refused(self.dir / "t.npy", self.dir / "x.zr", "--rows", "101", words=("101",))

    def test_an_archive_that_promises_more_than_it_has(self):
        data = io.BytesIO()
        np.save(data, np.arange(1000))
        for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            with zipfile.ZipFile(self.dir / "x.npz", "w", method) as f:
                f.writestr("a.npy", data.getvalue()[:5000])
            content = bytearray((self.dir / "x.npz").read_bytes())
            at = content.rfind(b"PK\1\2")
            for field in (24, 20) if method == zipfile.ZIP_STORED else (24,):
                struct.pack_into("<I", content, at + field, len(data.getvalue()))
            (self.dir / "x.npz").write_bytes(content)
            words = ("x.npz:a is damaged", "data end before" if method == zipfile.ZIP_DEFLATED else "unpacked")
            self.refused(f"{self.dir}/x.npz:a", self.store, words=words)

    def test_a_long_array_is_told_about_rows(self):
        with open(self.dir / "t.npy", "wb") as f:
            np.lib.format.write_array_header_1_0(f, {"descr": "<u2", "fortran_order": False, "shape": (10**8,)})
            f.truncate(f.tell() + 2 * 10**8)
        self.refused(self.dir / "t.npy", self.store, words=("100000000", "16777216", "--rows", "1024"))
        self.refused(self.dir / "t.npy", self.store, "--rows", "2", words=("--rows: 8",))


class Hints(Import):
    def said(self, files, *options):
        make_tree(self.root, files)
        return zrfs("import", self.root, self.store, *options).stdout.decode()

    def test_train_and_val(self):
        said = self.said({"train/a/1.png": b"x", "val/a/1.png": b"y"})
        # Before the work: that may take hours.
        first, last = said.splitlines()
        self.assertIn("holds train/ and val/: import each into its own store", first)
        self.assertIn("imported 2 records", last)
        self.assertNotIn("--labels", first)
        said = zrfs("import", self.root, self.dir / "l.zr", "--labels", self.labels).stdout.decode()
        self.assertIn("the classes of --labels are train and val", said.splitlines()[0])
        # Nothing is said of what is refused.
        self.assertEqual(zrfs("import", self.root, self.store, check=1).stdout, b"")

    def test_pairs(self):
        said = self.said({"x/a.jpg": b"1", "x/a.txt": b"2", "x/b.jpg": b"3", "y/b.txt": b"4", "y/.jpg": b"5", "y/.txt": b"6"})
        self.assertRegex(said, r"(?s)2 of the files .*a\.(jpg and a\.txt|txt and a\.jpg).*--only.*imported 6")
        self.assertNotIn("--only picks one suffix", zrfs(
            "import", self.root, self.dir / "one.zr", "--only", "*.jpg").stdout.decode())

    def test_what_only_leaves_out(self):
        files = {"a/1.jpg": b"1", "a/2.JPG": b"2", "a/notes.txt": b"3", "b/3.JPG": b"4", "c/x/4.txt": b"5"}
        make_tree(self.root, files)
        (self.root / "empty").mkdir()
        said = self.said({}, "--only", "*.jpg")
        self.assertRegex(
            said, r"imported 1 record;(?s:.*)left out 4 files in .*, 2 for upper or lower case alone, as [ab]/[23]\.JPG:"
        )
        self.assertIn("--only left out all files in b/, c/. They are classes still", said)
        both = ("--only", "*.jpg", "--only", "*.JPG")
        said = zrfs("import", self.root, self.dir / "both.zr", *both).stdout.decode()
        self.assertRegex(said, r"left out 2 files in [^,\n]*tree\.\n")
        self.assertIn("--only left out all files in c/. It is a class still", said)
        listed = zrfs("import", "@-", self.dir / "list.zr", "--only", "*.jpg", input=b"\n".join(map(str.encode, files)),
                      cwd=self.root).stdout.decode()
        self.assertIn("left out 4 files in -, 2 for upper or lower case alone, as a/2.JPG:", listed)
        said = zrfs("import", self.root, self.dir / "all.zr", "--only", "*").stdout.decode()
        self.assertNotIn("left out", said)

    def test_arrays(self):
        make_tree(self.root, {})
        np.save(self.root / "a.npy", np.zeros(3))
        self.assertIn("--stack", self.said({}))
        self.assertNotIn("--stack", zrfs("import", self.root, self.dir / "s.zr", "--stack").stdout.decode())

    def test_a_plain_folder_gets_none(self):
        self.assertEqual(len(self.said({"a/1.png": b"x", "b/2.png": b"y"}).splitlines()), 1)


if __name__ == "__main__":
    unittest.main()
