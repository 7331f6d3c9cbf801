"""loaderx 0.5.0's Python layer on our library: what its own library does wrong is gone.

Needs target/engine-venv: tests/peers/engine_venv.sh makes it, and runs loaderx's own tests there. Every turn is a process of
its own (engine_turns.py), which ends at once where it finds loaderx's library in the place of ours.
"""

import collections
import filecmp
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time
import unittest

import numpy as np
from support import KIB, ROOT, Case, import_folder, noise, read_header, read_meta, run, say, snapshot, text, zrfs

PYTHON = ROOT / "target/engine-venv/bin/python"
TURNS = pathlib.Path(__file__).with_name("engine_turns.py")
LIBRARY = pathlib.Path(os.environ.get("ZRFS_LIBRARY", ROOT / "target/release/libzrfs.so"))

INDEX, DAMAGED, FORMAT, SYSTEM = -3, -7, -8, -2


def setUpModule():
    if not PYTHON.exists():
        raise AssertionError(f"{PYTHON} is missing: bash tests/peers/engine_venv.sh")
    libraries = list(PYTHON.parents[1].glob("lib/python3*/site-packages/loaderx/lib/lib*.so"))
    if len(libraries) != 2 or not all(filecmp.cmp(LIBRARY, library, shallow=False) for library in libraries):
        raise AssertionError(f"{LIBRARY} is not what loaderx has there: bash tests/peers/engine_venv.sh")


