"""Debian's openclipart-png: a real image folder goes in, the same bytes come out, in ImageFolder's order."""

import json
import os
import pathlib
import subprocess
import unittest

from support import MIB, Case, imagefolder_order, make_tree, run, zrfs

# The distribution's Python, for its torchvision; the tests themselves run in another one.
TORCH_PYTHON = os.environ.get("ZRFS_TORCHVISION_PYTHON", "/usr/bin/python3")

LISTING = """
import json, sys
from torchvision.datasets import ImageFolder
folder = ImageFolder(sys.argv[1])
json.dump([path for path, _ in folder.samples], sys.stdout)
"""


def clipart_root():
    listed = run("dpkg", "-L", "openclipart-png")
    paths = listed.stdout.decode().split("\n")
    for path in paths:
        # The folder that holds the classes: the first with .png files two levels below.
        if path.endswith(".png") and not os.path.isdir(path):
            while os.path.basename(path) != "png":
                path = os.path.dirname(path)
                if path == "/":
                    raise AssertionError("openclipart-png has no folder named png")
            return path
    raise AssertionError("openclipart-png is not installed: apt-get install openclipart-png")


class Openclipart(Case):
    @classmethod
    def setUpClass(cls):
        cls.root = clipart_root()
        cls.order = [os.fsdecode(p) for p in imagefolder_order(cls.root)]
        cls.large = [p for p in cls.order if os.path.getsize(p) > MIB]

    def imagefolder(self, root):
        """What torchvision itself lists, or None where the caller has allowed it to be missing."""
        done = run(TORCH_PYTHON, "-c", LISTING, root, timeout=300)
        if done.returncode == 0:
            return json.loads(done.stdout)
        if b"No module named 'torchvision'" in done.stderr and os.environ.get("ZRFS_ALLOW_NO_TORCHVISION") == "1":
            print("torchvision is missing, and ZRFS_ALLOW_NO_TORCHVISION=1 allows it")
            return None
        self.fail(
            f"torchvision's listing failed with {TORCH_PYTHON} (apt-get install python3-torchvision; "
            f"ZRFS_ALLOW_NO_TORCHVISION=1 goes without): {done.stderr.decode()}"
        )

    def assert_records(self, store, order):
        """The mount of `store` holds the files of `order`, byte for byte, at their indices."""
        with self.mount(store) as mount:
            names = mount.names()
            self.assertEqual([name.split(".")[0] for name in names], [f"{i:08}" for i in range(len(order))])
            for name, source in zip(names, order):
                with open(mount.records / name, "rb") as a, open(source, "rb") as b:
                    self.assertTrue(a.read() == b.read(), f"records/{name} differs from {source}")

    def test_the_tree_is_the_one_that_is_meant(self):
        self.assertEqual(len(self.order), 8121)
        self.assertEqual(len(self.large), 19)
        self.assertEqual(len([e for e in os.scandir(self.root) if e.is_dir()]), 22)
        self.assertEqual(len(list(os.walk(self.root, followlinks=True))), 167)

    def test_whole_tree_becomes_version_2_and_equals_its_source(self):
        store = self.dir / "clipart.zr"
        done = zrfs("import", self.root, store, timeout=300)
        self.assertRegex((done.stdout + done.stderr).decode(), r"(?i)version 2")
        self.assertFalse(os.path.exists(f"{store}.partial"))

        stats = json.loads(zrfs("stats", store, "--json").stdout)
        self.assertEqual((stats["version"], stats["records"]), (2, 8121))
        self.assertEqual(stats["logical_bytes"], sum(os.path.getsize(p) for p in self.order))
        self.assertEqual(stats["damaged"], 0)
        self.assert_records(store, self.order)

        # `cat` of all of them, one after another.
        with subprocess.Popen(["cat", *self.order[:4000]], stdout=subprocess.PIPE) as plain:
            expected = plain.stdout.read()
        self.assertTrue(zrfs("cat", store, "0-3999").stdout == expected)

    def test_only_png_is_imagefolder_s_list(self):
        listed = self.imagefolder(self.root)
        if listed is None:
            listed = [p for p in self.order if p.endswith(".png")]
        store = self.dir / "png.zr"
        zrfs("import", self.root, store, "--only", "*.png", timeout=300)
        self.assert_records(store, listed)

    def test_v1_lists_what_does_not_fit_and_leaves_nothing(self):
        store = self.dir / "v1.zr"
        done = zrfs("import", "--v1", self.root, store, check=1, timeout=300)
        said = done.stderr.decode()
        self.assertIn("19", said)
        for path in self.large:
            self.assertIn(os.path.relpath(path, self.root), said)
        self.assertEqual(os.listdir(self.dir), [])


class Order(Case):
    """Where sorting by path, by name and by directory disagree."""

    FILES = [
        "z_root.png", "A_root.png", "notes.txt",
        "b/z.png", "b/a.png", "b/B.png", "b/10.png", "b/9.png",
        "b/a/1.png", "b/a-b/1.png", "b/a b/1.png", "b/a.d/1.png", "b/a/b/1.png", "b/a0/1.png",
        "B/x.png", "B/.hidden.png", "B/readme.txt", "a-class/x.png", "a/x.png", "a.class/x.png",
        "é/ü.png", "e/x.png", "c d/e, f.png", "c d/e\\f.png",
    ]

    def setUp(self):
        super().setUp()
        self.root = self.dir / "tree"
        make_tree(self.root, {name: f"<{name}>".encode() for name in self.FILES})
        os.symlink("../b/a", self.root / "e" / "linked-dir")
        os.symlink("../a/x.png", self.root / "e" / "linked.png")
        os.symlink("b", self.root / "linked-class")

    def contents(self, order):
        return b"".join(pathlib.Path(os.fsdecode(path)).read_bytes() for path in order)

    def test_whole_tree_follows_the_published_rule(self):
        order = imagefolder_order(self.root)
        store = self.dir / "tree.zr"
        done = zrfs("import", self.root, store)
        self.assertEqual(zrfs("cat", store, f"0-{len(order) - 1}").stdout, self.contents(order))
        self.assertEqual(json.loads(zrfs("stats", store, "--json").stdout)["records"], len(order))
        self.assertNotRegex((done.stdout + done.stderr).decode(), r"(?i)version 2")

    def test_only_images_is_torchvision_s_list(self):
        listed = Openclipart.imagefolder(self, self.root)
        if listed is None:
            listed = [os.fsdecode(p) for p in imagefolder_order(self.root) if p.endswith(b".png")]
        # ImageFolder looks at no file of the root; those are removed here, so that both see the same.
        for name in os.listdir(self.root):
            if os.path.isfile(self.root / name):
                os.unlink(self.root / name)
        listed = [p for p in listed if os.path.dirname(p) != str(self.root)]
        store = self.dir / "tree.zr"
        zrfs("import", self.root, store, "--only", "*.png")
        self.assertEqual(zrfs("cat", store, f"0-{len(listed) - 1}").stdout, self.contents(listed))
        self.assertEqual(json.loads(zrfs("stats", store, "--json").stdout)["records"], len(listed))

    def test_a_name_that_is_not_utf8(self):
        make_tree(self.root, {b"b/\xff\xfe.png": b"<not utf-8>"})
        order = imagefolder_order(self.root)
        store = self.dir / "tree.zr"
        zrfs("import", self.root, store)
        self.assertEqual(zrfs("cat", store, f"0-{len(order) - 1}").stdout, self.contents(order))


if __name__ == "__main__":
    unittest.main()
