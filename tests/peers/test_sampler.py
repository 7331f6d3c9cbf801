"""`zrfs sample` beside the sampler of loaderx's own library: the same indices, whatever the length, batch size and seed."""

import itertools
import math
import os
import pathlib
import random
import tempfile
import time

import numpy as np
from loaderx._sampler import Sampler
from support import META_SIZE, ZRFS, Case, import_folder, run, say, zrfs

N = 1 << 24
COMBINATIONS = 3000
LOADERX = {"sequential": Sampler.Mode.SEQUENTIAL, "iid": Sampler.Mode.IID}
MODES = [*LOADERX, "shuffle"]


def steps(*args):
    """What `zrfs sample` prints: one array of indices for each line."""
    return [np.array(line.split(b" "), dtype=np.uint64) for line in zrfs("sample", *args).stdout.splitlines()]


class Words:
    """The generator of a pass, as the sampler's documentation has it."""

    M = (1 << 64) - 1

    def __init__(self, seed, number):
        self.a, self.b, self.c, self.counter = seed, number & self.M, number >> 64, 1
        for _ in range(18):
            self.word()

    def word(self):
        word = (self.a + self.b + self.counter) & self.M
        self.counter += 1
        self.a = self.b ^ (self.b >> 11)
        self.b = (self.c + (self.c << 3)) & self.M
        self.c = (((self.c << 24) & self.M | self.c >> 40) + word) & self.M
        return word

    def below(self, bound):
        return self.word() * bound >> 64


def mix(x):
    x = x * 0xbf58476d1ce4e5b9 & Words.M
    return (x ^ (x >> 32)) * 0x94d049bb133111eb & Words.M


def shuffled(length, seed, number):
    """Pass `number` of a shuffle, as the sampler's documentation has it."""
    words = Words(seed, number)
    if length <= 256:
        table = list(range(length))
        for i in range(length - 1, 0, -1):
            j = words.below(i + 1)
            table[i], table[j] = table[j], table[i]
        yield from table
        return
    rows = math.isqrt(length - 1) + 1
    rows += rows % 2
    columns = (length + rows - 1) // rows
    keys = [words.word() for _ in range(10)]
    for place in range(length):
        index = place
        while True:
            row, column = divmod(index, columns)
            for i, key in enumerate(keys):
                if i % 2 == 0:
                    row = (row + (mix(column ^ key) * rows >> 64)) % rows
                else:
                    column = (column + (mix(row ^ key) * columns >> 64)) % columns
            index = row * columns + column
            if index < length:
                break
        yield index