class Engine(Case):
    def setUp(self):
        super().setUp()
        self.store = self.dir / "store.zr"

    def turn(self, name, *args, timeout=300):
        """A turn of loaderx on our library; gives back its answer."""
        done = run(PYTHON, TURNS, name, *map(str, args), check=0, timeout=timeout)
        return json.loads(done.stdout) if done.stdout else None

    def start(self, name, *args):
        process = subprocess.Popen(
            [PYTHON, TURNS, name, *map(str, args)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        process.kill()
        process.communicate()

    def make(self, contents):
        self.contents = contents
        import_folder(self.dir, "store.zr", contents)

    def assert_records(self, found, lost=()):
        """Records as `record` gives them: right, but for lost ones, which are errors."""
        for i, (content, got) in enumerate(zip(self.contents, found, strict=True)):
            self.assertEqual(got, DAMAGED if i in lost else content.hex(), f"record {i}")


class Marker(Engine):
    def test_loaderxs_own_library_would_be_found_out(self):
        # The Python of the tests has loaderx as it is.
        done = run(sys.executable, TURNS, "look", self.store)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(b"zr_last_error", done.stderr)
        self.assertFalse(self.store.exists())


class Forks(Engine):
    def test_children_gather_while_threads_of_the_parent_do(self):
        self.turn("fork_loop", self.store, 40)

    def test_a_pool_of_multiprocessing(self):
        self.turn("fork_pool", self.store)

    def test_workers_of_pytorchs_loader(self):
        if run("/usr/bin/python3", "-c", "import torch").returncode:
            if os.environ.get("ZRFS_ALLOW_NO_TORCHVISION") == "1":
                self.skipTest("PyTorch is missing, and ZRFS_ALLOW_NO_TORCHVISION=1 allows it")
            self.fail("PyTorch is missing: apt-get install python3-torchvision")
        self.turn("torch_loader", self.store)


class Damage(Engine):
    def setUp(self):
        super().setUp()
        self.make([(noise if i % 2 else text)(1000 + 37 * i, i) for i in range(40)])

    def ends(self):
        """Where each record ends in the chunk."""
        return [entry[0] + entry[1] for entry in read_meta(self.store)[1]]

    @staticmethod
    def flip(path, at, bits):
        with open(path, "r+b", buffering=0) as f:
            byte = os.pread(f.fileno(), 1, at)[0]
            os.pwrite(f.fileno(), bytes([byte ^ bits]), at)

    def test_the_undamaged_store(self):
        self.assert_records(self.turn("read_each", self.store)["records"])

    def test_a_missing_chunk(self):
        (self.store / "0.zr").unlink()
        self.assert_records(self.turn("read_each", self.store)["records"], lost=range(40))
        self.assertFalse((self.store / "0.zr").exists())

    def test_a_short_chunk(self):
        ends = self.ends()
        os.truncate(self.store / "0.zr", ends[20] - 1)
        self.assert_records(self.turn("read_each", self.store)["records"], lost=range(20, 40))

    def test_a_chunk_that_is_cut_while_it_is_open(self):
        ends = self.ends()
        found = self.turn("cut_while_open", self.store, "0.zr", ends[20] - 1)
        self.assert_records(found["before"])
        self.assert_records(found["after"], lost=range(20, 40))
        self.assertEqual(found["all"][0], DAMAGED)
        self.assertIn("0.zr", found["all"][1])

    def test_a_short_table(self):
        os.truncate(self.store / "meta.zr", 16 + 16 * 30)
        self.assert_records(self.turn("read_each", self.store)["records"], lost=range(30, 40))
        os.truncate(self.store / "meta.zr", 10)
        self.assertEqual(self.turn("read_each", self.store)["open"][0], FORMAT)

    def test_a_table_that_is_cut_while_it_is_open(self):
        found = self.turn("cut_while_open", self.store, "meta.zr", 16 + 16 * 30)
        self.assert_records(found["after"], lost=range(30, 40))
        self.assertEqual(found["all"][0], DAMAGED)

    def test_a_damaged_header(self):
        for at in range(6):
            with self.subTest(byte=at):
                self.flip(self.store / "meta.zr", at, 0x40)
                self.assertEqual(self.turn("read_each", self.store)["open"][0], FORMAT)
                self.flip(self.store / "meta.zr", at, 0x40)

    def test_each_flipped_bit_of_an_entry(self):
        others = {content.hex() for content in self.contents}
        for index in (10, 11):
            own, after = (self.contents[i].hex() for i in (index, index + 1))
            errors = 0
            for bit, (got, next_one) in enumerate(self.turn("flips", self.store, index)):
                with self.subTest(index=index, byte=bit // 8, bit=bit % 8):
                    self.assertEqual(next_one, after)
                    if got == DAMAGED:
                        errors += 1
                        continue
                    # A raw record that lies elsewhere is as long as it says, and nobody can tell without a checksum.
                    self.assertNotIn(got, others - {own}, "another record's bytes")
                    if index % 2 == 0:
                        self.assertEqual(got, own)
            say(f"of 128 flipped bits of an entry {errors} are errors")
            self.assertGreater(errors, 90)

    def test_a_flipped_bit_of_deflated_bytes(self):
        # The type of the first block: there is none of this number.
        self.flip(self.store / "0.zr", read_meta(self.store)[1][10][0], 0x06)
        self.assert_records(self.turn("read_each", self.store)["records"], lost=[10])


class Openings(Engine):
    def test_reading_creates_nothing(self):
        for path in (self.store, self.store / "deep" / "er"):
            found = self.turn("look", path)
            self.assertEqual((found["length"], found["records"], found["beyond"][0]), (0, [], INDEX))
            self.assertEqual(set(found["stats"].values()), {0})
            self.assertEqual(os.listdir(self.dir), [])

    def test_reading_changes_nothing(self):
        np.save(self.dir / "a.npy", np.arange(600, dtype="<i4").reshape(100, 6))
        zrfs("import", self.dir / "a.npy", self.store)
        # As loaderx leaves it, without what zrfs keeps.
        shutil.rmtree(self.store / ".zrfs")
        before, content = snapshot(self.store), (self.store / "0.zr").read_bytes()
        self.assertEqual(self.turn("look_at_dataset", self.store), np.load(self.dir / "a.npy").tolist())
        self.assertEqual(self.turn("look", self.store)["length"], 100)
        self.assertEqual(snapshot(self.store), before)
        self.assertEqual((self.store / "0.zr").read_bytes(), content)
        self.assertEqual(read_header(self.store)[4], 100)

    def test_a_folder_without_a_store_stays_as_it_is(self):
        self.store.mkdir()
        (self.store / "schema.json").write_text("{}")
        before = snapshot(self.store)
        self.assertEqual(self.turn("look", self.store)["length"], 0)
        self.assertEqual(snapshot(self.store), before)

    def test_what_may_not_be_written_is_read(self):
        self.need_root()
        self.make([noise(500, i) for i in range(5)])
        shutil.rmtree(self.store / ".zrfs")
        os.chmod(self.dir, 0o755)
        before = snapshot(self.store)
        found = self.turn("look_as_nobody", self.store)
        self.assert_records(found["records"])
        for code, said in found["refused"]:
            self.assertEqual(code, SYSTEM)
            self.assertIn("ermission denied", said)
        self.assertEqual(snapshot(self.store), before)

    def test_a_store_that_comes_later_is_found(self):
        held = self.start("hold_and_look", self.store)
        ask = lambda: (held.stdin.write("\n"), held.stdin.flush(), json.loads(held.stdout.readline()))[2]
        self.assertEqual(ask(), [0, 0, []])
        self.make([b"one", b"two"])
        self.assertEqual(ask(), [2, 2, [content.hex() for content in self.contents]])

    def test_wrong_indices(self):
        for what, (code, said) in self.turn("wrong_indices", self.store).items():
            with self.subTest(what):
                self.assertEqual(code, INDEX)
                self.assertIn("no record", said)

    def test_what_is_no_store(self):
        self.store.write_bytes(b"a file")
        self.assertEqual(self.turn("read_each", self.store)["open"][0], FORMAT)


class Writers(Engine):
    def records(self):
        n = read_header(self.store)[4]
        return np.frombuffer(zrfs("cat", self.store, f"0-{n - 1}").stdout, "<u4").reshape(n, 3)

    def two_writers(self, way, turns):
        writers = [self.start("append_own", self.store, number, turns, way) for number in range(2)]
        found = []
        for writer in writers:
            out, _ = writer.communicate(timeout=300)
            self.assertEqual(writer.returncode, 0)
            found.append(json.loads(out))
        say(f"appends done: {[len(f['done']) for f in found]}, refused: {[len(f['refused']) for f in found]}")
        rows = self.records()
        counts = collections.Counter(map(tuple, rows.tolist()))
        expected = {(w, turn, i) for w, f in enumerate(found) for turn in f["done"] for i in range(50)}
        self.assertEqual(set(counts), expected)
        self.assertEqual(set(counts.values()), {1}, "a record is there twice")
        for i, answer in enumerate(found):
            self.assertEqual(len(answer["done"]) + len(answer["refused"]), turns)
            for code, said in answer["refused"]:
                self.assertEqual(code, SYSTEM)
                self.assertIn(f"process {writers[1 - i].pid} ", said)
            self.assertGreater(len(answer["done"]), 0)
        zrfs("verify", self.store)

    def test_two_writers_that_stay(self):
        self.two_writers("sync", 150)

    def test_two_writers_that_come_and_go(self):
        self.two_writers("close", 150)

    def test_who_waits_too_long_is_told_for_whom(self):
        holder = self.start("hold_an_append", self.store)
        self.assertEqual(holder.stdout.readline(), "appended\n")
        begun = time.monotonic()
        answer = self.turn("append_own", self.store, 1, 1, "sync")
        self.assertEqual((answer["done"], len(answer["refused"])), ([], 1))
        code, said = answer["refused"][0]
        self.assertEqual(code, SYSTEM)
        self.assertIn(f"process {holder.pid} ", said)
        self.assertGreater(time.monotonic() - begun, 4.5)
        holder.communicate("\n", timeout=60)
        self.assertEqual(self.turn("append_own", self.store, 1, 1, "sync")["done"], [0])
        self.assertEqual(len(self.records()), 51)

    def test_a_killed_compaction_loses_nothing(self):
        rng = random.Random(5)
        contents = [noise(2000 + rng.randrange(3000), i) for i in range(1500)]
        original = import_folder(self.dir, "original.zr", contents)
        allowed = set(contents)
        for round_ in range(8):
            shutil.rmtree(self.store, ignore_errors=True)
            run("cp", "-a", "--sparse=always", original, self.store, check=0)
            process = self.start("compact_on", self.store)
            self.assertEqual(process.stdout.readline(), "begun\n")
            time.sleep(0.005 + 0.3 * rng.random())
            process.send_signal(signal.SIGKILL)
            process.communicate()
            found = self.turn("read_each", self.store)["records"]
            got = [bytes.fromhex(record) for record in found]
            self.assertEqual(len(set(got)), len(got), "a record is there twice")
            self.assertTrue(set(got) <= allowed, "bytes of no record")
            self.assertGreaterEqual(len(got), 180)
            say(f"round {round_}: {len(got)} records after the kill, all whole")
            zrfs("verify", self.store)

    def test_a_compaction_frees_disk(self):
        before, after = self.turn("delete_and_compact", self.store)
        self.assertGreaterEqual(before, 2000 * 4096)
        self.assertLessEqual(after, 1000 * 4096 + 64 * KIB)

    def test_a_sync_that_fails_is_an_error(self):
        self.need_root()
        disk = self.dir / "disk"
        disk.mkdir()
        run("mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", disk, check=0)
        self.addCleanup(run, "umount", disk, check=0)
        first, second, append, close = self.turn("sync_on_a_full_disk", disk / "store.zr", disk / "filler")
        for code, said in (first, second, append):
            self.assertEqual(code, SYSTEM)
        for code, said in (first, close):
            self.assertIn("space", said)
        self.assertIn("a sync has failed", append[1])
        # What was synced before is there.
        self.assertEqual(read_header(disk / "store.zr")[4], 200)
        zrfs("verify", disk / "store.zr")


if __name__ == "__main__":
    unittest.main()
