"""mount(8), umount(8), findmnt and fstab on a store, by mount.zrfs where they look for it.

The programs, an /etc/fstab and the links in /sbin are put into a mount namespace of the tests' own: the machine stays as it is.
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import tempfile
import unittest

from support import (
    NOBODY, ZRFS, Case, as_nobody, clear_mount, daemons, import_folder, is_mounted, make_tree, mounts, open_dev_fuse, own_mounts, run, text,
    wait_until, zrfs,
)

CONTENTS = [b"zero", b"one", text(100_000)]
HELPERS = ["mount.zrfs", "mount.fuse.zrfs"]
installed = contextlib.ExitStack()


def setUpModule():
    if os.geteuid():
        return
    own_mounts()
    open_dev_fuse()
    try:
        install()
    except BaseException:
        installed.close()
        raise


def tearDownModule():
    installed.close()


def install():
    """The programs in a folder that everybody reaches, links to the helper in /sbin, a file of ours over /etc/fstab."""
    global home, fstab, helper
    home = pathlib.Path(tempfile.mkdtemp(prefix="zrfs-peer-"))
    installed.callback(shutil.rmtree, home)
    run("mount", "-t", "tmpfs", "tmpfs", home, check=0)
    installed.callback(run, "umount", "-l", home, check=0)
    home.chmod(0o755)
    helper = home / "mount-zrfs"
    shutil.copy(ZRFS, home / "zrfs")
    shutil.copy(pathlib.Path(ZRFS).with_name("mount-zrfs"), helper)
    sbin = os.path.realpath("/sbin")
    for name in ("upper", "work"):
        (home / name).mkdir()
    for name in HELPERS:
        (home / "upper" / name).symlink_to(helper)
    layers = f"lowerdir={sbin},upperdir={home}/upper,workdir={home}/work"
    run("mount", "-t", "overlay", "overlay", "-o", layers, sbin, check=0)
    installed.callback(run, "umount", "-l", sbin, check=0)
    fstab = home / "fstab"
    fstab.write_text("")
    run("mount", "--bind", fstab, "/etc/fstab", check=0)
    installed.callback(run, "umount", "-l", "/etc/fstab", check=0)


class Mount8(Case):
    def setUp(self):
        super().setUp()
        self.need_root()
        self.dir.chmod(0o755)
        self.store = import_folder(self.dir, "store.zr", CONTENTS)
        run("chmod", "-R", "a+rX", self.store, check=0)
        self.mnt.mkdir()
        self.addCleanup(fstab.write_text, "")

    def mounts(self, *args, status=0, **kwargs):
        """Calls mount(8); a mount that succeeds says nothing."""
        done = run("mount", *args, timeout=30, **kwargs)
        self.assertEqual(done.returncode, status, done)
        if status == 0:
            self.assertEqual((done.stdout, done.stderr), (b"", b""))
        return done

    def refuses(self, status, *args, words=()):
        """Calls mount(8), which shows our one line and our status; nothing is mounted then."""
        before = mounts()
        done = run("mount", *args, timeout=30)
        self.assert_clear(done, *words, status=[status])
        self.assertEqual(mounts(), before)
        self.assertEqual(done.stdout, b"")

    def assert_serves(self, *prefix):
        for i, content in enumerate(CONTENTS):
            self.assertTrue(run(*prefix, "cat", self.mnt / f"records/{i:08}.bin", check=0).stdout == content)

    def unmount(self, *prefix):
        run(*prefix, "umount", self.mnt, check=0)
        self.assert_ended()

    def assert_ended(self):
        wait_until(lambda: not daemons(self.mnt), "the daemon ended")
        self.assertFalse(is_mounted(self.mnt))

    def found(self):
        done = run("findmnt", "--json", "--mountpoint", self.mnt, check=0)
        (entry,) = json.loads(done.stdout)["filesystems"]
        return entry

    def write_fstab(self, options, store=None, fstype="zrfs", path=None):
        def escaped(path):
            return str(path).replace(" ", "\\040")
        line = f"{escaped(store or self.store)} {escaped(self.mnt)} {fstype} {options} 0 0\n"
        (path or fstab).write_text(line)


class Commands(Mount8):
    def test_both_types_mount_and_unmount(self):
        for fstype in ["zrfs", "fuse.zrfs"]:
            self.mounts("-t", fstype, self.store, self.mnt)
            self.assert_serves()
            entry = self.found()
            self.assertEqual(
                (entry["target"], entry["source"], entry["fstype"]), (str(self.mnt), str(self.store), "fuse.zrfs"))
            self.assertLessEqual({"rw", "nosuid", "nodev"}, set(entry["options"].split(",")))
            self.unmount()

    def test_read_only_and_what_mount_passes_on(self):
        for args in [["-r"], ["-n", "-r"], ["-o", "rw,async,relatime,dev,suid,lazytime,sync,ro"],
                     ["-o", 'ro,noexec,nofail,_netdev,user=joe,x-a,X-b=c,comment="d,e",context="u:r:t:s0:c1,c2"']]:
            self.mounts("-t", "zrfs", *args, self.store, self.mnt)
            self.assertIn("ro", self.found()["options"].split(","))
            self.unmount()

    def test_links_that_are_not_followed(self):
        source, store = self.dir / "links", self.dir / "links.zr"
        make_tree(source, {"a": b"behind"})
        (source / "link").symlink_to("a")
        zrfs("import", source, store, "--links", "keep")
        self.mounts("-t", "zrfs", "-o", "nosymfollow", store, self.mnt)
        self.assertEqual((self.mnt / "tree/a").read_bytes(), b"behind")
        self.assert_errno((errno.ELOOP,), os.stat, self.mnt / "tree/link")
        self.unmount()

    def test_nofail(self):
        self.mounts("-t", "zrfs", "-o", "nofail", self.dir / "absent.zr", self.mnt)
        self.assertFalse(is_mounted(self.mnt))
        # What is there and is no store is a failure all the same.
        self.refuses(32, "-t", "zrfs", "-o", "nofail", self.dir, self.mnt, words=["meta.zr"])

    def test_relative_paths_and_links(self):
        (self.dir / "link").symlink_to("store.zr")
        self.mounts("-t", "zrfs", "link", "mnt", cwd=self.dir)
        self.assertEqual(self.found()["source"], str(self.store))
        self.unmount()

    def test_verbose_names_the_command(self):
        done = run("mount", "-v", "-t", "zrfs", self.store, self.mnt, "-o", "seed=7", check=0)
        self.assertIn(f'runs {home}/zrfs "mount" "-o" "rw,seed=7" "--" "{self.store}" "{self.mnt}"'.encode(), done.stdout)
        self.assertIn(b"3 records", done.stdout)
        self.unmount()

    def test_fake_checks_and_mounts_nothing(self):
        self.mounts("--fake", "-t", "zrfs", self.store, self.mnt)
        self.assert_ended()
        done = run("mount", "-fv", "-t", "zrfs", self.store, self.mnt, check=0)
        self.assertIn(b"would run", done.stdout)
        (self.dir / "file").write_bytes(b"")
        (self.store / "inside").mkdir()
        labels = import_folder(self.dir, "few.zr", CONTENTS[:2])
        for status, words, args in [
            (32, ["absent.zr"], [self.dir / "absent.zr", self.mnt]),
            (32, ["absent"], [self.store, self.dir / "absent"]),
            (32, ["not a folder"], [self.store, self.dir / "file"]),
            (32, ["lies in the store"], [self.store, self.store / "inside"]),
            (32, ["few.zr"], [self.store, self.mnt, "-o", f"labels={labels}"]),
            (1, ["wibble"], [self.store, self.mnt, "-o", "wibble"]),
        ]:
            self.refuses(status, "--fake", "-t", "zrfs", *args, words=words)
        self.mounts("-t", "zrfs", self.store, self.mnt)
        self.refuses(32, "--fake", "-t", "zrfs", self.store, self.mnt, words=["mounted", "already"])
        self.unmount()

    def test_remount_is_answered(self):
        self.mounts("-t", "zrfs", self.store, self.mnt)
        for options in ["remount,ro", "remount", "remount,seed=7"]:
            self.refuses(32, "-o", options, self.mnt, words=["fixed while it is mounted", "unmount it", self.mnt])
        self.assertIn("rw", self.found()["options"].split(","))
        self.assert_serves()
        self.unmount()

    def test_failures_have_their_status(self):
        for status, words, args in [
            (1, ["bach_size=3", "batch_size"], ["-o", "bach_size=3"]),
            (1, ["seed=x", self.mnt], ["-o", "seed=x"]),
            (1, ["dataonly", "idle"], ["-o", "dataonly,idle=5"]),
        ]:
            self.refuses(status, "-t", "zrfs", *args, self.store, self.mnt, words=words)
        self.refuses(32, "-t", "zrfs", self.dir / "absent.zr", self.mnt, words=["absent.zr"])
        self.refuses(32, "-t", "zrfs", self.store, self.dir / "absent", words=["absent", "mkdir"])
        for program, words in [("/nowhere/zrfs", ["/nowhere/zrfs", "not found"]), ("zrfs", ["absolute"]), (home, ["not found"])]:
            done = run("mount", "-t", "zrfs", self.store, self.mnt, env={**os.environ, "ZRFS_PROGRAM": str(program)})
            self.assert_clear(done, *words, status=[2])
        script = self.dir / "script"
        for body, status in [("exit 0", 0), ("exit 1", 32), ("exit 2", 1), ("exit 7", 32), ("kill -9 $$", 32)]:
            script.write_text(f"#!/bin/sh\n{body}\n")
            script.chmod(0o755)
            done = run(helper, self.store, self.mnt, env={"ZRFS_PROGRAM": str(script)})
            self.assertEqual(done.returncode, status, body)
            self.assertEqual(b"signal 9" in done.stderr, "kill" in body)

    def test_sloppy(self):
        done = run("mount", "-s", "-v", "-t", "zrfs", self.store, self.mnt, "-o", "wibble,seed=7,wobble=1", check=0)
        self.assertIn(b"left out: wibble, wobble=1", done.stdout)
        self.assertEqual(json.loads((self.mnt / "stats").read_bytes().rstrip(b"\0 \n"))["seed"], 7)
        self.unmount()
        self.refuses(1, "-s", "-t", "zrfs", self.store, self.mnt, "-o", "seed=x", words=["seed=x"])

    def test_no_environment_no_streams_no_shell(self):
        for call in ['env -i "$0" "$1" "$2" -o rw', 'env -i "$0" "$1" "$2" <&- >&- 2>&-', 'exec env --ignore-signal=CHLD "$0" "$1" "$2"',
                     'cd / && env -i /sbin/mount.zrfs "$1" "$2" -o ro -t zrfs -n']:
            run("sh", "-c", call, helper, self.store, self.mnt, check=0, timeout=30)
            self.assert_serves()
            self.unmount()
        self.assertEqual(run("sh", "-c", '"$0" "$1" "$2" -o wibble 2>/dev/full', helper, self.store, self.mnt).returncode, 1)

    def test_the_call_of_mount_fuse3(self):
        self.mounts("-t", "fuse", f"mount.zrfs#{self.store}", self.mnt, "-o", "ro,nofail")
        self.assert_serves()
        self.unmount()


class Fstab(Mount8):
    def test_all_twice(self):
        table = self.dir / "fstab"
        self.write_fstab("ro,nofail,_netdev,x-systemd.automount,seed=7", path=table)
        for _ in range(2):
            done = run("mount", "-a", "-T", table, timeout=30, check=0)
            self.assertEqual((done.stdout, done.stderr), (b"", b""))
            self.assertEqual(sum(where == os.fsencode(self.mnt) for where, _, _ in mounts()), 1)
            self.assertEqual(len(daemons(self.mnt)), 1)
        # Outside of fstab as well.
        self.refuses(32, "-t", "zrfs", self.store, self.mnt, words=["mounted", "already"])
        self.unmount()

    def test_by_mount_point_with_odd_names(self):
        labels = import_folder(self.dir, 'l a,b.zr', CONTENTS)
        store = self.dir / "a store, ro.zr"
        os.rename(self.store, store)
        os.rmdir(self.mnt)
        self.mnt = self.dir / "m n,t"
        self.mnt.mkdir()
        self.write_fstab(f'noauto,labels="{labels}",batch_size=2'.replace(" ", "\\040"), store=store, fstype="fuse.zrfs")
        run("mount", "-a", check=0)
        self.assertFalse(is_mounted(self.mnt))
        self.mounts(self.mnt)
        self.assert_serves()
        self.assertEqual(self.found()["source"], str(store))
        self.assertGreater((self.mnt / "batches/0.tar").stat().st_size, 0)
        self.unmount()

    def test_user_mounts_and_unmounts(self):
        os.chown(self.mnt, NOBODY, NOBODY)
        self.write_fstab("user,noauto,ro")
        done = run(*as_nobody("mount", self.mnt), check=0)
        self.assertEqual((done.stdout, done.stderr), (b"", b""))
        self.assert_serves(*as_nobody())
        self.assertLessEqual({"noexec", "nosuid", "nodev", f"user_id={NOBODY}"}, set(self.found()["options"].split(",")))
        self.unmount(*as_nobody())


class Stacked(Mount8):
    def test_over_another_file_system(self):
        run("mount", "-t", "tmpfs", "tmpfs", self.mnt, check=0)
        (self.mnt / "below").write_bytes(b"below")
        self.mounts("-t", "zrfs", self.store, self.mnt)
        self.assert_serves()
        run("umount", self.mnt, check=0)
        wait_until(lambda: not daemons(self.mnt), "the daemon ended")
        self.assertEqual((self.mnt / "below").read_bytes(), b"below")
        run("umount", self.mnt, check=0)

    def test_over_autofs(self):
        # An automounter in small: the kernel says who came, we mount in the process group that it takes for the automounter's.
        with contextlib.ExitStack() as stack:
            self.addCleanup(clear_mount, self.mnt)
            wants, kernel = os.pipe()
            stack.callback(os.close, wants)
            options = f"fd={kernel},pgrp={os.getpgrp()},minproto=5,maxproto=5,direct".encode()
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.mount(b"test", os.fsencode(self.mnt), b"autofs", 0, options):
                raise OSError(ctypes.get_errno(), "mounting autofs")
            os.close(kernel)
            control = os.open(self.mnt, os.O_RDONLY | os.O_DIRECTORY)
            stack.callback(os.close, control)
            reader = subprocess.Popen(["cat", self.mnt / "records/00000001.bin"], stdout=subprocess.PIPE, start_new_session=True)
            stack.callback(reader.kill)
            token = struct.unpack_from("=iiI", os.read(wants, 304))[2]
            ready, fail = 0x9360, 0x9361
            try:
                self.mounts("-t", "zrfs", self.store, self.mnt)
            except BaseException:
                fcntl.ioctl(control, fail, token)
                raise
            fcntl.ioctl(control, ready, token)
            self.assertEqual(reader.communicate(timeout=20)[0], b"one")
            run("umount", self.mnt, check=0)
            wait_until(lambda: not daemons(self.mnt), "the daemon ended")
        run("umount", self.mnt, check=0)


class Namespace(Mount8):
    def setUp(self):
        super().setUp()
        self.other = subprocess.Popen(["unshare", "--mount", "--propagation", "private", "cat"],
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(self.end_other)
        self.other.stdin.write(b"x")
        self.other.stdin.flush()
        self.other.stdout.read(1)

    def end_other(self):
        self.other.stdin.close()
        self.other.stdout.close()
        self.other.wait()
        # What a test that failed has left there.
        for pid in daemons(self.mnt):
            os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not daemons(self.mnt), "the daemon ended")

    def test_the_mount_is_in_the_other_namespace(self):
        inside = ["nsenter", "--mount", f"--target={self.other.pid}"]
        for namespace in [self.other.pid, f"/proc/{self.other.pid}/ns/mnt"]:
            self.mounts("--namespace", str(namespace), "-t", "zrfs", self.store, self.mnt)
            self.assertFalse(is_mounted(self.mnt))
            self.assertEqual(os.listdir(self.mnt), [])
            self.assert_serves(*inside)
            self.unmount(*inside)
        self.mounts("--namespace", str(self.other.pid), "--fake", "-t", "zrfs", self.store, self.mnt)
        run(*inside, "mount", "-t", "tmpfs", "tmpfs", self.store, check=0)
        self.refuses(32, "--namespace", str(self.other.pid), "--fake", "-t", "zrfs", self.store, self.mnt, words=[self.store])

    def test_what_is_no_namespace(self):
        for namespace in ["/nowhere", "/etc/passwd", f"/proc/{self.other.pid}/ns/net"]:
            done = run(helper, self.store, self.mnt, "-N", namespace)
            self.assert_clear(done, "namespace", namespace, status=[2])
        self.assertFalse(is_mounted(self.mnt))


if __name__ == "__main__":
    unittest.main()
