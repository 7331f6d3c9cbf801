"""Imports that are killed, interrupted or run out of disk, and go on: the result is that of one that ran through."""

import itertools
import os
import pathlib
import random
import shlex
import signal
import struct
import subprocess
import time
import unittest

import numpy as np

from changing import Changing, pieces, remove, start, verify
from loaderx_client import Loaderx
from support import MIB, ZRFS, copy_store, make_tree, noise, read_header, read_meta, run, say, stop, wait_until, zrfs

# Imports that have to be killed under way, and how many are begun for that at most.
KILLS = int(os.environ.get("ZRFS_KILLS", 20))
TRIES = 4 * KILLS
SLOT = struct.Struct("<4sHHQ16s16sIIII")
LEVEL = ("--level", "7")


def slots(store):
    """The checkpoints of a store that are there."""
    try:
        data = (store / ".zrfs/checkpoint").read_bytes()
    except FileNotFoundError:
        return []
    found = [SLOT.unpack_from(data, at) for at in (0, 16384) if len(data) >= at + SLOT.size]
    return [slot for slot in found if slot[0] == b"ZRCP"]


def kept(store):
    """Records that the last checkpoint of a store names; 0 where it has none."""
    found = slots(store)
    if not found:
        return 0
    last = max(found, key=lambda slot: slot[3])
    before, after = (struct.unpack_from("<I", header, 12)[0] for header in last[4:6])
    return after - before


def written(store):
    """Bytes in the chunks of a store that is being made, as far as it is there."""
    total = 0
    for name in os.listdir(store) if store.is_dir() else ():
        if name.endswith(".zr") and name != "meta.zr":
            total += os.stat(store / name).st_blocks * 512
    return total


