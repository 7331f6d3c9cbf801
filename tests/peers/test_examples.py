"""The examples that train from a mount, and the one that cleans it up: what they print, beside NumPy on the source."""

import json
import os
import re
import shutil
import sys

import numpy as np

from frameworks import FrameworksCase
from support import ROOT, ZRFS, Case, import_folder, run, zrfs
from test_openclipart import clipart_root

EXAMPLES = ROOT / "examples"


class Arrays(FrameworksCase):
    SAMPLER = ["--mode", "shuffle", "--seed", "7", "--batch-size", "64"]

    def setUp(self):
        super().setUp()
        rng = np.random.default_rng(1)
        self.data = rng.normal(size=(1000, 3, 4)).astype("<f4")
        self.labels = (self.data.sum((1, 2)) > 0).astype("<i8")
        np.save(self.dir / "features.npy", self.data)
        np.save(self.dir / "labels.npy", self.labels)
        for name in ("features", "labels"):
            zrfs("import", self.dir / f"{name}.npy", self.dir / f"{name}.zr")

    def example(self, name, *args):
        return run(sys.executable, EXAMPLES / name, self.mnt, *map(str, args), check=0).stdout.decode()

    def mounted(self):
        options = f"labels={self.dir}/labels.zr,mode=shuffle,seed=7,batch_size=64"
        return self.mount(self.dir / "features.zr", "-o", options)

    def step(self, step):
        indices = zrfs("sample", self.dir / "features.zr", *self.SAMPLER, "--start", str(step), "--steps", "1").stdout
        indices = list(map(int, indices.split()))
        return self.data[indices], self.labels[indices]

    def test_array_mmap(self):
        with self.mounted():
            said = self.example("array_mmap.py")
            # It let go of the array: a delete is not busy.
            zrfs("delete", self.mnt, "0")
        self.assertIn("(1000, 3, 4) float32, 48000 bytes", said)
        picked = np.random.default_rng(7).integers(0, 1000, 256)
        means = [float(found) for found in re.findall(r"mean (\S+)", said)]
        np.testing.assert_allclose(means, [self.data[picked].mean(dtype="f8"), self.data[500:756].mean(dtype="f8")], atol=2e-6)

    def test_batches_workers(self):
        with self.mounted():
            first, later = self.example("batches_workers.py"), self.example("batches_workers.py", 3, 20, 50)
        self.assertIn("4 workers and one reader saw the same 20 steps: True", first)
        self.assertIn("to go on: step 20", first)
        self.assertIn("3 workers and one reader saw the same 50 steps: True", later)
        for said, start in ((first, 0), (later, 20)):
            lines = re.findall(r"step (\d+): \(64, 3, 4\), sum (\S+), labels' sum (\d+)", said)
            self.assertEqual([int(step) for step, _, _ in lines], [start, start + 1, start + 2])
            for step, total, labels in lines:
                data, wanted = self.step(int(step))
                self.assertAlmostEqual(float(total), data.sum(dtype="f8"), places=4)
                self.assertEqual(int(labels), wanted.sum())

    def test_stream_npy_goes_on_at_its_checkpoint(self):
        with self.mounted():
            said = self.example("stream_npy.py", self.dir / "checkpoint", 7)
            said += self.example("stream_npy.py", self.dir / "checkpoint", 3)
            (self.dir / "checkpoint").write_text("1000000")
            said += self.example("stream_npy.py", self.dir / "checkpoint", 2)
        self.assertEqual(re.findall(r"from step (\d+)", said), ["0", "7", "1000000"])
        lines = re.findall(r"^step (\d+): \(64, 3, 4\) float32, mean (\S+)$", said, re.MULTILINE)
        self.assertEqual([int(step) for step, _ in lines], [*range(10), 1000000, 1000001])
        for step, mean in lines:
            self.assertAlmostEqual(float(mean), self.step(int(step))[0].mean(dtype="f8"), places=5)
        self.assertEqual((self.dir / "checkpoint").read_text(), "1000002")

    def test_jax_batches(self):
        with self.mounted() as mount:
            said = self.peer(EXAMPLES / "jax_batches.py", mount.point, "10", "50")
        losses = {}
        weights = np.zeros(12)
        for step in range(10, 60):
            data, labels = self.step(step)
            data = data.reshape(64, 12).astype("f8")
            error = data @ weights - labels
            losses[step] = (error ** 2).mean()
            weights -= 0.1 * 2 * data.T @ error / 64
        lines = re.findall(r"step (\d+): \(64, 12\) float32, loss (\S+)", said)
        self.assertEqual([int(step) for step, _ in lines], [10, 59])
        for step, loss in lines:
            self.assertAlmostEqual(float(loss), losses[int(step)], places=4)


