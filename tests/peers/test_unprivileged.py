"""Users other than root: fusermount3 does the mounting. What they are told where it can't, and whose mounts they may touch.

What a machine lacks is taken away in a mount namespace of the command's own; the machine stays as it is.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import unittest

from support import (
    NOBODY, as_nobody, clear_mount, daemons, is_mounted, mounts, run, wait_until, zrfs,
)
from test_mount_life import CONTENTS, ODD_NAMES, Life

OTHER = 65533
CLONE_NEWNS, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 0x1000, 0x4000, 0x40000
FUSERMOUNT = "/usr/bin/fusermount3"
LIBC = ctypes.CDLL(None, use_errno=True)


def _mount(source, target, kind, flags):
    source, target, kind = (None if a is None else os.fsencode(a) for a in (source, target, kind))
    if LIBC.mount(source, target, kind, flags, None):
        raise OSError(ctypes.get_errno(), "mount", target)


class Unprivileged(Life):
    """A mount of a user's own, into which nobody else may look, root included."""

    def setUp(self):
        super().setUp()
        self.program = self.open_to_nobody(self.store)

    def nobody(self, *args, check=0, **kwargs):
        return run(*as_nobody(*args), check=check, cwd="/", **kwargs)

    def mount_fails(self, *words, options=(), **kwargs):
        done = self.nobody(self.program, "mount", self.store, self.mnt, *options, check=None, **kwargs)
        self.assert_no_mount(done, *words)

    def assert_nobody_reads(self, point):
        for i, content in enumerate(CONTENTS):
            self.assertTrue(self.nobody("cat", os.path.join(os.fsencode(point), b"records/%08d.bin" % i)).stdout == content)

    def kill_daemon(self):
        os.kill(daemons(self.mnt)[0], signal.SIGKILL)
        wait_until(lambda: not daemons(self.mnt), "the daemon is gone")


class OfTheirOwn(Unprivileged):
    def test_mount_read_unmount(self):
        for name, end in (
            ("zrfs umount", [self.program, "umount", self.mnt]),
            ("zrfs umount --lazy", [self.program, "umount", "--lazy", self.mnt]),
            ("fusermount3", ["fusermount3", "-u", self.mnt]),
            ("SIGTERM", None),
            ("SIGINT", None),
        ):
            with self.subTest(end=name):
                try:
                    self.nobody(self.program, "mount", self.store, self.mnt)
                    self.assert_nobody_reads(self.mnt)
                    self.assertEqual([k for w, k, _ in mounts() if w == os.fsencode(self.mnt)], [b"fuse.zrfs"])
                    if end:
                        self.nobody(*end)
                    else:
                        os.kill(daemons(self.mnt)[0], getattr(signal, name))
                    self.assert_ended()
                finally:
                    clear_mount(self.mnt)

    def test_odd_names(self):
        for name in ODD_NAMES:
            with self.subTest(name=name):
                store = os.path.join(os.fsencode(self.dir), name)
                point = os.path.join(os.fsencode(self.dir), b"m" + name)
                os.rename(self.store, store)
                os.mkdir(point)
                os.chown(point, NOBODY, NOBODY)
                try:
                    self.nobody(self.program, "mount", store, point)
                    self.assert_nobody_reads(point)
                    self.nobody(self.program, "umount", point)
                    self.assert_ended(point)
                finally:
                    clear_mount(point)
                    os.rename(store, self.store)
                    os.rmdir(point)

    def test_killed_daemon_is_taken_over(self):
        try:
            self.nobody(self.program, "mount", self.store, self.mnt)
            self.kill_daemon()
            self.nobody(self.program, "mount", self.store, self.mnt)
            self.assert_nobody_reads(self.mnt)
            # PATH leads into the mount itself, and into what is no folder.
            path = {"PATH": f"{self.mnt}/records:{self.program}:/usr/bin"}
            self.nobody(self.program, "umount", self.mnt, env=path)
            self.assert_ended()
        finally:
            clear_mount(self.mnt)

    def test_one_in_use_names_who_uses_it(self):
        try:
            self.nobody(self.program, "mount", self.store, self.mnt)
            with subprocess.Popen(as_nobody("sh", "-c", f"cd '{self.mnt}' && echo && exec sleep 60"), stdout=subprocess.PIPE) as user:
                try:
                    user.stdout.readline()
                    done = self.nobody(self.program, "umount", self.mnt, check=None)
                    self.assert_clear(done, str(self.mnt), f"process {user.pid} (", "--lazy")
                    self.nobody(self.program, "umount", "--lazy", self.mnt)
                    self.assertFalse(is_mounted(self.mnt))
                finally:
                    user.kill()
            self.assert_ended()
        finally:
            clear_mount(self.mnt)

    def test_in_a_user_namespace_mount_serves_without_fusermount(self):
        script = (
            'mount --bind /dev/null /usr/bin/fusermount3 && "$0" mount "$1" "$2" && cat "$2/records/00000001.bin" && "$0" umount "$2" '
            '&& ! grep -qF " $2 " /proc/self/mountinfo'
        )
        done = self.nobody("unshare", "-Urm", "--pid", "--fork", "--kill-child", "sh", "-c", script, self.program, self.store, self.mnt)
        self.assertTrue(done.stdout.endswith(CONTENTS[1]), done)


