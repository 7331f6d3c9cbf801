"""loaderx 0.5.0 and zrfs read what the other wrote, and append to what the other wrote."""

import importlib.metadata
import json
import pathlib
import shutil
import sys
import unittest

import numpy as np
from support import MIB, Case, import_folder, make_folder, noise, read_meta, run, text, zrfs

PEER = pathlib.Path(__file__).with_name("loaderx_peer.py")
DTYPES = ["?", "u1", "i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f2", "<f4", "<f8", "<c8", "<c16"]
SHAPES = [(), (5,), (3, 4), (2, 3, 4)]


def array_of(dtype, shape, n, seed=0):
    """Samples that differ from each other, of any dtype; half of each batch compresses."""
    rng = np.random.default_rng(seed)
    size = n * int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    raw = rng.integers(0, 256, size, dtype=np.uint8)
    raw[: size // 2] //= 64
    if np.dtype(dtype).kind == "b":
        raw &= 1
    return raw.view(dtype).reshape(n, *shape)


def same(a, b):
    """Equal to the bit, NaN included."""
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


class BothWays(Case):
    @classmethod
    def setUpClass(cls):
        version = importlib.metadata.version("loaderx")
        if version != "0.5.0":
            raise AssertionError(f"loaderx 0.5.0 is the counterpart, {version} is installed")

    def setUp(self):
        super().setUp()
        self.store = self.dir / "store.zr"
        self.scratch = self.dir / "scratch"
        self.scratch.mkdir()

    # loaderx's turns

    def peer(self, *args, check=0):
        return run(sys.executable, PEER, *args, check=check)

    def loaderx_write(self, array, codec="flate"):
        np.save(self.scratch / "in.npy", array)
        self.peer("write-dense", self.store, self.scratch / "in.npy", codec)

    def loaderx_read(self):
        self.peer("read-dense", self.store, self.scratch / "out.npy")
        return np.load(self.scratch / "out.npy")

    def loaderx_append_ragged(self, records, codec="flate"):
        self.store.mkdir(exist_ok=True)
        np.savez(
            self.scratch / "in.npz",
            bytes=np.frombuffer(b"".join(records), dtype=np.uint8),
            lens=np.array([len(r) for r in records], dtype=np.uint32),
        )
        self.peer("append-ragged", self.store, self.scratch / "in.npz", codec)

    def loaderx_read_ragged(self):
        self.peer("read-ragged", self.store, self.scratch / "out.npz")
        with np.load(self.scratch / "out.npz") as out:
            data, lens = out["bytes"].tobytes(), out["lens"].tolist()
        ends = np.cumsum(lens).tolist()
        return [data[end - size:end] for size, end in zip(lens, ends)]

    # zrfs's turns

    def zrfs_import(self, array, *options):
        np.save(self.scratch / "in.npy", array)
        return zrfs("import", self.scratch / "in.npy", self.store, *options)

    def zrfs_import_ragged(self, records, *options):
        make_folder(self.scratch / "folder", records)
        zrfs("import", self.scratch / "folder", self.store, *options)
        shutil.rmtree(self.scratch / "folder")

    # What both must see

    def assert_dense(self, array):
        """By zrfs's cat, ls, stats and mount, and by loaderx."""
        n = len(array)
        self.assertTrue(zrfs("cat", self.store, f"0-{n - 1}").stdout == array.tobytes(), "cat")
        self.assertEqual(json.loads(zrfs("stats", self.store, "--json").stdout)["records"], n)
        rows = [line.split(b"\t") for line in zrfs("ls", self.store).stdout.splitlines()]
        self.assertEqual([int(row[1]) for row in rows], [array[0].nbytes] * n)
        with self.mount(self.store) as mount:
            self.assertEqual(mount.names(), [f"{i:08}.npy" for i in range(n)])
            for i in range(n):
                self.assertTrue(same(np.load(mount.path(i, "npy")), array[i, ...]), f"records/{i:08}.npy")
                # A mapped one too; rank 0 has nothing to map in older releases of NumPy.
                if array.ndim > 1 and i % 16 == 0:
                    self.assertTrue(same(np.array(np.load(mount.path(i, "npy"), mmap_mode="r")), array[i]))
        self.assertTrue(same(self.loaderx_read(), array), "loaderx")

    def assert_ragged(self, records):
        n = len(records)
        self.assertTrue(zrfs("cat", self.store, f"0-{n - 1}").stdout == b"".join(records), "cat")
        rows = [line.split(b"\t") for line in zrfs("ls", self.store).stdout.splitlines()]
        self.assertEqual([int(row[1]) for row in rows], [len(r) for r in records])
        with self.mount(self.store) as mount:
            self.assertEqual(mount.names(), [f"{i:08}.bin" for i in range(n)])
            for i, record in enumerate(records):
                self.assertTrue(mount.read(i) == record, f"records/{i:08}.bin")
        self.assertTrue(self.loaderx_read_ragged() == records, "loaderx")

    IMAGES = staticmethod(lambda seed: array_of("u1", (3, 32, 32), 200, seed))
    RAGGED = [b"a", noise(MIB, 1), text(MIB), text(1), b"\0" * 3, noise(4097, 2), text(100_000), noise(2, 3)]


class LoaderxWrites(BothWays):
    """zrfs reads loaderx's stores."""

    def test_images_deflate(self):
        self.loaderx_write(self.IMAGES(1))
        _, entries = read_meta(self.store)
        self.assertEqual({e[4] for e in entries}, {0, 1}, "the sample should use both codecs")
        self.assert_dense(self.IMAGES(1))

    def test_images_raw(self):
        self.loaderx_write(self.IMAGES(2), "raw")
        self.assert_dense(self.IMAGES(2))

    def test_float32(self):
        self.loaderx_write(array_of("<f4", (17,), 300))
        self.assert_dense(array_of("<f4", (17,), 300))

    def test_int64_scalars(self):
        labels = np.arange(-500, 500, dtype=np.int64) ** 3
        self.loaderx_write(labels)
        self.assert_dense(labels)

    def test_ragged_deflate_and_raw(self):
        self.loaderx_append_ragged(self.RAGGED)
        self.assert_ragged(self.RAGGED)
        self.loaderx_append_ragged(self.RAGGED, "raw")
        self.assert_ragged(self.RAGGED * 2)

    def test_every_dtype_and_rank(self):
        for dtype in DTYPES:
            for shape in SHAPES:
                with self.subTest(dtype=dtype, shape=shape):
                    shutil.rmtree(self.store, ignore_errors=True)
                    array = array_of(dtype, shape, 7)
                    self.loaderx_write(array)
                    self.assertTrue(zrfs("cat", self.store, "0-6").stdout == array.tobytes())
                    with self.mount(self.store) as mount:
                        for i in range(7):
                            self.assertTrue(same(np.load(mount.path(i, "npy")), array[i, ...]))

    def test_after_loaderx_deleted_and_compacted(self):
        array = self.IMAGES(3)
        self.loaderx_write(array)
        script = (
            "import sys; from loaderx import Dataset\n"
            "with Dataset(sys.argv[1]) as d:\n d.delete([7, 12, 199, *range(50, 90)]); d.compact()"
        )
        run(sys.executable, "-c", script, self.store, check=0)
        left = self.loaderx_read()
        self.assertEqual(len(left), 200 - 43)
        self.assert_dense(left)


class ZrfsWrites(BothWays):
    """loaderx reads zrfs's stores."""

    def test_images_deflate(self):
        self.zrfs_import(self.IMAGES(1))
        self.assert_dense(self.IMAGES(1))

    def test_images_raw(self):
        self.zrfs_import(self.IMAGES(2), "--codec", "raw")
        _, entries = read_meta(self.store)
        self.assertEqual({e[4] for e in entries}, {0})
        self.assert_dense(self.IMAGES(2))

    def test_float32_at_every_level(self):
        array = array_of("<f4", (1700,), 30)
        for level in range(1, 13):
            with self.subTest(level=level):
                shutil.rmtree(self.store, ignore_errors=True)
                self.zrfs_import(array, "--level", str(level))
                self.assert_dense(array)

    def test_int64_scalars(self):
        labels = np.arange(-500, 500, dtype=np.int64) ** 3
        self.zrfs_import(labels)
        self.assert_dense(labels)

    def test_records_of_one_mib(self):
        array = array_of("u1", (MIB,), 5)
        self.zrfs_import(array)
        self.assert_dense(array)

    def test_ragged_deflate_and_raw(self):
        for codec in ("flate", "raw"):
            with self.subTest(codec=codec):
                shutil.rmtree(self.store, ignore_errors=True)
                self.zrfs_import_ragged(self.RAGGED, "--codec", codec)
                self.assertEqual(read_meta(self.store)[0][1], 1)
                self.assert_ragged(self.RAGGED)

    def test_every_dtype_and_rank(self):
        for dtype in DTYPES:
            for shape in SHAPES:
                with self.subTest(dtype=dtype, shape=shape):
                    shutil.rmtree(self.store, ignore_errors=True)
                    array = array_of(dtype, shape, 7)
                    self.zrfs_import(array)
                    schema = json.loads((self.store / "schema.json").read_text())
                    self.assertEqual(schema, {
                        "format": "loaderx-zrecord", "version": 1, "dtype": np.dtype(dtype).str,
                        "shape": list(shape), "codec": "flate",
                    })
                    self.assertTrue(same(self.loaderx_read(), array))

    def test_version_2_is_refused_by_loaderx_s_own_error(self):
        store = import_folder(self.dir, "v2.zr", [b"", b"x", noise(4 * MIB, 1)])
        self.assertEqual(read_meta(store)[0][1], 2)
        done = self.peer("read-ragged", store, self.scratch / "out.npz", check=3)
        self.assertIn(b"ZrecordError -8: not a zrecord store", done.stderr)


class TakingTurns(BothWays):
    """Each appends to the other's store, several rounds, and both agree after each."""

    def take_turns(self, first, rounds, append, assert_all, parts):
        have = []
        for turn in range(rounds):
            peer = (turn + first) % 2
            append[peer](parts[turn], turn == 0)
            have.append(parts[turn])
            assert_all(have)

    def test_dense(self):
        for first in (0, 1):
            for codec in ("flate", "raw"):
                with self.subTest(first=("zrfs", "loaderx")[first], codec=codec):
                    shutil.rmtree(self.store, ignore_errors=True)
                    self.take_turns(
                        first, 6,
                        [
                            lambda a, new: self.zrfs_import(a, "--codec", codec, *([] if new else ["--append"])),
                            lambda a, new: self.loaderx_write(a, codec),
                        ],
                        lambda have: self.assert_dense(np.concatenate(have)),
                        [array_of("u1", (3, 32, 32), 11 + turn, turn) for turn in range(6)],
                    )

    def test_ragged(self):
        for first in (0, 1):
            with self.subTest(first=("zrfs", "loaderx")[first]):
                shutil.rmtree(self.store, ignore_errors=True)
                self.take_turns(
                    first, 6,
                    [
                        lambda r, new: self.zrfs_import_ragged(r, *([] if new else ["--append"])),
                        lambda r, new: self.loaderx_append_ragged(r),
                    ],
                    lambda have: self.assert_ragged(sum(have, [])),
                    [self.RAGGED[turn:] + [text(turn + 1, turn)] for turn in range(6)],
                )


class Refused(BothWays):
    """Arrays that a store cannot hold: exit status 1, one clear line, nothing left behind."""

    def refuse(self, array, *words):
        np.save(self.scratch / "in.npy", array, allow_pickle=True)
        done = zrfs("import", self.scratch / "in.npy", self.store, check=None)
        self.assert_clear(done, "in.npy", *words)
        self.assertEqual(sorted(p.name for p in self.dir.iterdir()), ["scratch"])

    def test_fortran_order(self):
        self.refuse(np.asfortranarray(array_of("<f4", (3, 4), 5)), "fortran")

    def test_object(self):
        self.refuse(np.array([{}, None, 3], dtype=object), "object")

    def test_structured(self):
        self.refuse(np.zeros(5, dtype=[("x", "<f4"), ("y", "<i4")]), "structured")

    def test_rank_0(self):
        self.refuse(np.array(7, dtype="<i8"))

    def test_not_numbers(self):
        for dtype in ("U5", "S5", "M8[s]", "m8[s]", "V3"):
            with self.subTest(dtype=dtype):
                self.refuse(np.zeros(5, dtype=dtype))

    def test_cut_off(self):
        np.save(self.scratch / "whole.npy", array_of("<f4", (3, 4), 5))
        whole = (self.scratch / "whole.npy").read_bytes()
        for size in (0, 5, 9, 60, len(whole) - 1):
            with self.subTest(size=size):
                (self.scratch / "in.npy").write_bytes(whole[:size])
                done = zrfs("import", self.scratch / "in.npy", self.store, check=None)
                self.assert_clear(done, "in.npy")
                self.assertFalse(self.store.exists())


if __name__ == "__main__":
    unittest.main()
