"""File systems that show the files of a folder: how each image is made, mounted, unmounted."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from sides import ZRFS, Wrong

PLAIN = "plain files"
SQUASHFS = "squashfs"
EROFS = "erofs"
RATARMOUNT = "ratarmount"
FUSE_ZIP = "fuse-zip"
DATAONLY = f"{ZRFS} -o dataonly"
# Where to look for programs: what pip installs stands beside Python.
PATH = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
# The program of the low-level API is the faster one of the package; not each has it.
SQUASHFUSE = "squashfuse_ll" if shutil.which("squashfuse_ll", path=PATH) else "squashfuse"
# How long a daemon may take to end after its unmounting.
PATIENCE = 60


class Unavailable(Exception):
    """A peer, or the data for a case, can't be had here."""


class Kind(NamedTuple):
    """A way to show a folder's files."""

    name: str
    # Programs and where they come from.
    needs: tuple[str, ...] = ()
    package: str = ""
    # Suffix of the image and command that makes it of a folder; without one the folder itself is shown.
    suffix: str = ""
    make: Callable[[str, str], list[str]] | None = None
    # Command that mounts an image.
    mount: Callable[[str, str], list[str]] | None = None
    # Where in the mount the files are.
    inside: str = ""
    root: bool = False


def loop(kind):
    return lambda image, point: ["mount", "-t", kind, "-o", "loop,ro", image, point]


def squash(tree, image):
    return ["mksquashfs", tree, image, "-comp", "gzip", "-noappend", "-quiet", "-no-progress"]


PEERS = [
    Kind(SQUASHFS, ("mksquashfs",), "apt-get install squashfs-tools", ".squashfs", squash, loop("squashfs"), root=True),
    Kind(EROFS, ("mkfs.erofs",), "apt-get install erofs-utils", ".erofs",
         lambda tree, image: ["mkfs.erofs", "--quiet", "-zlz4hc", image, tree], loop("erofs"), root=True),
    Kind(SQUASHFUSE, ("mksquashfs", SQUASHFUSE), "apt-get install squashfs-tools squashfuse", ".squashfs", squash,
         lambda image, point: [SQUASHFUSE, image, point]),
    # Its index lies beside the image.
    Kind(RATARMOUNT, ("tar", "ratarmount"), "pip install ratarmount", ".tar",
         lambda tree, image: ["tar", "cf", image, "-C", tree, "."],
         lambda image, point: ["ratarmount", image, point]),
    Kind(FUSE_ZIP, ("zip", "fuse-zip"), "apt-get install zip fuse-zip", ".zip",
         lambda tree, image: ["sh", "-c", 'cd "$1" && exec zip -q -r "$2" .', "zip", tree, image],
         lambda image, point: ["fuse-zip", "-r", image, point]),
]


def zrfs(program, options="", inside="tree"):
    """zrfs with its defaults, or mounted with other options."""
    chosen = ["-o", options] if options else []
    return Kind(f"{ZRFS} -o {options}" if options else ZRFS, suffix=".zr",
                make=lambda tree, image: [program, "import", tree, image],
                mount=lambda image, point: [program, "mount", image, point, *chosen], inside=inside)


def available(run, names):
    """The peers of these names that this machine has; says of each other one how to get it."""
    found = []
    for kind in (kind for kind in PEERS if kind.name in names):
        missing = [program for program in kind.needs if not shutil.which(program, path=PATH)]
        if missing:
            run.leave_out(kind.name, f"no {', '.join(missing)}: {kind.package}, or benches/peers/set_up.sh")
        elif kind.root and os.geteuid() != 0:
            run.leave_out(kind.name, "only root may mount it")
        else:
            found.append(kind)
    return found


def command(words, log):
    """Runs a command; what it prints goes to a file, as a pipe would stay open for as long as a daemon lives."""
    with open(log, "w+b") as output:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False,
                              env={**os.environ, "PATH": PATH})
        if done.returncode:
            output.seek(0)
            last = output.read().decode(errors="replace").strip().splitlines()[-1:]
            raise Unavailable(f"{' '.join(words[:2])}: {''.join(last) or f'exit status {done.returncode}'}")


def made(run, kind, tree):
    """The image of a folder, made where it is not there yet. Kinds of one suffix share it."""
    if kind.make is None:
        return tree
    image = f"{tree}{kind.suffix}"
    if not os.path.exists(image):
        command(kind.make(tree, image), run.path("make.log"))
    return image


