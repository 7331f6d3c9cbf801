"""Batches through the mount, with stock tools: the same as `zrfs sample`, as loaderx's sampler, and as each other."""

import errno
import os
import pathlib
import subprocess
import sys

import numpy as np
from loaderx._sampler import Sampler
from support import Case, import_folder, noise, run, text, zrfs

N, BATCH = 500, 32
LOADERX = {"sequential": Sampler.Mode.SEQUENTIAL, "iid": Sampler.Mode.IID}

CONSUMER = """
import sys, numpy as np
with open(sys.argv[1], "rb") as f:
    while True:
        batch = np.load(f)
        print(*batch[:, 0, 0], flush=True)
"""


class Batches(Case):
    def setUp(self):
        super().setUp()
        self.images = np.arange(N, dtype=np.float32)[:, None, None] + np.zeros((1, 20, 30), np.float32)
        self.images[:, 1:, :] *= np.random.default_rng(1).random((N, 19, 30), np.float32)
        self.classes = np.arange(N, dtype=np.int64) % 10
        self.store, self.labels = self.dense("images", self.images), self.dense("classes", self.classes)

    def dense(self, name, array):
        source, store = self.dir / f"{name}.npy", self.dir / f"{name}.zr"
        np.save(source, array)
        zrfs("import", source, store)
        return store

    def options(self, mode, **others):
        options = {"mode": mode, "seed": 9, "batch_size": BATCH, "labels": self.labels, **others}
        return "-o", ",".join(f"{key}={value}" for key, value in options.items())

    def sample(self, mode, start, steps):
        args = ("--mode", mode, "--seed", 9, "--batch-size", BATCH, "--start", start, "--steps", steps)
        lines = zrfs("sample", self.store, *map(str, args)).stdout.splitlines()
        return [np.array(line.split(), dtype=np.int64) for line in lines]

    def test_load_again_and_again(self):
        for mode, far in (("sequential", 10**6), ("shuffle", 10**6), ("iid", 10**5)):
            with self.subTest(mode=mode), self.mount(self.store, *self.options(mode)) as mount:
                with open(mount.point / "batch.npy", "rb") as f, open(mount.point / "batch.label.npy", "rb") as g:
                    for indices in self.sample(mode, 0, 40):
                        np.testing.assert_array_equal(np.load(f), self.images[indices])
                        np.testing.assert_array_equal(np.load(g), self.classes[indices])
                    unit = f.tell() // 40
                    self.assertEqual(unit * 40, f.tell())
                    f.seek(far * unit)
                    for indices in self.sample(mode, far, 20):
                        np.testing.assert_array_equal(np.load(f), self.images[indices])
                if mode in LOADERX:
                    theirs = Sampler(N, BATCH, LOADERX[mode], 9)
                    with open(mount.point / "batch.npy", "rb") as f:
                        for _ in range(20):
                            np.testing.assert_array_equal(np.load(f), self.images[theirs.next()])
                with open(mount.point / "batch", "rb") as f:
                    f.seek(7 * BATCH * 2400)
                    rows = np.frombuffer(f.read(BATCH * 2400), np.float32).reshape(-1, 20, 30)
                    np.testing.assert_array_equal(rows, self.images[self.sample(mode, 7, 1)[0]])

    def test_steps_are_files(self):
        with self.mount(self.store, *self.options("iid", steps=4)) as mount:
            folder = mount.point / "batches"
            self.assertEqual(len(os.listdir(folder)), 16)
            for step, indices in enumerate(self.sample("iid", 0, 6)):
                np.testing.assert_array_equal(np.load(folder / f"{step}.npy"), self.images[indices])
                np.testing.assert_array_equal(np.load(folder / f"{step:06}.npy", mmap_mode="r"), self.images[indices])
                np.testing.assert_array_equal(np.load(folder / f"{step}.index.npy"), indices)
                np.testing.assert_array_equal(np.load(folder / f"{step}.label.npy"), self.classes[indices])
                done = run("tar", "tvf", folder / f"{step}.tar", check=0)
                self.assertEqual(done.stderr, b"")
                self.assertEqual(len(done.stdout.splitlines()), 3 * BATCH)
            run("tar", "xf", folder / "5.tar", "-C", self.dir, check=0)
            for place, index in enumerate(indices):
                key = self.dir / f"{5:012}-{place:04}"
                np.testing.assert_array_equal(np.load(f"{key}.npy"), self.images[index])
                self.assertEqual(int(pathlib.Path(f"{key}.cls").read_text()), self.classes[index])
                self.assertEqual(int(pathlib.Path(f"{key}.idx").read_text()), index)

    def test_a_consumer_that_was_killed_goes_on(self):
        seen = []
        for turn in range(3):
            with self.mount(self.store, *self.options("shuffle", start=len(seen))) as mount:
                consumer = subprocess.Popen(
                    [sys.executable, "-c", CONSUMER, mount.point / "batch.npy"], stdout=subprocess.PIPE,
                )
                for _ in range(7 + turn):
                    seen.append([int(float(word)) for word in consumer.stdout.readline().split()])
                consumer.kill()
                consumer.wait()
                consumer.stdout.close()
        self.assertEqual(seen, [indices.tolist() for indices in self.sample("shuffle", 0, len(seen))])

    def test_the_array_is_mapped(self):
        with self.mount(self.store) as mount:
            array = mount.point / "array.npy"
            np.testing.assert_array_equal(np.load(array), self.images)
            self.assertEqual(os.stat(array).st_blocks, 0)
            done = run("cp", array, self.dir / "copy.npy", check=0)
            self.assertEqual(done.stderr, b"")
            np.testing.assert_array_equal(np.load(self.dir / "copy.npy"), self.images)

    def test_random_rows_of_the_array(self):
        for name, array in (
            ("images", self.images),
            ("numbers", np.random.default_rng(2).integers(0, 1 << 60, 10**6)),
        ):
            store = self.store if name == "images" else self.dense(name, array)
            with self.subTest(name), self.mount(store) as mount:
                mapped = np.load(mount.point / "array.npy", mmap_mode="r")
                self.assertEqual((mapped.shape, mapped.dtype), (array.shape, array.dtype))
                for row in np.random.default_rng(3).integers(0, len(array), 300):
                    np.testing.assert_array_equal(mapped[row], array[row])
                rows = np.random.default_rng(4).integers(0, len(array), 1000)
                np.testing.assert_array_equal(mapped[rows], array[rows])
                np.testing.assert_array_equal(mapped[-1], array[-1])
                del mapped

    def test_a_stream_of_ragged_records(self):
        contents = [text(i * 37 % 30_000, i) if i % 2 else noise(i * 91 % 50_000, i) for i in range(100)]
        store = import_folder(self.dir, "ragged.zr", contents)
        with self.mount(store, "-o", "mode=shuffle,seed=9,batch_size=10,start=2") as mount:
            self.assertFalse((mount.point / "array.npy").exists())
            script = 'set -o pipefail; head -c "$2" "$1" | tar tif - 2>&1'
            size = sum(os.stat(mount.point / f"batches/{step}.tar").st_size - 1024 for step in range(2, 22))
            done = run("bash", "-c", script, "-", mount.point / "batch.tar", str(size), check=0)
            self.assertEqual(len(done.stdout.splitlines()), 20 * 10 * 2)
            with open(mount.point / "batch", "rb") as f:
                self.assert_errno([errno.ESPIPE], os.lseek, f.fileno(), 512, os.SEEK_SET)
                self.assert_errno([errno.ESPIPE], os.pread, f.fileno(), 512, 512)
                whole = f.read(size)
            files = b"".join((mount.point / f"batches/{step}.tar").read_bytes()[:-1024] for step in range(2, 22))
            self.assertEqual(whole, files)
            done = run("bash", "-c", 'timeout -s INT 1 cat "$0" | wc -c', mount.point / "batch.tar", check=0, timeout=20)
            self.assertGreater(int(done.stdout), 10_000)

    def test_labels_of_other_records_are_refused(self):
        few = self.dense("few", self.classes[:-1])
        self.mnt.mkdir()
        done = zrfs("mount", self.store, self.mnt, "-o", f"labels={few}", check=None)
        self.assert_clear(done, "few.zr", "499", "500")
