"""torchvision's ImageFolder and DataLoader on tree/ of a mount, beside the folder that it was made of."""

import json
import os
import pathlib
import shutil

from support import ROOT, Case, run, say, zrfs
from test_openclipart import TORCH_PYTHON, clipart_root

PEER = pathlib.Path(__file__).with_name("imagefolder_peer.py")


class ImageFolder(Case):
    def setUp(self):
        super().setUp()
        self.root = clipart_root()

    def peer(self, *args, timeout=600):
        done = run(TORCH_PYTHON, PEER, *args, timeout=timeout)
        if done.returncode and b"No module named 'torch" in done.stderr:
            if os.environ.get("ZRFS_ALLOW_NO_TORCHVISION") == "1":
                self.skipTest("torchvision is missing, and ZRFS_ALLOW_NO_TORCHVISION=1 allows it")
            self.fail(f"torchvision is missing in {TORCH_PYTHON}: apt-get install python3-torchvision; "
                      "ZRFS_ALLOW_NO_TORCHVISION=1 goes without")
        self.assertEqual(done.returncode, 0, done.stderr.decode()[-2000:])
        return json.loads(done.stdout)

    def test_the_mount_is_the_same_image_folder(self):
        store = self.dir / "png.zr"
        zrfs("import", self.root, store, "--only", "*.png", timeout=300)
        with self.mount(store) as mount:
            tree = mount.point / "tree"
            source, mounted = self.peer("listing", self.root, tree)
            self.assertEqual(source["classes"], mounted["classes"])
            self.assertEqual(source["class_to_idx"], mounted["class_to_idx"])
            self.assertEqual(source["samples"], mounted["samples"])
            self.assertGreater(len(mounted["samples"]), 8000)
            # Record i is sample i: one file with two names.
            names = mount.names()
            self.assertEqual(len(names), len(mounted["samples"]))
            for name, (path, _) in zip(names, mounted["samples"]):
                record, sample = os.stat(mount.records / name), os.stat(tree / path)
                self.assertEqual((record.st_ino, record.st_nlink), (sample.st_ino, 2), path)
                with open(tree / path, "rb") as a, open(os.path.join(self.root, path), "rb") as b:
                    self.assertTrue(a.read() == b.read(), path)
            seen = self.peer("pixels", self.root, tree, "9")
            self.assertEqual(seen["differ"], [])
            self.assertGreater(seen["looked"], 800)

    def test_a_data_loader_sees_the_same_with_any_workers(self):
        source = self.dir / "some"
        for folder in sorted(os.listdir(self.root)):
            path = os.path.join(self.root, folder)
            if os.path.isdir(path) and len(os.listdir(source) if source.exists() else []) < 3:
                shutil.copytree(path, source / folder)
        store = self.dir / "some.zr"
        zrfs("import", source, store, "--only", "*.png", timeout=300)
        plain, = self.peer("loader", source, "fork", "0")
        with self.mount(store) as mount:
            tree = mount.point / "tree"
            # Without workers there is nothing to spawn.
            for method, counts in (("fork", (0, 1, 2, 4, 8)), ("spawn", (1, 2, 4, 8))):
                # All in one process: torch takes seconds to begin.
                passes = self.peer("loader", tree, method, *map(str, counts))
                self.assertEqual(len(passes), len(counts))
                for workers, seen in zip(counts, passes):
                    self.assertEqual(seen["sums"], plain["sums"], f"{workers} workers by {method}")
                rates = [round(seen["rate"]) for seen in passes]
                say(f"{method}: images/s with {', '.join(map(str, counts))} workers {rates}; plain folder, 0 workers "
                    f"{plain['rate']:.0f}")

    def test_the_example_trains_on_the_mount_as_on_the_folder(self):
        source = self.dir / "some"
        folder = sorted(name for name in os.listdir(self.root) if os.path.isdir(os.path.join(self.root, name)))[0]
        for name in sorted(os.listdir(os.path.join(self.root, folder)))[:60]:
            path = os.path.join(self.root, folder, name)
            if name.endswith(".png") and os.path.isfile(path):
                os.makedirs(source / f"class{len(name) % 3}", exist_ok=True)
                shutil.copy(path, source / f"class{len(name) % 3}")
        store = self.dir / "some.zr"
        zrfs("import", source, store)
        example = ROOT / "examples/imagefolder.py"
        with self.mount(store) as mount:
            said = [run(TORCH_PYTHON, example, root, "2", timeout=300) for root in (source, mount.point / "tree")]
        if said[0].returncode and os.environ.get("ZRFS_ALLOW_NO_TORCHVISION") == "1":
            self.skipTest("torchvision is missing, and ZRFS_ALLOW_NO_TORCHVISION=1 allows it")
        for done in said:
            self.assertEqual(done.returncode, 0, done.stderr.decode()[-2000:])
        plain, mounted = (done.stdout.decode().rsplit(",", 1)[0] for done in said)
        self.assertRegex(plain, r"images in 3 classes; \d+ steps, loss")
        self.assertEqual(plain, mounted)
