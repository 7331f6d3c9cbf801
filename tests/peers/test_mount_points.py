"""Where a mount may be, what lies there already, and taking it away: stores and mounts in each other's way, dead and stopped
daemons, mounts in use, descriptors that stand for a mount point."""

import contextlib
import ctypes
import mmap
import os
import signal
import subprocess
import unittest

from support import ZRFS, clear_mount, daemons, import_folder, is_mounted, mounts, run, stop, wait_until, zrfs
from test_mount_life import CONTENTS, Life

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p


def there(point):
    """What is mounted at `point`, the topmost last."""
    return [source for where, _, source in mounts() if where == os.fsencode(point)]


@contextlib.contextmanager
def bound(source, target):
    target.mkdir(exist_ok=True)
    run("mount", "--bind", source, target, check=0)
    try:
        yield target
    finally:
        run("umount", target, check=0)


def mount_by_hand(target, kind=b"fuse.zrfs"):
    """What mount.fuse3 or a container runtime does: opens /dev/fuse and mounts with it. Gives back the descriptor."""
    fd = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0,default_permissions".encode()
    if LIBC.mount(b"by hand", os.fsencode(target), kind, 0, options):
        raise OSError(ctypes.get_errno(), "mount")
    return fd


class Places(Life):
    def setUp(self):
        super().setUp()
        self.need_root()

    def refuse(self, point, *words, store=None, options=()):
        done = zrfs("mount", store or self.store, point, *options, check=None)
        self.assert_clear(done, *words)
        self.assertEqual(daemons(point), [])

    def kill_daemons(self):
        for pid in daemons(self.mnt):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not daemons(self.mnt), "the daemons are gone")