def mountable(run, kinds, tree, probe=None, trial=lambda mount: None):
    """The kinds that can show a folder here: each makes its image and mounts it once, for a trial.

    A peer that can't is left out. zrfs has to be able to.
    """
    able = []
    for kind in kinds:
        try:
            with Mounted(run, kind, made(run, kind, tree), probe) as mount:
                trial(mount)
        except Unavailable as why:
            if kind not in PEERS:
                raise
            run.leave_out(kind.name, why)
        else:
            able.append(kind)
    return able


def remove(tree):
    """A folder and all its images."""
    for suffix in {kind.suffix for kind in PEERS} | {".zr", ".tar.index.sqlite", ""}:
        path = tree + suffix
        if os.path.isdir(path):
            shutil.rmtree(path)
        elif os.path.exists(path):
            os.remove(path)


class Mounted:
    """A mount for as long as a `with` lasts; plain files are there anyhow.

    `where` holds the files. `mount_time` goes from the command to the first byte of the file `probe`, `unmount_time` until
    the mount and its daemon are gone, both in seconds.
    """

    def __init__(self, run, kind, image, probe=None):
        self.kind = kind
        self.image = image
        self.probe = probe
        self.log = run.path("mount.log")
        self.point = run.path("mount")
        self.where = image if kind.mount is None else os.path.join(self.point, kind.inside)
        self.mount_time = self.unmount_time = 0.0

    def __enter__(self):
        if self.kind.mount is None:
            return self
        os.makedirs(self.point, exist_ok=True)
        try:
            begin = time.perf_counter()
            command(self.kind.mount(self.image, self.point), self.log)
            if self.probe is not None:
                self.first_answer()
            self.mount_time = time.perf_counter() - begin
        except BaseException:
            clear(self.point)
            raise
        return self

    def first_answer(self):
        """Some daemons come back before they serve."""
        path = os.path.join(self.where, self.probe)
        end = time.monotonic() + PATIENCE
        while True:
            try:
                with open(path, "rb", buffering=0) as file:
                    file.read(1)
                return
            except OSError as error:
                if time.monotonic() > end:
                    raise Unavailable(f"{self.kind.name} does not show {self.probe}: {error}") from None
                time.sleep(0.001)

    def memory(self):
        """What the daemon takes, took at most, and has for itself, without mapped files, in MiB; None without a daemon."""
        fields = {"VmRSS:": 0.0, "VmHWM:": 0.0, "RssAnon:": 0.0}
        pids = servers(self.point)
        for pid in pids:
            with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as lines:
                for line in lines:
                    name, *values = line.split()
                    if name in fields:
                        fields[name] += int(values[0]) / 1024
        return tuple(fields.values()) if pids else None

    def __exit__(self, *_):
        if self.kind.mount is not None:
            begin = time.perf_counter()
            clear(self.point)
            self.unmount_time = time.perf_counter() - begin


def mount_points(folder):
    """Mount points at and below a folder, the innermost first."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
        points = [line.split(" ")[4] for line in lines]
    for char in " \t\n\\":
        points = [point.replace(f"\\{ord(char):03o}", char) for point in points]
    return [point for point in reversed(points) if point == folder or point.startswith(folder + os.sep)]


def servers(folder):
    """Processes that have a folder, or what is below it, among their arguments: the daemons of its mounts."""
    name = os.fsencode(folder)
    found = []
    for pid in (int(entry) for entry in os.listdir("/proc") if entry.isdigit()):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                arguments = file.read().split(b"\0")
        except OSError:
            continue
        if pid != os.getpid() and any(a == name or a.startswith(name + b"/") for a in arguments):
            found.append(pid)
    return found


def clear(folder):
    """Undoes every mount at and below a folder, and waits for the daemons to end."""
    end = time.monotonic() + PATIENCE
    # Again and again: a daemon whose start was interrupted may mount yet.
    while unmount_all(folder) or servers(folder):
        if time.monotonic() > end:
            for pid in servers(folder):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            unmount_all(folder)
            raise Wrong(f"{folder}: its daemon did not end after the unmounting")
        time.sleep(0.001)


def unmount_all(folder):
    """Tries to undo every mount at and below a folder; tells whether there was any."""
    ways = [["fusermount3", "-u"], ["fusermount3", "-u", "-z"]]
    if os.geteuid() == 0:
        ways = [["umount"], ["umount", "-l"]]
    points = mount_points(folder)
    for point in points:
        # The second way is for the case that the first failed.
        for way in ways:
            if point not in mount_points(point):
                break
            with contextlib.suppress(OSError):
                subprocess.run([*way, point], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, check=False)
    return bool(points)
