"""The control files of a mount, written by shells and programs in the ways that they have.

What a program writes arrives as it happens to cut it. Whatever way that is: a list is applied whole or not at all, who wrote it
is told, and no record goes that the list did not name.
"""

import errno
import json
import os
import signal
import subprocess
import sys
import time
import unittest

import numpy as np

from support import Case, run, say, wait_until, zrfs


class Control(Case):
    def setUp(self):
        super().setUp()
        self.store = self.dir / "s.zr"

    def fill(self, count):
        np.save(self.dir / "a.npy", np.arange(count, dtype=np.int64))
        zrfs("import", self.dir / "a.npy", self.store)
        self.table = list(range(count))

    def shell(self, script, check=0, **env):
        return run("bash", "-c", script, check=check, cwd=self.dir, env=os.environ | {"M": str(self.mnt)} | env)

    def status(self):
        return json.loads((self.mnt / "delete").read_bytes())

    def lost(self, *doomed):
        """Exactly these records are gone, by the numbers that they hold."""
        for index in sorted(set(doomed), reverse=True):
            self.table[index] = self.table[-1]
            self.table.pop()
        self.same()

    def same(self):
        names = os.listdir(self.mnt / "records")
        self.assertEqual(len(names), len(self.table))
        for index in range(0, len(self.table), max(1, len(self.table) // 500)):
            data = (self.mnt / "records" / f"{index:08}.npy").read_bytes()
            self.assertEqual(int.from_bytes(data[-8:], "little"), self.table[index])

    def test_shells_and_tools(self):
        self.fill(3000)
        frame = lambda indices: "begin\n" + "".join(f"{i}\n" for i in indices) + "end\n"
        with self.mount(self.store):
            self.shell("echo 7 12 100-199 > $M/delete")
            self.lost(7, 12, *range(100, 200))
            self.shell("/usr/bin/printf '5\\n6\\n' > $M/delete")
            self.lost(5, 6)
            # The shell's own printf writes each line by itself, and is told that the second one was refused.
            done = self.shell("printf '8\\n10\\n' > $M/delete", check=None)
            self.assertNotEqual(done.returncode, 0)
            self.lost(8)
            self.shell("echo 4,3 | tee $M/delete > /dev/null")
            self.lost(4, 3)
            self.shell("echo 9 >> $M/delete")
            self.lost(9)
            self.shell("seq 20 29 | tr '\\n' ' ' | sed 's/$/\\n/' > list; cp list $M/delete")
            self.lost(*range(20, 30))
            (self.dir / "list").write_text(frame(range(50, 250, 2)))
            self.shell("cp list $M/delete")
            self.lost(*range(50, 250, 2))
            self.shell("cat list > $M/delete")
            self.lost(*range(50, 250, 2))
            for block in ("1", "7", "4096"):
                (self.dir / "list").write_text(frame(range(30, 60)))
                self.shell(f"dd if=list of=$M/delete bs={block} status=none")
                self.lost(*range(30, 60))
            self.shell("dd if=list of=$M/delete bs=64 conv=notrunc,fsync status=none")
            self.lost(*range(30, 60))
            # Lines by several processes, with one opening.
            self.shell("{ echo begin; seq 60 64 | xargs -n1 echo; /bin/echo 70; echo end; } > $M/delete")
            self.lost(60, 61, 62, 63, 64, 70)
            self.assertEqual(self.status()["batches"], 13)

    def test_programs(self):
        self.fill(3000)
        delete = self.mnt / "delete"
        with self.mount(self.store):
            with open(delete, "w") as f:
                f.write("begin\n")
                for i in range(0, 2000, 3):
                    print(i, file=f)
                f.write("end\n")
            self.lost(*range(0, 2000, 3))
            with open(delete, "a") as f:
                f.write("1\n2\n")
            self.lost(1, 2)
            # A fork between two writes.
            file = os.open(delete, os.O_WRONLY)
            os.write(file, b"begin\n10\n")
            child = os.fork()
            if child == 0:
                os.write(file, b"11\n")
                os._exit(0)
            os.waitpid(child, 0)
            os.write(file, b"12\nend\n")
            os.close(file)
            self.lost(10, 11, 12)
            # Where in the file it is written is all the same.
            file = os.open(delete, os.O_WRONLY)
            os.pwrite(file, b"begin\n3", 1 << 40)
            os.pwrite(file, b"3\nend\n", 0)
            os.close(file)
            self.lost(33)
            # A list without a frame that a program cuts into several writes.
            text = "\n".join(map(str, range(1000, 1100)))
            with self.assertRaises(OSError) as raised, open(delete, "w", buffering=1 << 20) as f:
                f.write(text)
            self.assertEqual(raised.exception.errno, errno.EINVAL)
            self.same()

    def test_a_refusal_reaches_a_program_that_buffers(self):
        self.fill(50)
        with self.mount(self.store):
            for text, error, why in (("5000000\n", errno.ERANGE, "no record 5000000"), ("x\n", errno.EINVAL, "is no record")):
                with self.assertRaises(OSError) as raised, open(self.mnt / "delete", "w") as f:
                    f.write(text)
                self.assertEqual(raised.exception.errno, error)
                self.assertIn(why, self.status()["refused"])
            batch = open(self.mnt / "batches/3.npy", "rb")
            with self.assertRaises(OSError) as raised:
                open(self.mnt / "delete", "w")
            self.assertEqual(raised.exception.errno, errno.EBUSY)
            self.assertIn("1 open files", self.status()["refused"])
            batch.close()
            self.same()

    def test_half_a_line_is_no_beginning_of_another_ones(self):
        self.fill(50)
        with self.mount(self.store):
            file = os.open(self.mnt / "delete", os.O_WRONLY)
            os.write(file, b"begin\n")
            # It is killed within 1234.
            for text in (b"10\n1", b"7\n"):
                child = os.fork()
                if child == 0:
                    try:
                        os.write(file, text)
                    except OSError as e:
                        os._exit(e.errno)
                    os._exit(0)
                status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                self.assertEqual(status, errno.EINVAL if text == b"7\n" else 0)
            with self.assertRaises(OSError):
                os.write(file, b"end\n")
            os.close(file)
            self.same()

    def test_rsync_copies_what_a_delete_has_moved(self):
        self.fill(50)
        # rsync compares whole seconds.
        os.utime(self.store / "meta.zr", (1_700_000_000, 1_700_000_000))
        with self.mount(self.store):
            run("rsync", "-a", f"{self.mnt}/records/", self.dir / "copy/", check=0)
            self.shell("echo 0 7 > $M/delete")
            self.lost(0, 7)
            before = os.stat(self.mnt / "records/00000001.npy")
            moved = os.stat(self.mnt / "records/00000000.npy")
            self.assertGreater(moved.st_mtime_ns, before.st_mtime_ns)
            self.assertGreater(moved.st_ctime_ns, before.st_ctime_ns)
            run("rsync", "-a", "--delete", f"{self.mnt}/records/", self.dir / "copy/", check=0)
            run("diff", "-r", self.mnt / "records", self.dir / "copy", check=0)

    def test_what_is_not_meant_is_not_deleted(self):
        self.fill(500)
        with self.mount(self.store):
            # The second list of one opening has indices that are old by then.
            done = self.shell("seq 10 19 | xargs -n5 /bin/echo > $M/delete", check=None)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(b"Stale", done.stderr)
            self.lost(10, 11, 12, 13, 14)
            done = self.shell("{ /bin/echo 7; /bin/echo 12; } > $M/delete", check=None)
            self.assertNotEqual(done.returncode, 0)
            self.lost(7)
            # Killed half way.
            writer = subprocess.Popen(["bash", "-c", f"(echo begin; seq 100 200; kill -9 $BASHPID; echo end) > {self.mnt}/delete"],
                                      stderr=subprocess.DEVNULL)
            writer.wait()
            self.same()
            self.assertEqual(self.shell("printf 'begin\\n1\\n' > $M/delete").returncode, 0)
            self.same()
            for bad in ("1.9", "-1", "all", "7 x", "499", "0-498", "9-8", "cats/a.png"):
                done = self.shell(f"echo '{bad}' > $M/delete", check=1)
                self.assertIn(b"write error", done.stderr)
                self.assertIsNotNone(self.status()["refused"])
            self.shell("truncate -s 0 $M/delete")
            self.shell("truncate -s 5 $M/delete", check=1)
            self.same()

    def test_a_mapping_of_a_deleted_record(self):
        """Right bytes or SIGBUS, and never others."""
        self.fill(10)
        script = """
import mmap, sys
f = open(sys.argv[1], "rb")
m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
print(m[-8], flush=True)
sys.stdin.readline()
print(m[-8], flush=True)
"""
        with self.mount(self.store):
            victim, mover = (
                subprocess.Popen([sys.executable, "-c", script, f"{self.mnt}/records/{index:08}.npy"],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE) for index in (3, 9))
            for child, number in ((victim, 3), (mover, 9)):
                self.assertEqual(child.stdout.readline(), b"%d\n" % number)
            # Record 9 moves to 3: who has it mapped keeps it.
            self.shell("echo 3 > $M/delete")
            self.lost(3)
            self.assertEqual((victim.communicate(b"\n", timeout=20)[0], victim.returncode), (b"", -signal.SIGBUS))
            self.assertEqual((mover.communicate(b"\n", timeout=20)[0], mover.returncode), (b"9\n", 0))

    def test_a_million_at_once(self):
        count = 1_200_000
        self.fill(count)
        with self.mount(self.store):
            doomed = list(range(0, count, 6)) + list(range(1, count, 6)) + list(range(2, count, 6))
            doomed += list(range(3, count, 6)) + list(range(4, count, 6))
            self.assertEqual(len(doomed), 1_000_000)
            text = ("begin\n" + "\n".join(map(str, doomed)) + "\nend\n").encode()
            # Every name was looked up before.
            run("find", self.mnt / "records", "-size", "+100k", check=0)
            file = os.open(self.mnt / "delete", os.O_WRONLY)
            begin = time.monotonic()
            view = memoryview(text)
            while view:
                view = view[os.write(file, view[:1 << 20]):]
            took = time.monotonic() - begin
            os.close(file)
            say(f"a batch of 10^6 of {count} records: {took:.2f} s")
            said = self.status()
            self.assertEqual((said["deleted"], said["records"]), (1_000_000, 200_000))
            names = os.listdir(self.mnt / "records")
            self.assertEqual(len(names), 200_000)
            table = {}
            for before, after in said["moves"]:
                table[after] = before
            for index in range(0, 200_000, 997):
                data = (self.mnt / "records" / f"{index:08}.npy").read_bytes()
                self.assertEqual(int.from_bytes(data[-8:], "little"), table.get(index, index))
            self.assertFalse((self.mnt / "records" / "00200000.npy").exists())
            self.shell("echo 1 > $M/compact")
            wait_until(lambda: json.loads((self.mnt / "compact").read_bytes())["state"] == "done", "compacted", 60)


if __name__ == "__main__":
    unittest.main()
