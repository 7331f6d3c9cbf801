"""A mount's beginning and end: daemon and foreground, signals, outside unmounts, dead mount points, odd paths."""

import contextlib
import errno
import os
import pathlib
import shutil
import signal
import subprocess
import unittest

from support import (
    ZRFS, Case, clear_mount, daemons, import_folder, is_mounted, make_folder, mounts, run, say, text, wait_until, zrfs,
)

CONTENTS = [b"zero", b"one", text(100_000)]
GONE = (errno.ENOTCONN, errno.EIO, errno.ECONNABORTED, errno.ESTALE, errno.EBADF, errno.ENOENT, errno.ENODEV)
# Blanks, option syntax, mountinfo's escape, quotes, a line's end, and bytes that are not UTF-8.
ODD_NAMES = [b"a b", b"a,b,ro,x=1", b"back\\slash\\040", b"quote'\"`$x", b"\xff\xfe\xe9", b" all, of\\it '\"\xff=\t\n.zr "]


class Life(Case):
    def setUp(self):
        super().setUp()
        self.store = import_folder(self.dir, "store.zr", CONTENTS)
        self.mnt.mkdir()

    def assert_serves(self, point=None):
        records = pathlib.Path(os.fsdecode(point or self.mnt)) / "records"
        self.assertEqual([(records / f"{i:08}.bin").read_bytes() for i in range(3)], CONTENTS)

    def assert_ended(self, point=None):
        point = point or self.mnt
        wait_until(lambda: not is_mounted(point), "the mount is gone")
        wait_until(lambda: not daemons(point), "the daemon ended")
        self.assertEqual(os.listdir(point), [])

    def assert_no_mount(self, done, *words, status=(1,)):
        self.assert_clear(done, *words, status=status)
        self.assertFalse(is_mounted(self.mnt))
        self.assertEqual(daemons(self.mnt), [])