class Resume(Changing):
    def setUp(self):
        super().setUp()
        self.source = self.dir / "source"
        self.partial = pathlib.Path(f"{self.store}.partial")
        # What verify says of each reference, by its length: it is asked once.
        self.unchecked = {}

    def make_source(self, seed=1, bytes=72 * MIB):
        """A folder of some thousand files that take a while to deflate."""
        rng = random.Random(seed)
        words = [rng.randbytes(6) for _ in range(400)]
        block = b"".join(rng.choices(words, k=MIB // 2))
        files, left, number = {}, bytes, 0
        while left > 0:
            size = rng.choice([rng.randrange(1, 5000), rng.randrange(50_000, MIB)])
            at = rng.randrange(len(block) - size)
            files[f"c{number % 5}/d{number % 3}/{number:05}.bin"] = block[at:at + size]
            left -= size
            number += 1
        make_tree(self.source, files)
        return number

    def import_(self, *args, check=0, source=None, store=None, **kwargs):
        return zrfs("import", *LEVEL, *args, source or self.source, store or self.store, check=check, **kwargs)

    def assert_equal_files(self, path, reference):
        """Without reading holes: a chunk that loaderx has made is 4 GiB, nearly all of it holes."""
        self.assertEqual(os.stat(path).st_size, os.stat(reference).st_size)
        for found, right in itertools.zip_longest(pieces(path), pieces(reference)):
            # As assertEqual, without thousands of bytes of difference.
            if found != right:
                self.fail(f"{path}: page at {(found or right)[0]} is not that of {reference}, at {(right or found)[0]}")

    def assert_equal_stores(self, store, reference):
        """The same records, names and bytes, and nothing left of an interruption."""
        self.assertEqual(read_meta(store), read_meta(reference))
        chunks = lambda store: sorted(name for name in os.listdir(store) if name.endswith(".zr") and name != "meta.zr")
        self.assertEqual(chunks(store), chunks(reference))
        for name in chunks(reference):
            self.assert_equal_files(store / name, reference / name)
        for name, begin in (("names", 0), ("tree", 256)):
            # The head of the tree holds a random key.
            found, right = ((where / ".zrfs" / name).read_bytes()[begin:] for where in (store, reference))
            self.assertTrue(found == right, name)
        status, found = verify(store)
        self.assertEqual((status, found["bad"], found["faults"]), (0, [], []), found)
        key = reference, read_header(reference)[4]
        if key not in self.unchecked:
            self.unchecked[key] = verify(reference)[1]["unchecked"]
        self.assertEqual(found["unchecked"], self.unchecked[key])
        left = set(os.listdir(store / ".zrfs")) & {"checkpoint", "marks"}
        self.assertEqual(left, set())

    def killed_at(self, at, wait, *args, number=signal.SIGKILL, growing=None):
        """An import that gets a signal when its chunks have grown by `at` bytes, and a little later."""
        growing = growing or self.partial
        begun = written(growing)
        process = start(
            "import", *LEVEL, *args, self.source, self.store, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        try:
            # An append is begun with its first checkpoint, of no record.
            there = lambda: growing.is_dir() and (growing == self.partial or slots(growing))
            grown = lambda: there() and written(growing) - begun >= at or process.poll() is not None
            wait_until(grown, f"{at} bytes are written", 120)
            try:
                # Not to wait for anything: the moments differ.
                process.wait(wait)
            except subprocess.TimeoutExpired:
                process.send_signal(number)
            out, err = process.communicate(timeout=120)
        finally:
            process.kill()
            process.wait()
        self.assertNotIn(b"panicked", err)
        return process.returncode, out, err

    def wait_for_checkpoint(self, process, store):
        wait_until(lambda: kept(store) or process.poll() is not None, "a checkpoint is made", 120)
        self.assertIsNone(process.poll(), "the import was over before it made a checkpoint")


class Killed(Resume):
    def test_an_import_that_is_killed_goes_on(self):
        seed = 20240501
        rng = random.Random(seed)
        count = self.make_source()
        reference = self.dir / "reference.zr"
        begin = time.monotonic()
        self.import_(store=reference)
        took = time.monotonic() - begin
        size = written(reference)
        hits, resumed = 0, 0
        for round in range(TRIES):
            if hits >= KILLS:
                break
            at, wait = rng.randrange(size), rng.random() * took / 4
            # At times it is killed twice.
            for again in range(1 + (rng.random() < 0.3)):
                with self.subTest(seed=seed, round=round, bytes=at, wait=wait, again=again):
                    status, _, _ = self.killed_at(at if again == 0 else 0, wait, *(["--resume"] * again))
                    hits += status == -signal.SIGKILL
                    if status == -signal.SIGKILL and not self.store.exists():
                        self.assertTrue(self.partial.exists())
                        resumed += kept(self.partial) > 0
            with self.subTest(seed=seed, round=round, bytes=at, wait=wait):
                done = self.import_("--resume")
                self.assertIn(self.store.name, done.stdout.decode())
                self.assertFalse(self.partial.exists())
                self.assert_equal_stores(self.store, reference)
            remove(self.store)
            remove(self.partial)
        say(f"imports of {count} files: {hits} kills, {resumed} of them behind a checkpoint")
        self.assertGreaterEqual(hits, KILLS)
        self.assertGreater(resumed, KILLS // 4)

    def test_an_append_that_is_killed_goes_on(self):
        seed = 20240502
        rng = random.Random(seed)
        count = self.make_source()
        old = [noise(5000 + i, i) for i in range(50)]
        base, reference = self.dir / "base.zr", self.dir / "reference.zr"
        with Loaderx() as loaderx:
            loaderx.append(base, old)
            copy_store(base, reference)
            begin = time.monotonic()
            self.import_("--append", store=reference)
            took = time.monotonic() - begin
            size = written(reference) - written(base)
            hits, resumed = 0, 0
            for round in range(TRIES):
                if hits >= KILLS:
                    break
                copy_store(base, self.store)
                at, wait = rng.randrange(size), rng.random() * took / 4
                with self.subTest(seed=seed, round=round, bytes=at, wait=wait):
                    status, _, _ = self.killed_at(at, wait, "--append", growing=self.store)
                    hits += status == -signal.SIGKILL
                    resumed += kept(self.store) > 0
                    if read_header(self.store)[4] == len(old):
                        # Whoever reads sees the store as it was.
                        self.assertEqual(zrfs("cat", self.store, "0-49").stdout, b"".join(old))
                        self.assertEqual(verify(self.store)[1]["records"], len(old))
                        self.assert_same(loaderx.read(self.store), old)
                    done = self.import_("--append", "--resume")
                    self.assertIn(self.store.name, done.stdout.decode())
                    self.assert_equal_stores(self.store, reference)
                    if round == 0:
                        self.assertEqual(loaderx.digest(self.store), loaderx.digest(reference))
                remove(self.store)
        say(f"appends of {count} files: {hits} kills, {resumed} of them behind a checkpoint")
        self.assertGreaterEqual(hits, KILLS)
        self.assertGreater(resumed, KILLS // 4)

    def test_arrays_and_labels_go_on(self):
        rng = np.random.default_rng(3)
        array = rng.integers(0, 12, (24 * 1024, 4096), dtype=np.uint8)
        for i in range(2):
            np.save(self.dir / f"{i}.npy", np.roll(array, i))
        sources = [self.dir / "0.npy", self.dir / "1.npy"]
        process = start("import", "--level", "9", *sources, self.store)
        try:
            self.wait_for_checkpoint(process, self.partial)
        finally:
            process.kill()
            process.wait()
        done = zrfs("import", "--level", "9", *sources, self.store, "--resume")
        self.assertIn(b"49152 records", done.stdout)
        self.assertTrue(zrfs("cat", self.store, "0-49151").stdout == array.tobytes() + np.roll(array, 1).tobytes())
        remove(self.store)
        # Labels, in a store that is made and one that grows.
        self.make_source(bytes=64 * MIB)
        labels, reference = self.dir / "labels.zr", self.dir / "reference.zr"
        self.import_("--labels", self.dir / "reference-labels.zr", store=reference)
        for append in ([], ["--append"]):
            growing = self.partial
            if append:
                remove(self.source)
                self.make_source(seed=2, bytes=64 * MIB)
                for name in os.listdir(self.source):
                    os.rename(self.source / name, self.source / f"d{name}")
                self.import_("--append", "--labels", self.dir / "reference-labels.zr", store=reference)
                growing = self.store
            process = start("import", *LEVEL, *append, self.source, self.store, "--labels", labels)
            try:
                self.wait_for_checkpoint(process, growing)
            finally:
                process.kill()
                process.wait()
            self.import_("--labels", labels, "--resume", *append)
            self.assertEqual(sorted(p.name for p in self.dir.glob("*.partial")), [])
            self.assert_equal_stores(self.store, reference)
            everything = f"0-{read_header(labels)[4] - 1}"
            self.assertEqual(read_header(labels)[4], read_header(self.store)[4])
            self.assertEqual(
                zrfs("cat", labels, everything).stdout, zrfs("cat", self.dir / "reference-labels.zr", everything).stdout
            )


    def test_archives_and_standard_input_go_on(self):
        count = self.make_source(bytes=64 * MIB)
        os.link(self.source / "c0/d0/00000.bin", self.source / "c4/hard link")
        plain, packed, other = (self.dir / name for name in ("a.tar", "a.tar.gz", "b.tar.gz"))
        run("tar", "--sort=name", "-C", self.source, "-cf", plain, ".", check=0)
        run("gzip", "-1", "-k", plain, check=0)
        # Not the first: with that one the sources would be others.
        changed = sorted((self.source / "c0").rglob("*.bin"), key=str)[1]
        changed.write_bytes(b"?" + changed.read_bytes()[1:] + b"?")
        run("tar", "--sort=name", "-C", self.source, "-czf", other, ".", check=0)
        reference = self.dir / "reference.zr"
        self.import_(source=plain, store=reference)
        for source in (plain, packed, "-"):
            with self.subTest(source=str(source)):
                def given(path):
                    """The archive as the source, or on standard input."""
                    return {"source": "-", "input": path.read_bytes()} if source == "-" else {"source": path}

                with open(packed, "rb") as stdin:
                    process = start("import", *LEVEL, source, self.store, stdin=stdin, stderr=subprocess.PIPE)
                try:
                    self.wait_for_checkpoint(process, self.partial)
                    process.send_signal(signal.SIGINT)
                    _, err = process.communicate(timeout=120)
                finally:
                    process.kill()
                    process.wait()
                self.assertRegex(err.decode(), r"interrupted: [1-9]\d*( of \d+)? records are kept; continue with: zrfs import")
                if source != plain:
                    done = self.import_("--resume", check=None, **given(other))
                    self.assert_clear(done, changed.name, "is not the file", "without --resume")
                    self.assertNotIn(b"continue with", done.stderr)
                self.import_("--resume", **given(plain if source == plain else packed))
                self.assertEqual(read_header(self.store)[4], count + 1)
                self.assert_equal_stores(self.store, reference)
                remove(self.store)


class Interrupted(Resume):
    def setUp(self):
        super().setUp()
        self.count = self.make_source()

    def interrupt(self, *args, number=signal.SIGINT, growing=None):
        """Interrupt an import behind a checkpoint; gives back the command that it prints."""
        process = start("import", *LEVEL, *args, self.source, self.store, stderr=subprocess.PIPE)
        try:
            self.wait_for_checkpoint(process, growing or self.partial)
            process.send_signal(number)
            _, err = process.communicate(timeout=120)
        finally:
            process.kill()
            process.wait()
        self.assertEqual(process.returncode, 1, err)
        line = err.decode()
        self.assertRegex(
            line, rf"\Azrfs: interrupted: [1-9]\d* of {self.count} records are kept; continue with: zrfs import .*\n\Z"
        )
        return line.split("continue with: ")[1].rstrip("\n")

    def test_the_command_that_is_printed_goes_on(self):
        odd = self.dir / "it's a\nfolder"
        os.rename(self.source, odd)
        self.source = odd
        reference = self.dir / "reference.zr"
        self.import_(store=reference)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(signal=number):
                command = self.interrupt(number=number)
                self.assertFalse(self.store.exists())
                self.assertTrue(command.startswith("zrfs "), command)
                # As a person's shell reads it.
                run("bash", "-c", command.replace("zrfs", shlex.quote(ZRFS), 1), check=0)
                self.assert_equal_stores(self.store, reference)
                done = self.import_("--resume")
                self.assertEqual(done.stdout.decode(), f"nothing to resume: {self.store} is complete\n")
                remove(self.store)

    def test_an_append_keeps_its_old_length(self):
        make_tree(self.dir / "old", {f"old/{i}": noise(1000, i) for i in range(20)})
        zrfs("import", self.dir / "old", self.store)
        reference = copy_store(self.store, self.dir / "reference.zr")
        self.import_("--append", store=reference)
        before = zrfs("cat", self.store, "0-19").stdout
        with self.mount(self.store) as mount:
            self.interrupt("--append", growing=self.store)
            self.assertEqual(len(mount.names()), 20)
        self.assertEqual(read_header(self.store)[4], 20)
        self.assertEqual(zrfs("cat", self.store, "0-19").stdout, before)
        again = copy_store(self.store, self.dir / "again.zr")
        self.import_("--append", "--resume")
        self.assert_equal_stores(self.store, reference)
        done = self.import_("--append", "--resume")
        self.assertEqual(done.stdout.decode(), f"nothing to resume: {self.store} is complete\n")
        # Without --resume it simply is as it was, and takes an append from the start.
        self.import_("--append", store=again)
        self.assert_equal_stores(again, reference)

    def test_what_ends_an_interrupted_append(self):
        make_tree(self.dir / "old", {f"old/{i}": noise(1000, i) for i in range(20)})
        make_tree(self.dir / "other", {"other": b"x"})
        zrfs("import", self.dir / "old", self.store)
        self.interrupt("--append", growing=self.store)
        saved = copy_store(self.store, self.dir / "saved.zr")
        for command in (
            ["import", "--append", self.dir / "other", self.store], ["delete", self.store, "3"], ["compact", self.store],
            ["seal", self.store],
        ):
            with self.subTest(command=command[0]):
                remove(self.store)
                copy_store(saved, self.store)
                zrfs(*command)
                records = read_header(self.store)[4]
                done = self.import_("--append", "--resume", check=None)
                self.assert_clear(done, "nothing to resume", "without --resume")
                self.assertEqual(read_header(self.store)[4], records)
                self.assertEqual(verify(self.store)[0], 0)
        with self.subTest(command="loaderx appends"), Loaderx() as loaderx:
            remove(self.store)
            copy_store(saved, self.store)
            loaderx.append(self.store, [b"another"])
            done = self.import_("--append", "--resume", check=None)
            self.assert_clear(done, "another program has changed the store", "append again from the start")
            self.assertEqual(zrfs("cat", self.store, "20").stdout, b"another")

    def test_options_count_before_anything_is_kept(self):
        """Killed when it has begun: the labels' folder is there, and no record is kept."""
        labels = self.dir / "labels.zr"
        reference = self.dir / "reference.zr"
        self.import_("--labels", self.dir / "reference-labels.zr", store=reference)
        labels_partial = pathlib.Path(f"{labels}.partial")
        for more in ([], ["--resume"]):
            process = start("import", *LEVEL, self.source, self.store, "--labels", labels, *more)
            try:
                # With --resume it's there from before, and is made anew.
                wait_until(lambda: labels_partial.exists() or process.poll() is not None, "the labels are begun", 60)
            finally:
                process.kill()
                process.wait()
            self.assertTrue(labels_partial.exists() and self.partial.exists())
            self.assertEqual(kept(self.partial), 0)
            for args, now in (([], "now not given"), (["--labels", self.dir / "other.zr"], "now other.zr")):
                done = self.import_("--resume", *args, check=None)
                self.assert_clear(done, "another --labels (labels.zr", now, f"rm -r {self.partial}")
            done = self.import_("--resume", "--labels", labels, "--only", "*.bin", check=None)
            self.assert_clear(done, "another --only ")
        self.import_("--resume", "--labels", labels)
        self.assert_equal_stores(self.store, reference)
        self.assertEqual(sorted(p.name for p in self.dir.glob("*.partial")), [])
        self.assertEqual(
            zrfs("cat", labels, "0-9").stdout, zrfs("cat", self.dir / "reference-labels.zr", "0-9").stdout
        )

    def test_other_sources_are_told_from_changed_ones(self):
        other = self.dir / "other"
        make_tree(other, {"c0/d0/00000.bin": b"another"})
        run("tar", "-C", other, "-czf", self.dir / "other.tar.gz", ".", check=0)
        self.interrupt()
        before = kept(self.partial)
        for args in ([other], [self.dir / "other.tar.gz"], [self.source, other]):
            with self.subTest(sources=args):
                done = zrfs("import", *LEVEL, *args, self.store, "--resume", check=None)
                self.assert_clear(done, f"not the sources that the import was begun with: {self.source}; give those", f"rm -r {self.partial}")
                self.assertNotIn(b"continue with", done.stderr)
                self.assertEqual(kept(self.partial), before)
        # Other names of the same sources are none.
        zrfs("import", *LEVEL, f"./{self.source.name}/", self.store, "--resume", cwd=self.dir)

    def test_changed_sources_are_named(self):
        self.interrupt()
        done = kept(self.partial)
        before = (self.partial / ".zrfs/checkpoint").read_bytes()
        # Classes sorted, in each the folders, in each the files: the first ones are done.
        first = sorted((self.source / "c0/d0").iterdir())
        self.assertGreater(done, 5)
        st = first[3].stat()
        kept_data = first[3].read_bytes()

        def put_back():
            first[3].write_bytes(kept_data)
            os.utime(first[3], ns=(st.st_atime_ns, st.st_mtime_ns))

        new = self.source / "c0/d0/00000x"
        changes = [
            (first[3], ["has changed"], lambda: first[3].write_bytes(kept_data[:-1] + b"?"), put_back),
            (first[3], ["has changed"], lambda: os.utime(first[3], ns=(st.st_atime_ns, st.st_mtime_ns + 1)), put_back),
            (new, ["was added"], lambda: new.write_bytes(b"new"), new.unlink),
            (first[4], ["before", "was removed"], first[3].unlink, put_back),
        ]
        for path, words, change, back in changes:
            with self.subTest(path=path.name, words=words):
                change()
                refused = self.import_("--resume", check=None)
                self.assert_clear(refused, str(path), *words, f"rm -r {self.partial}")
                back()
        # Nothing of it is lost by that, and behind what is done a change is no matter.
        self.assertEqual((self.partial / ".zrfs/checkpoint").read_bytes(), before)
        last = self.source / "c9/last.bin"
        last.parent.mkdir()
        last.write_bytes(b"late")
        reference = self.dir / "reference.zr"
        self.import_(store=reference)
        self.import_("--resume")
        self.assert_equal_stores(self.store, reference)

    def test_other_options_are_named(self):
        self.interrupt()
        for option, args in (
            ("--level", ["--level", "6"]), ("--codec", ["--codec", "raw"]), ("--only", ["--only", "*.bin"]),
            ("--links", ["--links", "keep"]), ("--labels", ["--labels", self.dir / "labels.zr"]),
        ):
            with self.subTest(option=option):
                options = args if option == "--level" else [*LEVEL, *args]
                done = zrfs("import", self.source, self.store, "--resume", *options, check=None)
                self.assert_clear(done, f"another {option} ", f"rm -r {self.partial}")
        self.import_("--resume")

    def test_two_imports_at_once(self):
        process = start("import", *LEVEL, self.source, self.store, stderr=subprocess.PIPE)
        try:
            self.wait_for_checkpoint(process, self.partial)
            stop(process.pid)
            done = self.import_("--resume", check=None)
            self.assert_clear(done, "is being appended to", f"process {process.pid}")
            self.assert_clear(self.import_(check=None), "continue it with --resume", f"rm -r {self.partial}")
            process.send_signal(signal.SIGCONT)
            _, err = process.communicate(timeout=120)
            self.assertEqual((process.returncode, err), (0, b""))
        finally:
            process.kill()
            process.wait()
        reference = self.dir / "reference.zr"
        self.import_(store=reference)
        self.assert_equal_stores(self.store, reference)

    def test_nothing_to_resume(self):
        self.assert_clear(self.import_("--resume", check=None), "nothing to resume", "store.zr.partial", "without --resume")
        self.assertFalse(self.partial.exists())
        make_tree(self.dir / "small", {"a": b"x"})
        zrfs("import", self.dir / "small", self.store)
        self.assert_clear(self.import_("--append", "--resume", check=None), "nothing to resume", "store.zr")
        # What was killed before it held anything is begun anew.
        for part in ([], ["meta.zr"], ["meta.zr", "0.zr"]):
            with self.subTest(part=part):
                remove(self.store)
                self.partial.mkdir()
                for name in part:
                    (self.partial / name).touch()
                zrfs("import", self.dir / "small", self.store, "--resume")
                self.assertEqual(zrfs("cat", self.store, "0").stdout, b"x")
                self.assertFalse(self.partial.exists())

    def test_a_file_that_can_not_be_read_and_then_can(self):
        # Behind at least one batch of 32 MiB.
        last = sorted((self.source / "c4/d2").iterdir())[-1]
        data, st = last.read_bytes(), last.stat()
        process = start("import", *LEVEL, self.source, self.store, stderr=subprocess.PIPE)
        try:
            self.wait_for_checkpoint(process, self.partial)
            last.write_bytes(b"")
            _, err = process.communicate(timeout=120)
        finally:
            process.kill()
            process.wait()
        if process.returncode:
            self.assertRegex(err.decode(), rf"{last} has changed .* records are kept; continue with: zrfs import .*--resume\n\Z")
        last.write_bytes(data)
        os.utime(last, ns=(st.st_atime_ns, st.st_mtime_ns))
        reference = self.dir / "reference.zr"
        self.import_(store=reference)
        self.import_("--resume")
        self.assert_equal_stores(self.store, reference)


class FullDisk(Resume):
    def test_a_full_disk_that_gets_room(self):
        self.need_root()
        self.make_source()
        reference = self.dir / "reference.zr"
        self.import_(store=reference)
        disk = self.dir / "disk"
        disk.mkdir()
        # Room for most of it.
        size = written(reference) * 8 // 10
        run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk, check=0)
        self.addCleanup(run, "umount", disk, check=0)
        store = disk / "store.zr"
        done = self.import_(store=store, check=None)
        self.assertEqual(done.returncode, 1)
        line = done.stderr.decode()
        self.assertRegex(line, r"\Azrfs: .*No space.* records are kept; continue with: zrfs import .* --resume\n\Z")
        self.assertGreater(kept(disk / "store.zr.partial"), 0)
        # Still full, again: nothing is lost by trying.
        again = self.import_("--resume", store=store, check=None)
        self.assertIn(b"No space", again.stderr)
        self.assertGreater(kept(disk / "store.zr.partial"), 0)
        run("mount", "-o", f"remount,size={4 * size}", disk, check=0)
        self.import_("--resume", store=store)
        self.assert_equal_stores(store, reference)
        # The same for an append.
        remove(store)
        make_tree(self.dir / "old", {f"old/{i}": noise(1000, i) for i in range(20)})
        zrfs("import", self.dir / "old", store)
        reference = copy_store(store, self.dir / "reference-2.zr")
        self.import_("--append", store=reference)
        run("mount", "-o", f"remount,size={size}", disk, check=0)
        done = self.import_("--append", store=store, check=None)
        self.assertRegex(done.stderr.decode(), r"No space.* records are kept; continue with: zrfs import .* --resume\n\Z")
        self.assertEqual(read_header(store)[4], 20)
        run("mount", "-o", f"remount,size={4 * size}", disk, check=0)
        self.import_("--append", "--resume", store=store)
        self.assert_equal_stores(store, reference)


if __name__ == "__main__":
    unittest.main()
