"""What the peer tests share: running commands, mounting, private folders, sources, stores written by hand.

The tests know zrfs only from outside: its commands, its mount, and the bytes of a store.
"""

import atexit
import contextlib
import ctypes
import itertools
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ZRFS = os.path.abspath(os.environ.get("ZRFS", ROOT / "target/release/zrfs"))

KIB, MIB = 1 << 10, 1 << 20
HEADER = struct.Struct("<4sHHII")  # magic, version, tail_chunk, tail_offset, length
ENTRY = struct.Struct("<IIIHBB")  # offset, phys_length, logic_length, chunk_id, compress, reserved
META_SIZE = 16 + (1 << 24) * 16
NOBODY = 65534


# Commands

def run(*args, check=None, timeout=120, **kwargs):
    """Run a command, give back its CompletedProcess with bytes; `check` is the exit status it must have."""
    args = [os.fsencode(a) if isinstance(a, (os.PathLike, str)) else a for a in args]
    kwargs.setdefault("stdin", None if "input" in kwargs else subprocess.DEVNULL)
    if "input" in kwargs:
        kwargs.pop("stdin")
    kwargs.setdefault("stdout", subprocess.PIPE)
    done = subprocess.run(args, stderr=subprocess.PIPE, timeout=timeout, **kwargs)
    if check is not None and done.returncode != check:
        raise AssertionError(
            f"{b' '.join(args)!r}: exit status {done.returncode}, {check} expected\n"
            f"stdout: {(done.stdout or b'')[-2000:]!r}\nstderr: {done.stderr[-2000:]!r}"
        )
    return done


def zrfs(*args, check=0, **kwargs):
    return run(ZRFS, *args, check=check, **kwargs)


def as_nobody(*args):
    """The command line that runs `args` without any privilege."""
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *args]


def wait_until(condition, what, seconds=10.0):
    """Poll until `condition()` is true; gives back its value."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"after {seconds} s still not so: {what}")
        time.sleep(0.005)


# Mounts and processes

def _unescape(field):
    """mountinfo writes blank, tab, newline and backslash as three octal digits."""
    out, i = bytearray(), 0
    while i < len(field):
        if field[i:i + 1] == b"\\" and field[i + 1:i + 4].isdigit():
            out.append(int(field[i + 1:i + 4], 8))
            i += 4
        else:
            out.append(field[i])
            i += 1
    return bytes(out)


def mounts():
    """(mount point, type, source) of every mount, as bytes."""
    found = []
    with open("/proc/self/mountinfo", "rb") as f:
        for line in f:
            fields = line.rstrip(b"\n").split(b" ")
            dash = fields.index(b"-", 6)
            found.append((_unescape(fields[4]), fields[dash + 1], _unescape(fields[dash + 2])))
    return found


def is_mounted(path):
    return any(where == os.fsencode(path) for where, _, _ in mounts())


def stop(pid):
    """Stop a process, and wait until each of its threads has: one that still runs may answer what is asked meanwhile."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: set(_states(pid)) <= {"T", "Z"}, f"process {pid} is stopped")


def _states(pid):
    for stat in pathlib.Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # A thread may have ended.
            # The name before the state may hold anything, brackets too.
            yield stat.read_text().rpartition(")")[2].split()[0]


def daemons(mountpoint=None):
    """Process ids of live zrfs processes, all of them or those that serve `mountpoint`.

    A zombie has no exe link, so one that nobody has reaped yet counts as gone.
    """
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            exe = os.readlink(f"/proc/{entry}/exe")
            with open(f"/proc/{entry}/cmdline", "rb") as f:
                args = f.read().split(b"\0")
        except OSError:
            continue
        if os.path.basename(exe).split(" ")[0] != "zrfs":
            continue
        if mountpoint is None or os.fsencode(mountpoint) in args:
            found.append(int(entry))
    return found