class OfOthers(Unprivileged):
    def test_a_mount_of_root_stays(self):
        with self.mount(self.store):
            for lazy in ((), ("--lazy",)):
                done = self.nobody(self.program, "umount", *lazy, self.mnt, check=None)
                self.assert_clear(done, str(self.mnt), "root has mounted it")
            done = self.nobody(self.program, "mount", self.store, self.mnt, check=None)
            self.assert_clear(done, str(self.mnt), "root has mounted something there")
            self.assert_serves()

    def test_a_mount_of_another_user_stays(self):
        try:
            self.nobody(self.program, "mount", self.store, self.mnt)
            other = run(
                "setpriv", f"--reuid={OTHER}", f"--regid={OTHER}", "--clear-groups", self.program, "umount", self.mnt, cwd="/"
            )
            self.assert_clear(other, str(self.mnt), f"user {NOBODY} has mounted it")
            # Root may not look into it, but take it away.
            self.assert_clear(zrfs("mount", self.store, self.mnt, check=None), f"user {NOBODY} has mounted something there")
            self.assert_nobody_reads(self.mnt)
            zrfs("umount", self.mnt)
            self.assert_ended()
        finally:
            clear_mount(self.mnt)

    def test_a_dead_mount_of_root_is_not_taken_over(self):
        with self.mount(self.store, "-o", "allow_other"):
            self.kill_daemon()
            done = self.nobody(self.program, "mount", self.store, self.mnt, check=None)
            self.assert_clear(done, str(self.mnt), "dead", "root has mounted it")
            zrfs("umount", self.mnt)


class Refused(Unprivileged):
    """One line says what is missing, and what to do."""

    def without(self, *binds, dev=None):
        """Run before a command: as nobody in a mount namespace where `binds` lie over other files; /dev holds `dev`."""
        def prepare():
            if LIBC.unshare(CLONE_NEWNS):
                raise OSError(ctypes.get_errno(), "unshare")
            _mount(None, "/", None, MS_REC | MS_PRIVATE)
            for source, target in binds:
                _mount(source, target, None, MS_BIND)
            if dev is not None:
                os.umask(0)
                _mount("tmpfs", "/dev", "tmpfs", 0)
                for name, mode, numbers in dev:
                    os.mknod(f"/dev/{name}", mode | 0o020000, os.makedev(*numbers))
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        return prepare

    def assert_refused(self, prepare, *words, options=()):
        args = [self.program, "mount", self.store, self.mnt, *options]
        done = subprocess.run(args, capture_output=True, stdin=subprocess.DEVNULL, cwd="/", preexec_fn=prepare, timeout=30)
        self.assert_no_mount(done, *words)

    def file(self, name, content=b"", mode=0o644):
        path = self.dir / name
        path.write_bytes(content)
        path.chmod(mode)
        return path

    def test_fuse3_is_missing(self):
        programs = self.dir / "bin"
        programs.mkdir()
        self.assert_refused(self.without((programs, "/usr/bin")), "fusermount3 was not found", "install the package fuse3")

    def test_fusermount3_may_not_be_run(self):
        # As where only members of a group may.
        hidden = self.file("hidden", mode=0o600)
        self.assert_refused(self.without((hidden, FUSERMOUNT)), FUSERMOUNT, "ask root to let you run it")

    def test_fusermount3_is_not_setuid(self):
        plain = self.dir / "plain"
        shutil.copyfile(FUSERMOUNT, plain)
        plain.chmod(0o755)
        self.assert_refused(self.without((plain, FUSERMOUNT)), str(self.mnt), "setuid root")

    def test_no_new_privileges(self):
        done = run(*as_nobody("--no-new-privs", self.program, "mount", self.store, self.mnt), cwd="/")
        self.assert_no_mount(done, str(self.mnt), "gain privileges")

    def test_dev_fuse(self):
        null = ("null", 0o666, (1, 3))
        self.assert_refused(self.without(dev=[null]), "device not found", "modprobe fuse")
        closed = self.without(dev=[null, ("fuse", 0o600, (10, 229))])
        self.assert_refused(closed, "/dev/fuse", "chmod 666 /dev/fuse")

    def test_other_users_want_a_line_of_fuse_conf(self):
        bare = self.without((self.file("fuse.conf"), "/etc/fuse.conf"))
        for option in ("allow_other", "allow_root"):
            with self.subTest(option=option):
                self.assert_refused(bare, "user_allow_other", "ask root", options=("-o", option))

    def test_too_many_mounts(self):
        full = self.without((self.file("fuse.conf", b"mount_max = 0\n"), "/etc/fuse.conf"))
        self.assert_refused(full, "too many FUSE filesystems", "larger mount_max")

    def test_mount_point_of_somebody_else(self):
        os.chown(self.mnt, 0, 0)
        self.mount_fails(str(self.mnt), "folder that you may write to")
        self.mnt.chmod(0o1777)
        self.mount_fails(str(self.mnt), "folder of your own")

    def test_mount_point_that_may_not_be_reached(self):
        closed = self.dir / "closed"
        closed.mkdir(mode=0o700)
        self.assert_clear(self.nobody(self.program, "mount", self.store, closed / "mnt", check=None), "closed/mnt", "denied")

    def test_store_that_may_not_be_read(self):
        os.chmod(self.store, 0o700)
        self.mount_fails("store.zr", "denied")

    def test_nothing_of_zrfs_is_there(self):
        self.assert_clear(self.nobody(self.program, "umount", self.mnt, check=None), "no zrfs mount", str(self.mnt))
        run("mount", "-t", "tmpfs", "tmpfs", self.mnt, check=0)
        try:
            self.assert_clear(self.nobody(self.program, "umount", self.mnt, check=None), "tmpfs", str(self.mnt))
        finally:
            run("umount", self.mnt, check=0)

    def test_root_that_may_not_mount(self):
        # As in a container without the capability.
        done = run("setpriv", "--bounding-set=-sys_admin", self.program, "mount", self.store, self.mnt, cwd="/")
        self.assert_no_mount(done, "container", "SYS_ADMIN")


if __name__ == "__main__":
    unittest.main()