class Images(FrameworksCase):
    def test_webdataset_tar(self):
        source, root = self.dir / "some", clipart_root()
        folders = [name for name in sorted(os.listdir(root)) if os.path.isdir(os.path.join(root, name))][:3]
        for folder in folders:
            shutil.copytree(os.path.join(root, folder), source / folder)
        zrfs("import", source, self.dir / "some.zr", "--only", "*.png", "--labels", self.dir / "labels.zr")
        with self.mount(self.dir / "some.zr", "-o", f"labels={self.dir}/labels.zr,batch_size=8") as mount:
            stats = json.loads((mount.point / "stats").read_text())
            said = self.torch_peer(EXAMPLES / "webdataset_tar.py", mount.point, "{000..019}")
        drawn = zrfs("sample", self.dir / "some.zr", "--batch-size", "8", "--steps", "1").stdout.split()
        self.assertIn("{000..019}, 2 workers: 20 batches, 160 samples of (32, 32, 3), classes [0, 1, 2]", said)
        # The first samples of the stream, with the class of their folder.
        order = [json.loads(line)["name"].split("/")[0] for line in
                 zrfs("ls", self.dir / "some.zr", "--json").stdout.decode().splitlines()]
        self.assertEqual(len(order), stats["records"])
        self.assertEqual(re.findall(r"batch.tar: record (\d+), class (\d+)", said),
                         [(index.decode(), str(folders.index(order[int(index)]))) for index in drawn[:3]])


class CleanUp(Case):
    def test_clean_up(self):
        contents = [b"record %02d\n" % i * 3000 for i in range(40)]
        store = import_folder(self.dir, "s.zr", contents, "--codec", "raw")
        names = [json.loads(line)["name"] for line in zrfs("ls", store, "--json").stdout.decode().splitlines()]
        (self.dir / "bad.txt").write_text(f"{names[20]}\n{names[21]}\n")
        path = f"{os.path.dirname(ZRFS)}:{os.environ['PATH']}"
        with self.mount(store) as mount:
            done = run("sh", EXAMPLES / "clean_up.sh", mount.point, self.dir / "bad.txt", check=0,
                       env={**os.environ, "PATH": path})
            left = sorted(mount.read(i) for i in range(31))
            self.assertEqual(len(mount.names()), 31)
        said = done.stdout.decode()
        self.assertIn('{"batches":1,"deleted":2,"records":38,"moves":[[38,7],[39,12]],"refused":null}', said)
        self.assertIn('"deleted":5\n', said)
        self.assertIn('"refused":"no record 4000000000: the store holds 33"', said)
        self.assertIn("deleted 2 records, 31 left", said)
        self.assertIn('"state": "done"', said)
        self.assertGreater(int(re.search(r'"freed": (\d+)', said)[1]), 0)
        doomed = {7, 12, 0, 2, 4, 6, 8, 20, 21}
        self.assertEqual(left, sorted(content for i, content in enumerate(contents) if i not in doomed))

    def test_labels_by_a_relative_path_are_deleted_too(self):
        store = import_folder(self.dir, "s.zr", [b"%d" % i for i in range(10)])
        np.save(self.dir / "l.npy", np.arange(10))
        zrfs("import", self.dir / "l.npy", self.dir / "l.zr")
        self.mnt.mkdir()
        zrfs("mount", "s.zr", "mnt", "-o", "labels=l.zr", cwd=self.dir)
        try:
            run("sh", "-c", "echo 0 > mnt/delete", cwd=self.dir, check=0)
        finally:
            zrfs("umount", self.mnt)
        zrfs("export", self.dir / "l.zr", self.dir / "left.npy")
        self.assertEqual(np.load(self.dir / "left.npy").tolist(), [9, *range(1, 9)])