class InTheWay(Places):
    def test_a_store_is_no_place_for_its_own_mount(self):
        inner = self.store / "inner"
        inner.mkdir()
        os.symlink(self.store, self.dir / "link")
        for point in (self.store, self.dir / "link", self.dir / "mnt/../store.zr"):
            with self.subTest(point=point):
                self.refuse(point, "is the store", str(self.store), "another folder")
        for point in (inner, self.dir / "link/inner"):
            with self.subTest(point=point):
                self.refuse(point, "lies in the store", str(self.store), "elsewhere")
        with bound(self.store, self.dir / "bound") as other:
            self.refuse(other, "is the store")
            self.refuse(other / "inner", "lies in the store")
            self.refuse(inner, "lies in the store", store=other)

    def test_a_mount_does_not_hide_a_store(self):
        above = self.dir / "above"
        (above / "deep").mkdir(parents=True)
        inside, labels = import_folder(above / "deep", "inside.zr", CONTENTS), import_folder(above, "labels.zr", CONTENTS)
        os.symlink(above, self.dir / "link")
        for point in (above, above / "deep", self.dir / "link", "/"):
            with self.subTest(point=point):
                self.refuse(point, "would hide the store", str(inside), "beside", store=inside)
        self.refuse(above, "would hide the store", str(labels), options=("-o", f"labels={labels}"))
        with bound(above, self.dir / "bound") as other:
            self.refuse(other, "would hide the store", store=inside)
            self.refuse(above, "would hide the store", store=other / "deep/inside.zr")
        # Beside it is well, also in a folder that has something in it: as with any mount, it shows again afterwards.
        beside = above / "deep" / "beside"
        beside.mkdir()
        (beside / "kept").write_bytes(b"kept")
        try:
            zrfs("mount", inside, beside, "-o", f"log={beside}/log")
            self.assert_serves(beside)
            zrfs("umount", beside)
            wait_until(lambda: not daemons(beside), "the daemon ended")
            self.assertEqual(sorted(os.listdir(beside)), ["kept", "log"])
        finally:
            clear_mount(beside)

    def test_the_same_store_is_known_by_any_name(self):
        with self.mount(self.store):
            os.symlink(self.store, self.dir / "link")
            with bound(self.store, self.dir / "bound") as other:
                for store in (self.store, self.dir / "link", other, self.mnt):
                    with self.subTest(store=store):
                        self.refuse_again(store)
            renamed = self.dir / "renamed.zr"
            os.rename(self.store, renamed)
            self.refuse_again(renamed)
            os.rename(renamed, self.store)
            self.assert_serves()

    def refuse_again(self, store):
        done = zrfs("mount", store, self.mnt, check=None)
        self.assert_clear(done, "is mounted at", "already", str(self.mnt))
        self.assertEqual(len(there(self.mnt)), 1)

    def test_of_many_at_once_one_mounts(self):
        def mounted():
            return sum(where == os.fsencode(self.mnt) for where, _, _ in mounts())

        def all_at_once(times):
            for _ in range(times):
                starting = [
                    subprocess.Popen([ZRFS, "mount", self.store, self.mnt], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
                    for _ in range(12)
                ]
                said = [(process.communicate(timeout=30)[1], process.returncode) for process in starting]
                self.assertEqual(sorted(status for _, status in said), [0] + 11 * [1], said)
                self.assertEqual(sum(b"already" in text for text, _ in said), 11, said)
                self.assertEqual(mounted(), 1)
                self.assert_serves()
                yield

        try:
            for _ in all_at_once(3):
                zrfs("umount", self.mnt)
                self.assert_ended()
            # Over one whose daemon is gone, too.
            for _ in all_at_once(3):
                self.kill_daemons()
        finally:
            clear_mount(self.mnt)

    def test_proc_is_no_place(self):
        self.refuse("/proc", "/proc")
        self.assertTrue(os.path.exists("/proc/self/mountinfo"))

    def test_another_store_covers_it_and_each_umount_takes_one_off(self):
        other = import_folder(self.dir, "other.zr", [b"other"])
        with self.mount(self.store):
            done = zrfs("mount", other, self.mnt)
            self.assertIn(b"is covered from now on", done.stderr)
            self.assertEqual((self.mnt / "records/00000000.bin").read_bytes(), b"other")
            zrfs("umount", self.mnt)
            self.assertEqual(there(self.mnt), [os.fsencode(self.store)])
            self.assert_serves()
            zrfs("umount", self.mnt)
            self.assert_ended()

    def test_a_mount_in_a_mount(self):
        tree = self.dir / "folder"
        for name in ("cats/a.png", "dogs/b.png"):
            (tree / name).parent.mkdir(parents=True)
            (tree / name).write_bytes(name.encode())
        outer = self.dir / "outer.zr"
        zrfs("import", tree, outer)
        with self.mount(outer):
            inner = self.mnt / "tree" / "cats"
            try:
                zrfs("mount", self.store, inner)
                self.assert_serves(inner)
                self.assertEqual((self.mnt / "tree/dogs/b.png").read_bytes(), b"dogs/b.png")
                done = zrfs("umount", self.mnt, check=None)
                self.assert_clear(done, "another mount is on it", str(inner), "first")
                done = zrfs("umount", inner / "records", check=None)
                self.assert_clear(done, "no zrfs mount", f"it lies in the one at {inner}")
                zrfs("umount", inner)
                self.assertEqual((inner / "a.png").read_bytes(), b"cats/a.png")
            finally:
                clear_mount(inner)


class Dead(Places):
    def test_several_on_top_of_each_other_are_taken_over(self):
        other = import_folder(self.dir, "other.zr", [b"other"])
        with self.mount(self.store):
            zrfs("mount", other, self.mnt)
            self.kill_daemons()
            os.symlink("mnt", self.dir / "link")
            zrfs("mount", self.store, self.dir / "link")
            self.assertEqual(there(self.mnt), [os.fsencode(self.store)])
            self.assert_serves()

    def test_that_of_another_program_is_left_alone(self):
        os.close(mount_by_hand(self.mnt, b"fuse.other"))
        try:
            self.refuse(self.mnt, "a dead mount of fuse.other", "umount")
            self.assert_clear(zrfs("umount", self.mnt, check=None), "fuse.other, not zrfs")
            self.assertTrue(is_mounted(self.mnt))
        finally:
            run("umount", self.mnt, check=0)


class Stopped(Places):
    """A daemon that does not answer: its mount is looked at for a few seconds, and taken away without asking it."""

    def test_commands_end_all_the_same(self):
        with self.mount(self.store) as mount, contextlib.ExitStack() as stopped:
            used = os.open(self.mnt, os.O_RDONLY)
            # Whoever asks it from now on waits: that is for the commands to do, not for the test.
            stopped.callback(os.kill, mount.pid, signal.SIGKILL)
            stop(mount.pid)
            calls = (["mount", self.store, self.mnt], ["mount", self.store, self.mnt / "tree"], ["stats", self.mnt])
            commands = [
                subprocess.Popen([ZRFS, *call], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                for call in calls
            ]
            for command in commands:
                out, err = command.communicate(timeout=30)
                done = subprocess.CompletedProcess(command.args, command.returncode, out, err)
                self.assert_clear(done, f"the mount at {self.mnt} does not answer", f"zrfs umount --lazy {self.mnt}")
            self.assertEqual(len(there(self.mnt)), 1)
            done = zrfs("umount", self.mnt, check=None, timeout=20)
            self.assert_clear(done, f"process {os.getpid()} (", "uses it")
            os.close(used)
            zrfs("umount", self.mnt, timeout=20)
            self.assertFalse(is_mounted(self.mnt))
        self.assert_ended()


class TakenAway(Places):
    def test_however_it_is_named(self):
        os.symlink("mnt", self.dir / "link")
        for name in ("mnt", "mnt/", "./mnt/.", "link", "link/", "../" + self.dir.name + "/mnt"):
            for dead in (False, True):
                with self.subTest(name=name, dead=dead), self.mount(self.store):
                    if dead:
                        self.kill_daemons()
                    run(ZRFS, "umount", name, cwd=self.dir, check=0)
                    self.assert_ended()

    def test_who_is_in_the_way_is_named(self):
        file = self.mnt / "records" / "00000002.bin"
        for holds in ("open", "map", "folder", "root"):
            with self.subTest(holds=holds), self.mount(self.store), contextlib.ExitStack() as held:
                if holds == "open":
                    held.enter_context(open(file, "rb"))
                    pid = os.getpid()
                elif holds == "map":
                    # Python's own mapping would keep the file open, too.
                    with open(file, "rb") as f:
                        place = LIBC.mmap(None, ctypes.c_size_t(mmap.PAGESIZE), mmap.PROT_READ, mmap.MAP_SHARED, f.fileno(), ctypes.c_long(0))
                    self.assertNotEqual(place, ctypes.c_void_p(-1).value)
                    held.callback(LIBC.munmap, ctypes.c_void_p(place), ctypes.c_size_t(mmap.PAGESIZE))
                    pid = os.getpid()
                else:
                    into = os.chdir if holds == "folder" else os.chroot
                    pid = os.fork()
                    if pid == 0:
                        try:
                            into(self.mnt)
                            signal.pause()
                        finally:
                            os._exit(1)
                    held.callback(os.waitpid, pid, 0)
                    held.callback(os.kill, pid, signal.SIGKILL)
                    link = f"/proc/{pid}/{'cwd' if holds == 'folder' else 'root'}"
                    wait_until(lambda: os.readlink(link) == str(self.mnt), "it is there")
                done = zrfs("umount", self.mnt, check=None)
                self.assert_clear(done, str(self.mnt), f"process {pid} (", "uses it", "--lazy")
                self.assertTrue(is_mounted(self.mnt))

    def test_of_many_three_are_named(self):
        with self.mount(self.store):
            users = [subprocess.Popen(["sleep", "60"], cwd=self.mnt) for _ in range(5)]
            try:
                done = zrfs("umount", self.mnt, check=None)
                self.assert_clear(done, "and 2 more use it", "(sleep)")
                self.assertEqual(done.stderr.count(b"process "), 3)
                zrfs("umount", "-l", self.mnt)
                self.assertFalse(is_mounted(self.mnt))
            finally:
                for user in users:
                    user.kill()
                    user.wait()
            self.assert_ended()


class Descriptors(Places):
    """The caller opens /dev/fuse and mounts; the program is given the descriptor in the place of the mount point."""

    def start(self, fd):
        process = subprocess.Popen(
            [ZRFS, "mount", "-f", self.store, f"/dev/fd/{fd}"],
            pass_fds=[fd], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        os.close(fd)
        self.assertIn(b"3 records", process.stdout.readline())
        self.assert_serves()
        return process

    def test_it_serves_until_the_caller_unmounts(self):
        try:
            process = self.start(mount_by_hand(self.mnt))
            run("umount", self.mnt, check=0)
            self.assertEqual(process.wait(20), 0)
            self.assert_ended()
        finally:
            clear_mount(self.mnt)

    def test_a_signal_ends_it_and_leaves_the_mount_to_the_caller(self):
        try:
            process = self.start(mount_by_hand(self.mnt))
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(20), 0)
            self.assertIn(b"SIGTERM: ended; the mount is for its maker", process.stderr.read())
            self.assertTrue(is_mounted(self.mnt))
            run("umount", self.mnt, check=0)
        finally:
            clear_mount(self.mnt)

    def test_mount_fuse3_that_drops_privileges(self):
        script = self.dir / "served"
        script.write_text(f'#!/bin/sh\nexec "{ZRFS}" mount -f "$1" "$2" >"{self.dir}/out" 2>&1\n')
        script.chmod(0o755)
        self.dir.chmod(0o755)
        process = subprocess.Popen(
            ["mount.fuse3", self.store, self.mnt, "-t", f"fuse.{script}", "-o", "drop_privileges"], stdin=subprocess.DEVNULL
        )
        try:
            wait_until(lambda: (self.dir / "out").exists() and (self.dir / "out").read_bytes(), "it serves or has failed")
            self.assert_serves()
            run("umount", self.mnt, check=0)
            self.assertEqual(process.wait(20), 0)
        finally:
            process.kill()
            process.wait()
            clear_mount(self.mnt)

    def test_what_is_no_mount_is_refused(self):
        for path, words in (
            ("/dev/null", ["not one of /dev/fuse"]),
            (self.store / "meta.zr", ["not one of /dev/fuse"]),
            ("/dev/fuse", ["nothing is mounted"]),
        ):
            with self.subTest(path=path):
                fd = os.open(path, os.O_RDWR)
                try:
                    done = zrfs("mount", "-f", self.store, f"/dev/fd/{fd}", pass_fds=[fd], check=None)
                    self.assert_clear(done, f"/dev/fd/{fd}", *words)
                finally:
                    os.close(fd)
        self.assert_clear(zrfs("mount", "-f", self.store, "/dev/fd/999", check=None), "/dev/fd/999", "descriptor")


if __name__ == "__main__":
    unittest.main()
