"""Dense stores of every number type that NumPy has, beside loaderx's Dataset: schema.json, samples, and .npy files of a mount.

The other tests of dense stores, codecs and turns are in test_loaderx_both_ways.py.
"""

import io
import json
import shutil
import unittest

import numpy as np
from loaderx import Dataset
from support import Case, zrfs

SHAPES = [(), (1,), (5,), (3, 4), (2, 1, 3, 2)]
SAMPLES = 7


def dtypes():
    """Every number type and bool of this NumPy, in both byte orders where it has one."""
    kinds = {np.dtype(t) for ts in (np.sctypeDict.values(), "?bBhHiIlLqQefdgFDG") for t in ts}
    numbers = {dtype for dtype in kinds if dtype.kind in "biufc"}
    return sorted({d.str for dtype in numbers for d in (dtype, dtype.newbyteorder(">"))})


def array_of(dtype, shape, seed=0):
    """Samples that differ from each other: bytes at random, so NaN and padding are among them."""
    dtype = np.dtype(dtype)
    size = SAMPLES * int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)
    if dtype.kind == "b":
        raw &= 1
    return raw.view(dtype).reshape(SAMPLES, *shape)


def same(a, b):
    """Equal to the bit, and of one dtype, byte order included."""
    return a.dtype.str == b.dtype.str and a.shape == b.shape and a.tobytes() == b.tobytes()


class Dense(Case):
    def for_each(self, check):
        """Call `check` with an array of every dtype and shape, and the path of a store that is not there yet."""
        found = dtypes()
        self.assertGreaterEqual(len(found), 29, found)
        for dtype in found:
            for shape in SHAPES:
                with self.subTest(dtype=dtype, shape=shape):
                    store = self.dir / "store.zr"
                    shutil.rmtree(store, ignore_errors=True)
                    check(array_of(dtype, shape), store)

    def zrfs_import(self, array, store, *options):
        np.save(self.dir / "in.npy", array)
        return zrfs("import", self.dir / "in.npy", store, *options)

    def schema(self, store):
        return json.loads((store / "schema.json").read_text())

    def assert_read_by_zrfs(self, array, store):
        self.assertTrue(zrfs("cat", store, f"0-{len(array) - 1}").stdout == array.tobytes(), "cat")
        stats = json.loads(zrfs("stats", store, "--json").stdout)
        self.assertEqual(
            (stats["records"], stats["dtype"], stats["shape"]), (len(array), array.dtype.str, list(array.shape[1:]))
        )
        with self.mount(store) as mount:
            self.assertEqual(mount.names(), [f"{i:08}.npy" for i in range(len(array))])
            for i in range(len(array)):
                self.assertTrue(same(np.load(mount.path(i, "npy")), array[i, ...]), f"records/{i:08}.npy")
                saved = io.BytesIO()
                np.save(saved, array[i, ...])
                self.assertEqual(mount.read(i, "npy"), saved.getvalue(), f"records/{i:08}.npy, byte for byte")

    def assert_read_by_loaderx(self, array, store):
        with Dataset(store) as dataset:
            self.assertEqual((dataset.dtype.str, dataset.shape), (array.dtype.str, array.shape[1:]))
            self.assertTrue(same(dataset[:], array), "loaderx")
            some = [len(array) - 1, 0, len(array) - 1]
            self.assertTrue(same(dataset[some], array[some]), "loaderx")

    def test_what_zrfs_writes(self):
        def check(array, store):
            self.zrfs_import(array, store)
            ours = self.schema(store)
            self.assert_read_by_loaderx(array, store)
            Dataset.write(self.dir / "theirs.zr", array).close()
            self.assertEqual(ours, self.schema(self.dir / "theirs.zr"))
            shutil.rmtree(self.dir / "theirs.zr")

        self.for_each(check)

    def test_what_loaderx_writes(self):
        def check(array, store):
            Dataset.write(store, array).close()
            self.assert_read_by_zrfs(array, store)

        self.for_each(check)

    def test_each_appends_to_the_others(self):
        def check(array, store):
            theirs = self.dir / "theirs.zr"
            shutil.rmtree(theirs, ignore_errors=True)
            self.zrfs_import(array, store)
            Dataset.write(store, array[::-1]).close()
            Dataset.write(theirs, array).close()
            self.zrfs_import(array[::-1], theirs, "--append")
            # concatenate gives this machine's byte order.
            both = np.concatenate([array, array[::-1]]).astype(array.dtype)
            for path in (store, theirs):
                self.assert_read_by_loaderx(both, path)
                self.assertTrue(zrfs("cat", path, f"0-{2 * SAMPLES - 1}").stdout == both.tobytes())

        self.for_each(check)

    def test_codecs(self):
        array = np.zeros((SAMPLES, 100), dtype="<f4")
        for codec in ("flate", "raw"):
            with self.subTest(codec=codec):
                ours, theirs = self.dir / f"{codec}.zr", self.dir / f"{codec}-theirs.zr"
                self.zrfs_import(array, ours, "--codec", codec)
                Dataset.write(theirs, array, codec=codec).close()
                self.assertEqual(self.schema(ours), self.schema(theirs))
                self.assert_read_by_loaderx(array, ours)
                self.assert_read_by_zrfs(array, theirs)

    def test_one_byte_order_is_not_the_other(self):
        store = self.dir / "store.zr"
        self.zrfs_import(np.ones((3, 2), dtype="<f4"), store)
        np.save(self.dir / "in.npy", np.ones((3, 2), dtype=">f4"))
        done = zrfs("import", self.dir / "in.npy", store, "--append", check=1)
        self.assert_clear(done, "<f4", ">f4")
        with self.assertRaises(ValueError):
            Dataset.write(store, np.ones((3, 2), dtype=">f4"))
        self.assert_read_by_loaderx(np.ones((3, 2), dtype="<f4"), store)

    def test_an_unusable_schema_shows_bytes_and_says_why(self):
        array = array_of("<f4", (3,))
        for text, why in [
            ('"codec": "zstd"', "zstd"),
            ('"dtype": "|O"', "Python objects"),
            ('"dtype": "|V12"', "structured"),
            ('"dtype": "<U3"', "text"),
            ('"dtype": "<M8[s]"', "time"),
        ]:
            with self.subTest(why=why):
                store = self.dir / "store.zr"
                shutil.rmtree(store, ignore_errors=True)
                self.zrfs_import(array, store)
                schema = self.schema(store) | json.loads(f"{{{text}}}")
                (store / "schema.json").write_text(json.dumps(schema))
                stats = zrfs("stats", store)
                self.assertIn(why.encode(), stats.stderr)
                self.assertTrue(zrfs("cat", store, "0-6").stdout == array.tobytes())
                with self.mount(store) as mount:
                    self.assertEqual(mount.read(3), array[3].tobytes())


if __name__ == "__main__":
    unittest.main()