class Sampling(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # One store for all: --length makes a shorter one of it. Its entries are a hole, since none is read.
        folder = tempfile.TemporaryDirectory(prefix="zrfs-peer-")
        cls.addClassCleanup(folder.cleanup)
        cls.full = pathlib.Path(folder.name) / "full.zr"
        cls.full.mkdir()
        (cls.full / "0.zr").write_bytes(b"")
        with open(cls.full / "meta.zr", "wb") as f:
            f.write(b"ZREC" + np.array([1, 0], "<u2").tobytes() + np.array([0, N], "<u4").tobytes())
            f.truncate(META_SIZE)

    def sample(self, length, *args):
        return steps(self.full, "--length", str(length), *args)

    def assert_same(self, ours, theirs):
        self.assertEqual([step.tolist() for step in ours], [step.tolist() for step in theirs])

    def test_the_indices_are_loaderxs(self):
        rng = random.Random(1)
        lengths = [1, 2, 3, 10, 255, 256, 257, 65_536, 1_000_003, N - 1, N]
        begin = time.monotonic()
        larger = 0
        for turn in range(COMBINATIONS):
            length = rng.choice([rng.choice(lengths), rng.randint(1, 300), rng.randint(1, N), 1 << rng.randint(0, 24)])
            batch = rng.choice([1, 2, 3, rng.randint(1, 64), rng.randint(1, 600), rng.randint(1, 2 * length) % 3000 + 1])
            seed = rng.choice([0, 1, 42, rng.randint(0, 1000), rng.getrandbits(64), (1 << 64) - 1])
            count = rng.randint(1, 4)
            mode = rng.choice(list(LOADERX))
            larger += batch > length
            with self.subTest(length=length, batch=batch, mode=mode, seed=seed):
                ours = self.sample(
                    length, "--batch-size", str(batch), "--mode", mode, "--seed", str(seed), "--steps", str(count),
                )
                theirs = Sampler(length, batch, LOADERX[mode], seed)
                self.assert_same(ours, [theirs.next() for _ in range(count)])
        self.assertGreater(larger, 100)
        say(f"{COMBINATIONS} combinations in {time.monotonic() - begin:.0f} s; in {larger} the batch is larger than the length")

    def test_defaults_are_loaderxs(self):
        self.assert_same(steps(self.full), [Sampler(N, 256, Sampler.Mode.IID).next()])

    def test_start_is_a_loaderx_that_has_gone_so_far(self):
        rng = random.Random(2)
        for mode in LOADERX:
            for _ in range(40):
                length, batch, seed = rng.randint(1, N), rng.randint(1, 600), rng.getrandbits(64)
                start = rng.choice([0, 1, rng.randint(2, 300), rng.randint(300, 3000)])
                with self.subTest(mode=mode, length=length, batch=batch, seed=seed, start=start):
                    theirs = Sampler(length, batch, LOADERX[mode], seed)
                    for _ in range(start):
                        theirs.next()
                    ours = self.sample(
                        length, "--batch-size", str(batch), "--mode", mode, "--seed", str(seed), "--start", str(start),
                        "--steps", "2",
                    )
                    self.assert_same(ours, [theirs.next(), theirs.next()])

    def test_far_steps(self):
        # Past more than one kept state of the generator: a single large batch takes loaderx there.
        theirs = Sampler(1_000_003, 5_000_000, Sampler.Mode.IID, 7).next()
        for start in (1_048_570, 2_097_152, 4_999_990):
            ours = self.sample(1_000_003, "--batch-size", "1", "--seed", "7", "--start", str(start), "--steps", "10")
            self.assertEqual(np.concatenate(ours).tolist(), theirs[start:start + 10].tolist())

    def test_ranks_take_the_steps_in_turn(self):
        rng = random.Random(3)
        for mode in MODES:
            for _ in range(30):
                length, batch, seed = rng.randint(1, 2000), rng.randint(1, 100), rng.getrandbits(64)
                world, start = rng.randint(1, 9), rng.randint(0, 20)
                common = ["--batch-size", str(batch), "--mode", mode, "--seed", str(seed)]
                with self.subTest(mode=mode, length=length, batch=batch, seed=seed, world=world, start=start):
                    whole = self.sample(length, *common, "--steps", str(world * (start + 5)))
                    for rank in range(world):
                        ours = self.sample(
                            length, *common, "--rank", str(rank), "--world", str(world), "--start", str(start), "--steps", "5",
                        )
                        self.assert_same(ours, whole[rank::world][start:])

    def test_shuffle_is_as_documented(self):
        for length in (1, 2, 3, 100, 255, 256, 257, 289, 1000, 4096, 5000):
            for seed in (0, 42, (1 << 64) - 1):
                with self.subTest(length=length, seed=seed):
                    ours = self.sample(
                        length, "--mode", "shuffle", "--seed", str(seed), "--batch-size", str(length), "--start", "2", "--steps", "2",
                    )
                    self.assert_same(ours, [np.array(list(shuffled(length, seed, number))) for number in (2, 3)])
                # Passes that take more than 64 bits to number.
                world = (1 << 64) - 1
                ours = self.sample(
                    length, "--mode", "shuffle", "--seed", str(seed), "--batch-size", str(length), "--start", str(world),
                    "--rank", "5", "--world", str(world),
                )
                self.assert_same(ours, [np.array(list(shuffled(length, seed, world * world + 5)))])
        first = list(itertools.islice(shuffled(N, 7, 0), 3000))
        self.assertEqual(self.sample(N, "--mode", "shuffle", "--seed", "7", "--batch-size", "3000")[0].tolist(), first)

    def test_shuffle_takes_each_index_once_a_pass(self):
        for length in (1, 2, 7, 256, 257, 1000, 65_537):
            with self.subTest(length=length):
                first, second = self.sample(length, "--mode", "shuffle", "--batch-size", str(length), "--steps", "2")
                for order in (first, second):
                    self.assertEqual(sorted(order.tolist()), list(range(length)))
                if length > 7:
                    self.assertNotEqual(first.tolist(), second.tolist())
        whole = self.sample(N, "--mode", "shuffle", "--batch-size", str(N))[0]
        self.assertTrue((np.bincount(whole.astype(np.int64), minlength=N) == 1).all())


class Command(Case):
    CONTENTS = [b"<%d>" % i for i in range(50)]

    def setUp(self):
        super().setUp()
        self.store = import_folder(self.dir, "store.zr", self.CONTENTS)

    def test_cat_takes_what_sample_prints(self):
        for mode in MODES:
            args = [self.store, "--mode", mode, "--batch-size", "70", "--steps", "3"]
            printed = zrfs("sample", *args).stdout
            wanted = b"".join(self.CONTENTS[int(i)] for i in printed.split())
            self.assertEqual(zrfs("cat", self.store, "-", input=printed).stdout, wanted)
            self.assertEqual(len(printed.splitlines()), 3)
            self.assertEqual(len(printed.split()), 210)
        self.assertEqual(zrfs("sample", self.store, "--steps", "0").stdout, b"")

    def test_refusals(self):
        refused = [
            ((self.store, "--length", "51"), 1, ("50", "51")),
            ((self.dir / "absent.zr",), 1, ("absent.zr",)),
            ((self.store, "--rank", "1"), 2, ("rank 1", "world of 1")),
            ((self.store, "--start", str(1 << 32)), 1, ("iid",)),
            ((self.store, "--world", str(1 << 40)), 1, ("ranks",)),
        ]
        for args, status, words in refused:
            with self.subTest(args=args):
                done = zrfs("sample", *args, check=None)
                self.assert_clear(done, *words, status=(status,))
                self.assertEqual(done.stdout, b"")
        for args in (
            (), (self.store, "--mode", "random"), (self.store, "--seed", "-1"), (self.store, "--seed", str(1 << 64)),
            (self.store, "--batch-size", "0"), (self.store, "--batch-size", str((1 << 24) + 1)), (self.store, "--length", "0"),
            (self.store, "--world", "0"), (self.store, "--start", "x"), (self.store, "7"),
        ):
            with self.subTest(args=args):
                done = zrfs("sample", *args, check=2)
                self.assertEqual(done.stdout, b"")
                self.assertNotIn(b"panicked", done.stderr)

    def test_an_empty_store_has_nothing_to_sample(self):
        zrfs("delete", self.store, "0-49")
        for args in ((), ("--length", "1")):
            done = zrfs("sample", self.store, *args, check=None)
            self.assert_clear(done, "store.zr", "no records")

    def test_every_step_can_be_named(self):
        last = str((1 << 64) - 1)
        for mode in ("sequential", "shuffle"):
            for args in (("--start", last), ("--start", last, "--rank", str((1 << 64) - 2), "--world", last)):
                indices = steps(self.store, "--mode", mode, *args, "--batch-size", "50")[0]
                self.assertEqual(sorted(indices.tolist()), list(range(50)))

    def test_a_closed_pipe_is_silent(self):
        script = 'set -o pipefail; { "$0" sample "$1" --steps 1000000000; echo $? >"$2.rc"; } 2>"$2" | head -c 1'
        done = run("bash", "-c", script, ZRFS, self.store, self.dir / "said", timeout=60)
        self.assertEqual(len(done.stdout), 1)
        self.assertEqual((self.dir / "said").read_bytes(), b"")
        self.assertIn((self.dir / "said.rc").read_text().strip(), ("0", "141"))

    def test_only_the_length_is_read(self):
        # Not one record is there any more; the header still says how many there were.
        os.truncate(self.store / "0.zr", 0)
        self.assertEqual(len(steps(self.store)[0]), 256)