def clear_mount(mountpoint):
    """Whatever a failed test left at a mount point goes: the mounts, then the daemons."""
    while is_mounted(mountpoint):
        if run("umount", mountpoint).returncode and run("umount", "-l", mountpoint).returncode:
            if run("fusermount3", "-u", "-z", mountpoint).returncode:
                break
    with contextlib.suppress(AssertionError):
        wait_until(lambda: not daemons(mountpoint), "the daemon ended", 5)
    for pid in daemons(mountpoint):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class Mount:
    """A mounted store. Leaving the block unmounts and waits until the daemon is gone."""

    def __init__(self, store, mountpoint, *options):
        self.store, self.options = store, options
        self.point = pathlib.Path(mountpoint)
        self.records = self.point / "records"

    def __enter__(self):
        self.point.mkdir(exist_ok=True)
        try:
            self.done = zrfs("mount", self.store, self.point, *self.options, timeout=30)
            self.pid = self.the_pid()
        except BaseException:
            clear_mount(self.point)
            raise
        return self

    def the_pid(self):
        found = daemons(self.point)
        if len(found) != 1:
            raise AssertionError(f"one daemon expected for {self.point}, found {found}")
        return found[0]

    def alive(self):
        return self.pid in daemons(self.point)

    def names(self):
        return sorted(os.listdir(self.records))

    def path(self, index, ext="bin"):
        return self.records / f"{index:08}.{ext}"

    def read(self, index, ext="bin"):
        return self.path(index, ext).read_bytes()

    def __exit__(self, kind, *_):
        try:
            # A mount that is gone already is the test's own business.
            if is_mounted(self.point):
                zrfs("umount", self.point, timeout=30)
                wait_until(lambda: not is_mounted(self.point), f"{self.point} is unmounted")
                wait_until(lambda: not daemons(self.point), f"the daemon of {self.point} ended")
        except AssertionError:
            if kind is None:
                raise
        finally:
            clear_mount(self.point)


def own_mounts():
    """A mount namespace for this process and its children: what is mounted from now on, nobody else sees."""
    clone_newns = 0x00020000
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(clone_newns):
        raise OSError(ctypes.get_errno(), "unshare")
    run("mount", "--make-rprivate", "/", check=0)


def open_dev_fuse():
    """Where /dev/fuse is root's alone (no udev has set its usual mode, 0666), give this process and its children one that
    everybody may open, in a mount namespace of their own: fusermount3 opens it as the user. The machine stays as it is.
    """
    if os.stat("/dev/fuse").st_mode & 0o006 == 0o006:
        return
    say("/dev/fuse is root's alone: the unprivileged tests go into a mount namespace with one of mode 0666")
    own_mounts()
    folder = tempfile.mkdtemp(prefix="zrfs-peer-")
    run("mount", "-t", "tmpfs", "tmpfs", folder, check=0)
    device = os.path.join(folder, "fuse")
    os.mknod(device, 0o020666, os.stat("/dev/fuse").st_rdev)
    os.chmod(device, 0o666)
    run("mount", "--bind", device, "/dev/fuse", check=0)
    run("umount", "-l", folder, check=0)
    os.rmdir(folder)


# Test cases

def _stopped(number, _):
    # All of a job is stopped at ^C, and then told to end: that must not break into the clean-up.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt(signal.Signals(number).name)


# A run that is stopped unwinds as one that is interrupted at the keyboard, so that its mounts go.
signal.signal(signal.SIGTERM, _stopped)
# A shell starts background jobs with SIGINT ignored, and what we start would inherit that.
signal.signal(signal.SIGINT, _stopped)


class Case(unittest.TestCase):
    """A test with a folder of its own, which may hold no mount when the test ends."""

    def setUp(self):
        self.dir = pathlib.Path(os.path.realpath(tempfile.mkdtemp(prefix="zrfs-peer-")))
        self.addCleanup(self._clean)
        # unittest runs no clean-up after an interruption.
        atexit.register(shutil.rmtree, self.dir, ignore_errors=True)
        self.mnt = self.dir / "mnt"

    def _clean(self):
        under = os.fsencode(self.dir) + b"/"
        left = [where for where, _, _ in mounts() if where.startswith(under)]
        for where in reversed(left):
            clear_mount(where)
        shutil.rmtree(self.dir, ignore_errors=True)
        atexit.unregister(shutil.rmtree)
        if left:
            raise AssertionError(f"the test left mounts: {left}")
        if self.dir.exists():
            raise AssertionError(f"the test left files that cannot be removed: {self.dir}")

    def mount(self, store, *options):
        return Mount(store, self.mnt, *options)

    def open_to_nobody(self, store, mode=0o755):
        """Lets NOBODY mount `store` at `self.mnt`, by a copy of the program that it can reach wherever the repository lies; gives
        back its path. `mode`: the folder's.
        """
        self.need_root()
        open_dev_fuse()
        program = self.dir / "zrfs"
        shutil.copy(ZRFS, program)
        self.dir.chmod(mode)
        run("chmod", "-R", "a+rX", store, check=0)
        if self.mnt.is_dir():
            os.chown(self.mnt, NOBODY, NOBODY)
        return program

    def need_root(self):
        if os.geteuid() == 0:
            return
        if os.environ.get("ZRFS_ALLOW_NO_ROOT") == "1":
            self.skipTest("not root, and ZRFS_ALLOW_NO_ROOT=1 allows it")
        self.fail("this test needs root; ZRFS_ALLOW_NO_ROOT=1 skips it")

    def assert_clear(self, done, *words, status=(1,)):
        """A failure as users should meet it: exit status, one line on stderr, which holds all `words`."""
        self.assertIn(done.returncode, status, done.stderr)
        self.assertNotIn(b"panicked", done.stderr)
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), 1, f"one line expected on stderr: {done.stderr!r}")
        self.assertGreater(len(lines[0].strip()), 10, lines)
        for word in words:
            word = os.fsencode(word)
            self.assertIn(word.lower(), lines[0].lower())

    def assert_errno(self, numbers, call, *args):
        with self.assertRaises(OSError) as caught:
            result = call(*args)
            if isinstance(result, int) and call is os.open:
                os.close(result)
        self.assertIn(caught.exception.errno, numbers, caught.exception)