class Daemon(Life):
    def test_returns_with_one_line_and_serves(self):
        with self.mount(self.store) as mount:
            self.assertEqual(len((mount.done.stdout + mount.done.stderr).splitlines()), 1, mount.done)
            self.assertIn(str(self.mnt), (mount.done.stdout + mount.done.stderr).decode())
            self.assert_serves()

    def test_caller_that_waits_for_the_end_of_its_pipes_returns(self):
        # The daemon must not keep its caller's stdout and stderr open.
        try:
            done = subprocess.run([ZRFS, "mount", self.store, self.mnt], capture_output=True, timeout=20)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assert_serves()
        finally:
            clear_mount(self.mnt)

    def test_daemon_holds_no_working_folder_and_its_own_session(self):
        with self.mount(self.store) as mount:
            self.assertEqual(os.readlink(f"/proc/{mount.pid}/cwd"), "/")
            self.assertNotEqual(os.getsid(mount.pid), os.getsid(0))

    def test_relative_paths(self):
        try:
            run(ZRFS, "mount", "store.zr", "mnt", cwd=self.dir, check=0)
            self.assert_serves()
            run(ZRFS, "umount", "mnt", cwd=self.dir, check=0)
            wait_until(lambda: not is_mounted(self.mnt), "the mount is gone")
        finally:
            while is_mounted(self.mnt):
                run("umount", "-l", self.mnt, check=0)

    def test_proc_mounts(self):
        with self.mount(self.store):
            found = [(kind, source) for where, kind, source in mounts() if where == os.fsencode(self.mnt)]
            self.assertEqual(len(found), 1)
            self.assertEqual(found[0][0], b"fuse.zrfs")

    def test_ways_to_end_it(self):
        def kill(number):
            return lambda: os.kill(daemons(self.mnt)[0], number)

        for name, end in (
            ("zrfs umount", lambda: zrfs("umount", self.mnt)),
            ("umount", lambda: run("umount", self.mnt, check=0)),
            ("fusermount3 -u", lambda: run("fusermount3", "-u", self.mnt, check=0)),
            ("umount -l", lambda: run("umount", "-l", self.mnt, check=0)),
            ("SIGTERM", kill(signal.SIGTERM)),
            ("SIGINT", kill(signal.SIGINT)),
        ):
            if name.startswith("umount") and os.geteuid() != 0:
                continue
            with self.subTest(end=name), self.mount(self.store):
                self.assert_serves()
                end()
                self.assert_ended()

    def test_second_umount_is_a_clear_error(self):
        zrfs("mount", self.store, self.mnt)
        zrfs("umount", self.mnt)
        self.assert_ended()
        self.assert_no_mount(zrfs("umount", self.mnt, check=None), str(self.mnt))
        self.assert_no_mount(zrfs("umount", self.dir / "missing", check=None), "missing")

    def test_umount_leaves_what_is_not_zrfs(self):
        self.need_root()
        run("mount", "-t", "tmpfs", "tmpfs", self.mnt, check=0)
        try:
            self.assert_clear(zrfs("umount", self.mnt, check=None), str(self.mnt))
            self.assertTrue(is_mounted(self.mnt))
        finally:
            run("umount", self.mnt, check=0)

    def test_killed_daemon_is_taken_over(self):
        with self.mount(self.store) as mount:
            os.kill(mount.pid, signal.SIGKILL)
            wait_until(lambda: not daemons(self.mnt), "the daemon is gone")
            self.assert_errno((errno.ENOTCONN, errno.ECONNABORTED), os.listdir, self.mnt)
            zrfs("mount", self.store, self.mnt)
            self.assert_serves()
            self.assertEqual(len([1 for where, _, _ in mounts() if where == os.fsencode(self.mnt)]), 1)

    def test_killed_daemon_can_be_unmounted(self):
        with self.mount(self.store) as mount:
            os.kill(mount.pid, signal.SIGKILL)
            wait_until(lambda: not daemons(self.mnt), "the daemon is gone")
            zrfs("umount", self.mnt)
            self.assert_ended()

    def test_mount_on_a_live_mount(self):
        with self.mount(self.store):
            done = zrfs("mount", self.store, self.mnt, check=None)
            say(f"mount on a live mount: exit status {done.returncode}, {(done.stdout + done.stderr).decode().strip()}")
            if done.returncode:
                self.assert_clear(done, str(self.mnt))
            self.assert_serves()
            while is_mounted(self.mnt):
                zrfs("umount", self.mnt)
            self.assert_ended()

    def test_one_store_at_two_mount_points(self):
        with self.mount(self.store):
            other = self.dir / "other"
            other.mkdir()
            try:
                zrfs("mount", self.store, other)
                self.assert_serves()
                self.assert_serves(other)
                zrfs("umount", other)
                self.assert_ended(other)
                self.assert_serves()
            finally:
                clear_mount(other)

    def test_umount_with_an_open_file(self):
        with self.mount(self.store):
            with open(self.mnt / "records" / "00000002.bin", "rb") as f:
                self.assertEqual(f.read(10), CONTENTS[2][:10])
                done = zrfs("umount", self.mnt, check=None, timeout=30)
                say(f"umount with an open file: exit status {done.returncode}, {done.stderr.decode().strip()}")
                if done.returncode:
                    self.assert_clear(done)
                    self.assertTrue(is_mounted(self.mnt))
                    self.assertTrue(f.read() == CONTENTS[2][10:])
                    self.assert_serves()
            if is_mounted(self.mnt):
                zrfs("umount", self.mnt)
            self.assert_ended()

    def test_signal_with_an_open_file_and_a_folder_in_use(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(signal=number), self.mount(self.store) as mount:
                with open(self.mnt / "records" / "00000002.bin", "rb", buffering=0) as f:
                    f.read(10)
                    with subprocess.Popen(["sleep", "60"], cwd=self.mnt / "records") as user:
                        os.kill(mount.pid, number)
                        try:
                            wait_until(lambda: not is_mounted(self.mnt), "the mount is gone")
                            with contextlib.suppress(OSError):
                                f.read()
                        finally:
                            user.kill()
                self.assert_ended()

    def test_lazy_umount_serves_open_files_to_their_end(self):
        self.need_root()
        with self.mount(self.store):
            with open(self.mnt / "records" / "00000002.bin", "rb", buffering=0) as f:
                run("umount", "-l", self.mnt, check=0)
                self.assertTrue(f.read() == CONTENTS[2])
            self.assert_ended()

    def test_twenty_mounts_at_once(self):
        points = [self.dir / f"m{i}" for i in range(20)]
        try:
            starting = []
            for point in points:
                point.mkdir()
                starting.append(subprocess.Popen(
                    [ZRFS, "mount", self.store, point],
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                ))
            self.assertEqual([p.wait(30) for p in starting], [0] * len(points))
            for point in points:
                self.assert_serves(point)
            for point in points:
                zrfs("umount", point)
            for point in points:
                self.assert_ended(point)
        finally:
            for point in points:
                clear_mount(point)


class Foreground(Life):
    def start(self, *options):
        process = subprocess.Popen(
            [ZRFS, "mount", self.store, self.mnt, "-f", *options],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.addCleanup(clear_mount, self.mnt)
        wait_until(lambda: is_mounted(self.mnt) or process.poll() is not None, "mounted")
        self.assertIsNone(process.poll())
        self.assert_serves()
        return process

    def test_signals_end_it_with_status_0(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(signal=number):
                process = self.start()
                process.send_signal(number)
                self.assertEqual(process.wait(20), 0)
                self.assert_ended()

    def test_outside_umount_ends_it_with_status_0(self):
        process = self.start()
        run("fusermount3", "-u", self.mnt, check=0)
        self.assertEqual(process.wait(20), 0)
        self.assert_ended()


class Refused(Life):
    def test_missing_store(self):
        self.assert_no_mount(zrfs("mount", self.dir / "absent.zr", self.mnt, check=None), "absent.zr")

    def test_missing_mount_point(self):
        self.mnt.rmdir()
        self.assert_no_mount(zrfs("mount", self.store, self.mnt, check=None), str(self.mnt))
        self.assertFalse(self.mnt.exists())

    def test_mount_point_is_a_file(self):
        self.mnt.rmdir()
        self.mnt.write_bytes(b"a file")
        self.assert_no_mount(zrfs("mount", self.store, self.mnt, check=None), str(self.mnt))

    def test_unknown_option_is_named(self):
        for option in ("frobnicate", "ro,frobnicate", "frobnicate=7"):
            with self.subTest(option=option):
                done = zrfs("mount", self.store, self.mnt, "-o", option, check=None)
                self.assert_no_mount(done, "frobnicate", status=(1, 2))

    def test_option_with_a_bad_value(self):
        for option in ("threads=many", "uid=-", "umask=99"):
            with self.subTest(option=option):
                done = zrfs("mount", self.store, self.mnt, "-o", option, check=None)
                self.assert_no_mount(done, option.split("=")[0], status=(1, 2))

    def test_foreground_fails_the_same_way(self):
        self.assert_no_mount(zrfs("mount", "-f", self.dir / "absent.zr", self.mnt, check=None), "absent.zr")

    def test_standard_options_are_accepted(self):
        with self.mount(self.store, "-o", "ro,nofail,_netdev,noauto,exec,async,relatime,x-systemd.automount"):
            self.assert_serves()


class OddPaths(Life):
    def test_store_and_mount_point_with_odd_names(self):
        for name in ODD_NAMES:
            with self.subTest(name=name):
                folder = os.path.join(os.fsencode(self.dir), b"odd", name)
                os.makedirs(folder)
                store, point = os.path.join(folder, name), os.path.join(folder, b"m" + name)
                os.mkdir(point)
                make_folder(self.dir / "source", CONTENTS)
                zrfs("import", self.dir / "source", store)
                self.assertEqual(zrfs("cat", store, "0-2").stdout, b"".join(CONTENTS))
                try:
                    zrfs("mount", store, point)
                    self.assert_serves(point)
                    self.assertEqual([kind for where, kind, _ in mounts() if where == point], [b"fuse.zrfs"])
                    zrfs("umount", point)
                    self.assert_ended(point)
                finally:
                    clear_mount(point)
                    shutil.rmtree(self.dir / "odd")

    def test_mount_point_through_a_symbolic_link(self):
        os.symlink(self.mnt, self.dir / "link")
        try:
            zrfs("mount", self.store, self.dir / "link")
            self.assert_serves()
            zrfs("umount", self.dir / "link")
            wait_until(lambda: not is_mounted(self.mnt), "the mount is gone")
        finally:
            while is_mounted(self.mnt):
                run("umount", "-l", self.mnt, check=0)


if __name__ == "__main__":
    unittest.main()
