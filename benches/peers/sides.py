"""The side programs: what they are, how they are started, asked and ended."""

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys

ZRFS = "zrfs"
ZRFS_C = "zrfs through C"
LOADERX = "loaderx"


class Wrong(Exception):
    """A side read other bytes than it should, or could not do what it was asked."""


class Side:
    """A side program: one command is one line, and so is its answer."""

    def __init__(self, name, command, processors):
        self.name = name
        # A session of its own: ^C at a terminal is this script's affair, and it ends all that the side has started.
        # The processors are its own before it starts: a library counts them to know how many threads to make.
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        start_new_session=True,
                                        preexec_fn=lambda: os.sched_setaffinity(0, processors))

    def ask(self, *words):
        try:
            self.process.stdin.write("\t".join(str(word) for word in words) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Wrong(f"{self.name}, {words[0]}: it ended") from None
        status, *numbers = self.process.stdout.readline().rstrip("\n").split("\t")
        if status != "ok":
            raise Wrong(f"{self.name}, {words[0]}: {' '.join(numbers) or 'it ended'}")
        return [int(number) for number in numbers if number]

    def __enter__(self):
        return self

    def __exit__(self, failure, *_):
        # It ends at the end of its input, unless it is in the middle of something that nobody wants any more.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(0 if failure else 10)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


class Programs:
    """How each side program is started."""

    def __init__(self, side, library, folder):
        python = [sys.executable, "-B", os.path.join(os.path.dirname(os.path.abspath(__file__)), "serve.py")]
        self.commands = {
            ZRFS: [side, "serve"],
            ZRFS_C: [*python, "zrfs", loaderx_on(library, folder)],
            LOADERX: [*python, "loaderx"],
        }

    @contextlib.contextmanager
    def start(self, *names, processors=None):
        """Side programs, by name, for as long as the context lasts; on so many processors, or on all."""
        some = sorted(os.sched_getaffinity(0))[:processors]
        with contextlib.ExitStack() as stack:
            yield {name: stack.enter_context(Side(name, self.commands[name], some)) for name in names}


def loaderx_on(library, folder):
    """A folder to import loaderx from: the installed one, with our library in place of both of its own."""
    installed = os.path.dirname(importlib.util.find_spec("loaderx").origin)
    parent = os.path.join(folder, "loaderx-on-zrfs")
    package = os.path.join(parent, "loaderx")
    shutil.copytree(installed, package, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for name in ("libzrecord.so", "libsampler.so"):
        if not os.path.exists(os.path.join(installed, "lib", name)):
            raise Wrong(f"the installed loaderx has no {name}: is it version 0.5.0?")
        shutil.copy(library, os.path.join(package, "lib", name))
    return parent


def in_turn(sides, round_number):
    """The sides in the order of this round: each round begins with another one."""
    sides = list(sides)
    first = round_number % len(sides)
    return sides[first:] + sides[:first]


def expect(what, got, wanted):
    if list(got) != list(wanted):
        raise Wrong(f"{what}: what was read differs from its source")