def say(text):
    """A figure for whoever reads the log."""
    print(f"    {text}", file=sys.stderr, flush=True)


# Sources

def noise(size, seed):
    """Bytes that do not compress."""
    return random.Random(seed).randbytes(size)


def text(size, seed=0):
    """Bytes that compress well, and differ from place to place."""
    line = "".join(f"line {i} of sample {seed}\n" for i in range(size // 16 + 1))
    return line.encode()[:size]


def make_tree(root, files):
    """Write {relative path: bytes} under `root`."""
    root = os.fsencode(root)
    os.makedirs(root, exist_ok=True)
    for name, content in files.items():
        path = os.path.join(root, os.fsencode(name))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(content)


_calls = itertools.count()


def make_folder(root, contents):
    """Write each of `contents` as a file, named so that record i is contents[i]; no two calls give the same names, which a
    store would refuse."""
    call = next(_calls)
    make_tree(root, {f"{call:06}-{i:06}.bin": content for i, content in enumerate(contents)})


def import_folder(where, name, contents, *options):
    """A store `where`/`name` with these records; gives back its path."""
    source, store = where / f"{name}.source", where / name
    make_folder(source, contents)
    zrfs("import", source, store, *options)
    shutil.rmtree(source)
    return store


def imagefolder_order(root):
    """The files of a folder in the order that torchvision's ImageFolder documents, root files first.

    Classes sorted; in a class the directories of sorted(os.walk(class, followlinks=True)), names sorted within each.
    """
    root = os.fsencode(root)
    entries = list(os.scandir(root))
    order = sorted(e.path for e in entries if e.is_file())
    for name in sorted(e.name for e in entries if e.is_dir()):
        for folder, _, files in sorted(os.walk(os.path.join(root, name), followlinks=True)):
            order += [os.path.join(folder, f) for f in sorted(files)]
    return order


# Stores, seen as bytes

def read_header(store):
    with open(os.path.join(store, "meta.zr"), "rb") as f:
        return HEADER.unpack(f.read(16))


def read_meta(store):
    """(header fields, entries) of a store."""
    with open(os.path.join(store, "meta.zr"), "rb") as f:
        header = HEADER.unpack(f.read(16))
        table = f.read(16 * header[4])
    return header, [ENTRY.unpack_from(table, 16 * i) for i in range(header[4])]


def write_store(store, entries, chunks, version=1):
    """A store by hand: `entries` as tuples, `chunks` as {id: {offset: bytes}}; files are sparse."""
    os.makedirs(store)
    for number, pieces in chunks.items():
        with open(os.path.join(store, f"{number}.zr"), "wb") as f:
            for offset, piece in pieces.items():
                f.seek(offset)
                f.write(piece)
    tail = max(chunks)
    frontier = max(e[0] + e[1] for e in entries if e[3] == tail)
    with open(os.path.join(store, "meta.zr"), "wb") as f:
        f.write(HEADER.pack(b"ZREC", version, tail, frontier, len(entries)))
        f.write(b"".join(ENTRY.pack(*e) for e in entries))
        f.truncate(META_SIZE)


def snapshot(folder):
    """Everything below a folder that reading must not change."""
    seen = {}
    for where, folders, files in os.walk(folder):
        for name in [".", *folders, *files]:
            st = os.lstat(os.path.join(where, name))
            seen[os.path.join(where, name)] = (st.st_ino, st.st_mode, st.st_size, st.st_mtime_ns, st.st_ctime_ns)
    return seen


def copy_store(source, target):
    """A copy that stays sparse."""
    run("cp", "-a", "--sparse=always", source, target, check=0)
    return target
