"""The commands as a person or a script meets them: help, exit status, pipes, refusals, interruptions."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
import unittest

import numpy as np
from support import (
    MIB, ZRFS, Case, daemons, import_folder, make_folder, make_tree, mounts, noise, read_header, run, say, snapshot, text,
    wait_until, zrfs,
)

COMMANDS = ["import", "mount", "umount", "stats", "sample", "cat", "ls", "export", "delete", "demo"]


def stats(store):
    return json.loads(zrfs("stats", store, "--json").stdout)


class Usage(Case):
    def test_help_has_an_example(self):
        top = zrfs("--help").stdout.decode()
        for command in COMMANDS:
            with self.subTest(command=command):
                self.assertRegex(top, rf"(?m)^\s+{command}\b")
                said = zrfs(command, "--help").stdout.decode()
                self.assertIn("xample", said)
                self.assertRegex(said, rf"(?m)^.*\bzrfs {command}\b")

    def test_version(self):
        self.assertRegex(zrfs("--version").stdout, rb"^zrfs \d+\.\d+\.\d+")

    def test_wrong_usage_is_status_2(self):
        for args in (
            [], ["frobnicate"], ["import"], ["import", "only-one"], ["mount"], ["mount", "one"], ["cat"], ["stats"],
            ["ls", "--frobnicate"], ["import", "--level", "13", "a", "b"], ["import", "--level", "0", "a", "b"],
            ["import", "--codec", "zip", "a", "b"], ["import", "--v1", "--large", "a", "b"],
        ):
            with self.subTest(args=args):
                done = zrfs(*args, check=2, cwd=self.dir)
                self.assertNotEqual(done.stderr, b"")
                self.assertNotIn(b"panicked", done.stderr)
        self.assertEqual(os.listdir(self.dir), [])

    def test_options_may_follow_the_positionals(self):
        make_folder(self.dir / "source", [b"x"])
        zrfs("import", self.dir / "source", self.dir / "store.zr", "--codec", "raw", "--only", "*.bin")
        self.assertEqual(zrfs("cat", self.dir / "store.zr", "0").stdout, b"x")


class Records(Case):
    CONTENTS = [b"<%d>" % i for i in range(300)]

    def setUp(self):
        super().setUp()
        self.store = import_folder(self.dir, "store.zr", self.CONTENTS)

    def test_one_grammar(self):
        c = self.CONTENTS
        for spelled, wanted in (
            ("7", [7]), ("7 12", [7, 12]), ("7,12", [7, 12]), ("7, 12\n13", [7, 12, 13]), ("100-199", range(100, 200)),
            ("299-299", [299]), ("12 7 12", [12, 7, 12]), ("007", [7]), ("\n 7 \n", [7]),
        ):
            with self.subTest(records=spelled):
                expected = b"".join(c[i] for i in wanted)
                self.assertEqual(zrfs("cat", self.store, spelled).stdout, expected)
                self.assertEqual(zrfs("cat", self.store, "-", input=spelled.encode()).stdout, expected)
        self.assertEqual(zrfs("cat", self.store, "7", "12", "100-102").stdout, b"<7><12><100><101><102>")

    def test_what_is_no_record(self):
        for spelled in ("300", "299-300", "1.9", "x", "7-", "9-7", "1e3", "0x1", "4294967296", "18446744073709551616", "+1", "7--9"):
            with self.subTest(records=spelled):
                done = zrfs("cat", self.store, spelled, check=None)
                self.assertIn(done.returncode, (1, 2), done)
                self.assertEqual(done.stdout, b"")
                self.assertNotIn(b"panicked", done.stderr)
                said = re.findall(rb"\d[\w.+-]*|x", done.stderr)
                self.assertTrue(said, done.stderr)
        done = zrfs("cat", self.store, "--", "-1", check=None)
        self.assertIn(done.returncode, (1, 2))

    def test_ls(self):
        rows = zrfs("ls", self.store).stdout.decode().splitlines()
        self.assertEqual(len(rows), 300)
        for i, row in enumerate(rows):
            index, length, codec, *_ = row.split("\t")
            self.assertEqual((int(index), int(length), codec), (i, len(self.CONTENTS[i]), "raw"))
        self.assertEqual(zrfs("ls", self.store, "5 299").stdout.decode().splitlines(), [rows[5], rows[299]])

        objects = [json.loads(line) for line in zrfs("ls", self.store, "--json").stdout.splitlines()]
        self.assertEqual([o["index"] for o in objects], list(range(300)))
        self.assertEqual([o["length"] for o in objects], [len(c) for c in self.CONTENTS])
        self.assertEqual({(o["codec"], o["stored"] == o["length"]) for o in objects}, {("raw", True)})

    def test_stats(self):
        found = stats(self.store)
        size = sum(map(len, self.CONTENTS))
        self.assertEqual(found | {
            "version": 1, "records": 300, "live_bytes": size, "logical_bytes": size, "chunk_bytes": size, "reclaimable": 0,
            "damaged": 0,
        }, found)
        self.assertIn("300", zrfs("stats", self.store).stdout.decode().replace(",", ""))

    def test_a_closed_pipe_is_silent(self):
        store = import_folder(self.dir, "large.zr", [noise(4 * MIB, i) for i in range(4)] + [b"x"] * 20_000)
        for command in ("cat $1 0-3", "ls $1", "ls $1 --json"):
            with self.subTest(command=command):
                # What zrfs says goes to a file of its own; its status must not be that of a panic.
                script = f'set -o pipefail; {{ "$0" {command.replace("$1", chr(34) + "$1" + chr(34))}; echo $? >"$2.rc"; }} 2>"$2" | head -c 1'
                done = run("bash", "-c", script, ZRFS, store, self.dir / "said", timeout=60)
                self.assertEqual(len(done.stdout), 1)
                self.assertEqual((self.dir / "said").read_bytes(), b"")
                self.assertIn((self.dir / "said.rc").read_text().strip(), ("0", "141"))

    def test_a_full_disk_is_not_silent(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([ZRFS, "cat", self.store, "0-299"], stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"space", done.stderr)


class Import(Case):
    def setUp(self):
        super().setUp()
        self.store = self.dir / "store.zr"

    def assert_nothing_left(self):
        self.assertEqual([n for n in os.listdir(self.dir) if n.startswith("store.zr")], [])

    def refused(self, *args, words=(), status=(1,)):
        done = zrfs("import", *args, check=None)
        self.assert_clear(done, *words, status=status)

    def test_an_existing_store_is_refused_without_append(self):
        make_folder(self.dir / "a", [b"a"])
        zrfs("import", self.dir / "a", self.store)
        before = snapshot(self.store)
        self.refused(self.dir / "a", self.store, words=["store.zr", "--append"])
        self.assertEqual(snapshot(self.store), before)
        (self.dir / "file").write_bytes(b"x")
        self.refused(self.dir / "a", self.dir / "file", words=["file"])
        self.assertEqual((self.dir / "file").read_bytes(), b"x")

    def test_append_needs_a_store(self):
        make_folder(self.dir / "a", [b"a"])
        self.refused("--append", self.dir / "a", self.store, words=["store.zr"])
        self.assert_nothing_left()

    def test_a_missing_source(self):
        self.refused(self.dir / "absent", self.store, words=["absent"])
        self.assert_nothing_left()

    def test_only_that_matches_nothing(self):
        make_folder(self.dir / "a", [b"a"])
        self.refused("--only", "*.png", self.dir / "a", self.store)
        self.assert_nothing_left()

    def test_several_globs(self):
        make_tree(self.dir / "a", {"1.png": b"1", "2.jpg": b"2", "3.txt": b"3", "sub/4.png": b"4"})
        zrfs("import", self.dir / "a", self.store, "--only", "*.png", "--only", "*.jpg")
        self.assertEqual(zrfs("cat", self.store, "0-2").stdout, b"124")

    def test_append_of_another_dtype_or_shape_names_both(self):
        np.save(self.dir / "a.npy", np.zeros((4, 3, 2), "<f4"))
        zrfs("import", self.dir / "a.npy", self.store)
        before = snapshot(self.store)
        for other in (np.zeros((4, 3, 2), "<f8"), np.zeros((4, 3, 5), "<f4"), np.zeros((4, 6), "<f4"), np.zeros(4, "<i8")):
            with self.subTest(dtype=other.dtype.str, shape=other.shape[1:]):
                np.save(self.dir / "b.npy", other)
                shapes = ["3, 2", ", ".join(map(str, other.shape[1:]))]
                done = zrfs("import", "--append", self.dir / "b.npy", self.store, check=None)
                self.assert_clear(done, "<f4", other.dtype.str[1:], *shapes)
                self.assertEqual(snapshot(self.store), before)
        # A file of another length does not fit among arrays either.
        make_folder(self.dir / "folder", [b"ragged"])
        self.refused("--append", self.dir / "folder", self.store)
        self.assertEqual(stats(self.store)["records"], 4)

    def test_version_1_grows_to_2_only_with_large(self):
        make_folder(self.dir / "a", [b"a"])
        zrfs("import", self.dir / "a", self.store)
        self.assertEqual(stats(self.store)["version"], 1)
        for content in (noise(MIB + 1, 1), b""):
            with self.subTest(length=len(content)):
                shutil.rmtree(self.dir / "b", ignore_errors=True)
                make_tree(self.dir / "b", {"big.bin": content})
                before = snapshot(self.store)
                done = zrfs("import", "--append", self.dir / "b", self.store, check=1)
                self.assertIn(b"--large", done.stderr)
                self.assertIn(b"big.bin", done.stderr)
                self.assertEqual(snapshot(self.store), before)
        make_tree(self.dir / "c", {"big.bin": noise(MIB + 1, 1)})
        done = zrfs("import", "--append", "--large", self.dir / "c", self.store)
        self.assertRegex((done.stdout + done.stderr).decode(), "(?i)version 2")
        self.assertEqual(stats(self.store)["version"], 2)
        self.assertTrue(zrfs("cat", self.store, "0-1").stdout == b"a" + noise(MIB + 1, 1))

        # --v1 holds for an append, too, whatever the store has become.
        make_tree(self.dir / "d", {"big.bin": noise(MIB + 1, 2)})
        done = zrfs("import", "--append", "--v1", self.dir / "d", self.store, check=1)
        self.assertIn(b"big.bin", done.stderr)
        self.assertEqual(stats(self.store)["records"], 2)

    def test_two_imports_to_one_name_leave_one_whole_store(self):
        make_folder(self.dir / "many", [b"%d" % i for i in range(3000)])
        for _ in range(10):
            pair = [
                subprocess.Popen(
                    [ZRFS, "import", self.dir / "many", self.store], stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                )
                for _ in range(2)
            ]
            self.assertEqual(sorted(process.wait(60) for process in pair), [0, 1])
            self.assertEqual(stats(self.store)["records"], 3000)
            shutil.rmtree(self.store)
            self.assert_nothing_left()

    def test_a_file_size_limit_is_an_error_and_leaves_nothing(self):
        make_folder(self.dir / "source", [noise(MIB, i) for i in range(4)])
        done = run("prlimit", f"--fsize={300 * MIB}", ZRFS, "import", self.dir / "source", self.store, check=0)
        shutil.rmtree(self.store)
        # meta.zr fits in no such file.
        done = run("prlimit", f"--fsize={2 * MIB}", ZRFS, "import", self.dir / "source", self.store, check=None)
        self.assert_clear(done, "store.zr")
        self.assert_nothing_left()
        import_folder(self.dir, "store.zr", [b"x"])
        before = stats(self.store)
        done = run(
            "prlimit", f"--fsize={2 * MIB}", ZRFS, "import", "--append", self.dir / "source", self.store, check=None
        )
        self.assert_clear(done, "0.zr")
        self.assertEqual(stats(self.store), before)

    def test_what_is_no_file_does_not_hang(self):
        os.mkfifo(self.dir / "pipe.npy")
        self.refused(self.dir / "pipe.npy", self.store, words=["pipe.npy"])
        self.assert_nothing_left()

    def test_a_store_is_not_packed_as_files(self):
        import_folder(self.dir, "store.zr", [b"x"])
        done = zrfs("import", self.store, self.dir / "other.zr", check=None)
        self.assert_clear(done, "is a store")
        make_tree(self.dir, {"beside.bin": b"y"})
        done = zrfs("import", "--append", self.dir, self.store, check=None)
        self.assert_clear(done, "packed into itself")

    def test_a_message_stays_on_one_line(self):
        make_tree(self.dir / "source", {"a.bin": b"x"})
        os.symlink("nowhere", self.dir / "source" / "odd\nname")
        self.refused(self.dir / "source", self.store, words=["odd\\nname"])
        # What is not picked is no concern.
        zrfs("import", self.dir / "source", self.store, "--only", "*.bin")
        self.assertEqual(stats(self.store)["records"], 1)

    def test_exactly_one_mib_stays_version_1(self):
        import_folder(self.dir, "store.zr", [noise(MIB, 1), b"x"], "--v1")
        self.assertEqual(stats(self.store)["version"], 1)

    def test_raw_unless_it_saves_two_percent(self):
        import_folder(self.dir, "store.zr", [text(10_000), noise(10_000, 1), noise(9900, 2) + b"\0" * 100])
        codecs = [json.loads(line)["codec"] for line in zrfs("ls", self.store, "--json").stdout.splitlines()]
        self.assertEqual(codecs, ["flate", "raw", "raw"])

    def test_many_files_say_only_the_summary_on_a_pipe(self):
        contents = [b"%d" % i for i in range(20_000)]
        make_folder(self.dir / "many", contents)
        done = zrfs("import", self.dir / "many", self.store)
        said = (done.stdout + done.stderr).decode()
        self.assertLessEqual(len(said.splitlines()), 5, said)
        self.assertIn("20000", said.replace(",", "").replace("_", ""))
        self.assertNotIn("\r", said)
        self.assertNotIn("\x1b", said)
        self.assertTrue(zrfs("cat", self.store, "0-19999").stdout == b"".join(contents))

    # Interruptions

    def big_source(self):
        """An array that takes seconds at level 12: it compresses, with effort."""
        rng = np.random.default_rng(1)
        block = rng.integers(0, 12, (1024, 4096), dtype=np.uint8)
        array = np.lib.format.open_memmap(self.dir / "big.npy", "w+", np.uint8, (64 * 1024, 4096))
        for i in range(64):
            array[i * 1024:(i + 1) * 1024] = np.roll(block, i * 7)
        array.flush()
        return self.dir / "big.npy"

    def interrupt(self, args, begun, number):
        process = subprocess.Popen(
            [ZRFS, "import", "--level", "12", *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        try:
            wait_until(lambda: begun() or process.poll() is not None, "the import has begun", 60)
            self.assertIsNone(process.poll(), "the import was over before it could be interrupted")
            process.send_signal(number)
            begin = time.monotonic()
            out, err = process.communicate(timeout=60)
            say(f"import ended {time.monotonic() - begin:.2f} s after signal {number}, status {process.returncode}")
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
            process.stderr.close()
        self.assertNotEqual(process.returncode, 0, out)
        self.assertNotIn(b"panicked", err)
        return err

    def test_an_interrupted_import_leaves_nothing_or_what_it_has_kept(self):
        source = self.big_source()
        partial = pathlib.Path(f"{self.store}.partial")
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(signal=number):
                err = self.interrupt([source, self.store], lambda: (partial / "meta.zr").exists(), number)
                if b"nothing was imported" not in err:
                    self.assertRegex(err, rb"interrupted: \d+ of 65536 records are kept; continue with: zrfs import .*--resume\n")
                    self.assertFalse(self.store.exists())
                    shutil.rmtree(partial)
                self.assert_nothing_left()

    def test_an_interrupted_append_goes_back(self):
        source = self.big_source()
        np.save(self.dir / "small.npy", np.arange(4 * 4096, dtype=np.uint8).reshape(4, 4096))
        zrfs("import", self.dir / "small.npy", self.store)
        before = zrfs("cat", self.store, "0-3").stdout
        size = os.path.getsize(self.store / "0.zr")
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(signal=number):
                self.interrupt(
                    ["--append", source, self.store], lambda: os.path.getsize(self.store / "0.zr") > size + MIB, number,
                )
                self.assertEqual(read_header(self.store)[4], 4)
                self.assertEqual(zrfs("cat", self.store, "0-3").stdout, before)
                # What it has kept to go on with goes.
                zrfs("compact", self.store)
                self.assertEqual(os.path.getsize(self.store / "0.zr"), size)
        # And the store takes an append as if nothing had been.
        zrfs("import", "--append", self.dir / "small.npy", self.store)
        self.assertEqual(zrfs("cat", self.store, "0-7").stdout, before * 2)

    def test_a_killed_import_is_refused_with_both_ways_out(self):
        source = self.big_source()
        partial = pathlib.Path(f"{self.store}.partial")
        self.interrupt([source, self.store], lambda: (partial / "meta.zr").exists(), signal.SIGKILL)
        self.assertFalse(self.store.exists(), "an unfinished store must not have the name of a finished one")
        make_folder(self.dir / "a", [b"a"])
        done = zrfs("import", self.dir / "a", self.store, check=None)
        self.assert_clear(done, "continue it with --resume", f"rm -r {partial}")
        shutil.rmtree(partial)
        zrfs("import", self.dir / "a", self.store)


class Demo(Case):
    def setUp(self):
        super().setUp()
        self.temp, self.here = self.dir / "tmp", self.dir / "here"
        self.temp.mkdir()
        self.here.mkdir()
        self.environment = os.environ | {"TMPDIR": str(self.temp)}
        # Whoever has other zrfs mounts on this machine may go on using them.
        self.running = set(daemons())

    def assert_nothing_left(self):
        wait_until(lambda: set(daemons()) <= self.running, "no process is left")
        ours = os.fsencode(self.dir)
        self.assertEqual([where for where, _, _ in mounts() if where.startswith(ours)], [])
        self.assertEqual((os.listdir(self.temp), os.listdir(self.here)), ([], []))

    def test_it_works_and_leaves_nothing(self):
        done = run(ZRFS, "demo", env=self.environment, cwd=self.here, check=0, timeout=60)
        said = done.stdout.decode()
        self.assertIn("records/", said)
        self.assertRegex(said, r"zrfs import")
        self.assert_nothing_left()

    def test_a_closed_pipe_leaves_nothing_either(self):
        done = run("bash", "-c", '"$0" demo | head -n 1', ZRFS, env=self.environment, cwd=self.here, timeout=60)
        self.assertNotIn(b"panicked", done.stderr)
        self.assert_nothing_left()

    def test_an_interruption_leaves_nothing_either(self):
        with subprocess.Popen(
            [ZRFS, "demo"], env=self.environment, cwd=self.here,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        ) as process:
            wait_until(lambda: os.listdir(self.temp) or process.poll() is not None, "the demo has begun")
            process.send_signal(signal.SIGINT)
            process.wait(30)
        self.assert_nothing_left()


if __name__ == "__main__":
    unittest.main()
