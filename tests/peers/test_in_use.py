"""Stores that somebody has open: who is named, who waits for whom, and what a stopped or killed process leaves."""

import hashlib
import json
import os
import random
import signal
import subprocess
import unittest

import numpy as np
from changing import MARK, Changing, Saved, Watch, remove, sample, start, swap_last, verify
from loaderx_client import BAD_FORMAT, Loaderx, LoaderxError
from support import ZRFS, MIB, daemons, noise, read_header, say, snapshot, stop, wait_until, zrfs

# The program's name as the system has it.
PROGRAM = os.path.basename(ZRFS)[:15]
ROW = 64


def changes(store):
    """Every command that moves or removes records of a store, or cuts its files."""
    return [["delete", store, "0"], ["compact", store], ["repair", store], ["seal", store], ["seal", "--undo", store]]


class InUse(Changing):
    def assert_in_use(self, pid, name, stores=None):
        """Each changing command is refused and says who has the store open."""
        for args in changes(self.store):
            with self.subTest(args=args[0]):
                self.assert_refused_unchanged(args, f"process {pid} ({name})", stores=stores, timeout=30)


class Readers(InUse):
    """Whoever reads a store may rely on it."""

    def setUp(self):
        super().setUp()
        self.records = [noise(40_000, i) for i in range(40)]
        self.make(self.records)

    def assert_free(self):
        self.records, _ = self.delete([0, 5], self.records)
        self.compact()
        zrfs("repair", self.store)
        self.assert_sound(self.records)

    def test_mounted(self):
        with self.mount(self.store) as mount:
            self.assert_in_use(mount.pid, PROGRAM)
            self.assertTrue(mount.read(7) == self.records[7])
            # An append is no change of what is there.
            self.append([b"one more"])
            self.records.append(b"one more")
            wait_until(lambda: len(mount.names()) == 41, "the mount shows the new record")
            self.assertEqual(mount.read(40), b"one more")
            zrfs("verify", self.store)
        self.assert_free()

    def test_mounted_the_other_of_two(self):
        labels = self.make([b"%d" % i for i in range(40)], name="labels.zr")
        with self.mount(labels) as mount:
            self.assert_refused_unchanged(
                ["delete", self.store, "0", "--with", labels], f"process {mount.pid} ({PROGRAM})", stores=[self.store, labels],
            )
        self.assert_free()

    def test_a_mount_that_was_stopped_and_killed(self):
        with self.mount(self.store) as mount:
            try:
                stop(mount.pid)
                self.assert_in_use(mount.pid, PROGRAM)
            finally:
                os.kill(mount.pid, signal.SIGKILL)
            wait_until(lambda: not daemons(self.mnt), "the daemon is gone")
            self.assert_free()

    def reader(self):
        """A `zrfs cat` that nobody takes the bytes of: it waits, with the store open."""
        process = start("cat", self.store, "0-39", stdout=subprocess.PIPE)
        # It has written something, so it has the store open.
        self.assertEqual(process.stdout.read(1), self.records[0][:1])
        return process

    def test_read_by_a_command(self):
        process = self.reader()
        try:
            self.assert_in_use(process.pid, PROGRAM)
            rest = process.stdout.read()
            self.assertEqual(process.wait(30), 0)
            self.assertTrue(rest == b"".join(self.records)[1:])
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
        self.assert_free()

    def test_a_killed_reader(self):
        process = self.reader()
        process.kill()
        process.wait()
        process.stdout.close()
        self.assert_free()

    def test_open_in_loaderx(self):
        with Loaderx() as loaderx:
            with loaderx.has_open(self.store):
                self.assert_in_use(loaderx.pid, loaderx.name)
                self.assert_same(loaderx.read(self.store), self.records)
            self.assert_free()
            self.assert_same(loaderx.read(self.store), self.records)

    def test_killed_while_open_in_loaderx(self):
        with self.assertRaises(AssertionError), Loaderx() as loaderx, loaderx.has_open(self.store):
            os.kill(loaderx.pid, signal.SIGKILL)
            loaderx.process.wait()
            loaderx.read(self.store)
        self.assert_free()

    def test_open_for_reading_by_another_program(self):
        # Who has the file open for reading only, as a backup has, may rely on it, too, or is not in the way at all.
        process = subprocess.Popen(["tail", "-c", "1", "-f", self.store / "meta.zr"], stdout=subprocess.PIPE)
        try:
            # It has written the last byte, so it has the file open.
            process.stdout.read(1)
            done = zrfs("delete", self.store, "0", check=None)
            if done.returncode:
                self.assert_clear(done, f"process {process.pid} (tail)")
            else:
                self.records, _ = swap_last(self.records, [0])
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
        self.assert_free()


class Interrupted(InUse):
    """A change that is stopped or killed half way."""

    COUNT = 200_000

    def make_large(self, command):
        """A store that `command` takes long for: sets its arguments, its standard input, the records before and after."""
        rng = random.Random(command)
        rows = rng.randbytes(self.COUNT * ROW)
        remove(self.store)
        self.save_rows("rows.npy", rows)
        zrfs("import", self.dir / "rows.npy", self.store, "--codec", "raw")
        self.before = [rows[at:at + ROW] for at in range(0, len(rows), ROW)]
        some = rng.sample(range(self.COUNT), self.COUNT // 3)
        listed = " ".join(map(str, some)).encode()
        self.after, _ = swap_last(self.before, some)
        self.args, self.listed = ["delete", self.store, "-"], listed
        if command == "compact":
            zrfs(*self.args, input=listed)
            self.before = self.after
            self.args, self.listed = ["compact", self.store], b""

    def save_rows(self, name, rows):
        np.save(self.dir / name, np.frombuffer(rows, dtype=np.uint8).reshape(-1, ROW))

    def rows(self):
        """Every record of the store."""
        data = zrfs("cat", self.store, f"0-{read_header(self.store)[4] - 1}").stdout
        return [data[at:at + ROW] for at in range(0, len(data), ROW)]

    def signalled(self, writes, number):
        """Run the command until meta.zr was written so often, and send it a signal; None where it ended before."""
        (self.dir / "input").write_bytes(self.listed)
        with Watch(self.store / "meta.zr") as watch, open(self.dir / "input", "rb") as listed:
            process = start(*self.args, stdin=listed)
            while writes and process.poll() is None:
                writes -= watch.wait(0.01)
            if process.returncode is not None:
                return None
            process.send_signal(number)
            how = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT).si_code
            if how == os.CLD_STOPPED:
                return process
            process.wait()
            return None

    def stop_under_way(self):
        saved = Saved(self.store)
        for _ in range(60):
            process = self.signalled(1, signal.SIGSTOP)
            if process:
                return process
            saved.restore()
        self.fail(f"zrfs {self.args[0]} could not be stopped: it was always over before")

    def kill_under_way(self):
        """Kill the command when the header says that a change is under way; again and again, until it was not too late."""
        saved = Saved(self.store)
        for attempt in range(60):
            self.signalled(1 + attempt % 3, signal.SIGKILL)
            if read_header(self.store)[1] & MARK:
                say(f"{self.args[0]}: killed under way at attempt {attempt + 1}")
                return
            saved.restore()
        self.fail(f"zrfs {self.args[0]}: 60 kills, and the header never said that a change is under way")

    def test_killed_under_way(self):
        for command in ("delete", "compact"):
            self.make_large(command)
            self.kill_under_way()
            killed = Saved(self.store)
            with Loaderx() as loaderx:
                for then in (self.reading, self.appending, self.deleting, "compact", "seal", "repair"):
                    with self.subTest(killed=command, then=getattr(then, "__name__", then)):
                        killed.restore()
                        with self.assertRaises(LoaderxError) as caught:
                            loaderx.digest(self.store)
                        self.assertEqual(caught.exception.code, BAD_FORMAT)
                        expected = zrfs(then, self.store) and self.after if isinstance(then, str) else then()
                        # What writes has finished the change first.
                        self.assertEqual(read_header(self.store)[1], 1)
                        self.assert_same(self.rows(), expected)
                        self.assert_verified()
                        digest = hashlib.sha256(b"".join(expected)).hexdigest()
                        self.assertEqual(loaderx.digest(self.store), (len(expected), digest))

    def reading(self):
        """Reading sees the change finished, and leaves finishing it to others."""
        before, after = snapshot(self.store), self.after
        self.assertEqual(verify(self.store)[0], 0)
        self.assertEqual(len(zrfs("ls", self.store).stdout.splitlines()), len(after))
        self.assertEqual(json.loads(zrfs("stats", self.store, "--json").stdout)["records"], len(after))
        self.assertTrue(zrfs("cat", self.store, f"0-{len(after) - 1}").stdout == b"".join(after), "cat")
        # A mount that may write finishes it.
        with self.mount(self.store, "-o", "ro") as mount:
            for index in (0, 1, len(after) // 2, len(after) - 1):
                self.assertEqual(np.load(mount.path(index, "npy")).tobytes(), after[index])
            self.assertFalse(mount.path(len(after), "npy").exists())
        self.assertEqual(snapshot(self.store), before)
        self.compact()
        return after

    def appending(self):
        self.save_rows("more.npy", noise(2 * ROW, 1))
        zrfs("import", "--append", self.dir / "more.npy", self.store, "--codec", "raw")
        return [*self.after, noise(2 * ROW, 1)[:ROW], noise(2 * ROW, 1)[ROW:]]

    def deleting(self):
        zrfs("delete", self.store, "7 100-200")
        return swap_last(self.after, [7, *range(100, 201)])[0]

    def test_stopped_under_way(self):
        for command in ("delete", "compact"):
            self.make_large(command)
            self.save_rows("more.npy", bytes(2 * ROW))
            process = self.stop_under_way()
            try:
                # Only zrfs may open meta.zr here: whoever else does waits as long as the stopped process has its lease.
                for args in [*changes(self.store), ["import", "--append", self.dir / "more.npy", self.store]]:
                    with self.subTest(stopped=command, other=args[0]):
                        self.assert_clear(zrfs(*args, check=None, timeout=30), f"process {process.pid} ({PROGRAM})")
                for args in (["ls", self.store], ["stats", self.store], ["verify", self.store], ["cat", self.store, "0"]):
                    with self.subTest(stopped=command, reading=args[0]):
                        # It sees the change finished, or says who is at it.
                        done = zrfs(*args, check=None, timeout=30)
                        if done.returncode:
                            self.assert_clear(done, f"process {process.pid} ({PROGRAM})")
                        elif args[0] == "cat":
                            self.assertEqual(done.stdout, self.after[0])
            finally:
                process.kill()
                process.wait()
            with self.subTest(killed=command):
                self.assert_verified()
                zrfs("delete", self.store, "0")
                rows = self.rows()
                right = [swap_last(records, [0])[0] for records in (self.before, self.after)]
                self.assert_same(rows, right[len(rows) == len(right[1])])

    def test_an_append_that_was_stopped_and_killed(self):
        records = [sample(random.Random(1), i) for i in range(20)]
        self.make(records)
        (self.dir / "large").mkdir()
        for i in range(48):
            (self.dir / "large" / f"{i:02}").write_bytes(np.random.default_rng(i).integers(0, 12, MIB, np.uint8).tobytes())
        size = os.path.getsize(self.store / "0.zr")
        process = start("import", "--append", "--level", "12", self.dir / "large", self.store)
        try:
            begun = lambda: os.path.getsize(self.store / "0.zr") > size or process.poll() is not None
            wait_until(begun, "the append has begun", 60)
            stop(process.pid)
            self.assertIsNone(process.poll(), "the append was over before it could be stopped")
            for other in changes(self.store):
                with self.subTest(other=other[0]):
                    self.assert_clear(zrfs(*other, check=None, timeout=60), f"process {process.pid} ({PROGRAM})")
            self.assert_clear(self.append([b"x"], check=None), f"process {process.pid} ({PROGRAM})")
            self.assert_same(
                [zrfs("cat", self.store, str(i), timeout=60).stdout for i in range(20)], records,
            )
        finally:
            process.kill()
            process.wait()
        self.assert_sound(records)
        self.append([b"x"])
        records, _ = self.delete([0, 4], records + [b"x"])
        self.compact()
        self.assert_dense()
        self.assert_sound(records)


if __name__ == "__main__":
    unittest.main()
