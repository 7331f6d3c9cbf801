"""loaderx 0.5.0 in a process of its own that takes turn after turn: starting it anew each time would be slow.

Standard library only, so that a program without NumPy can use it.
"""

import base64
import contextlib
import json
import os
import pathlib
import select
import subprocess
import sys

PEER = pathlib.Path(__file__).with_name("loaderx_peer.py")
# loaderx refuses a store that it does not know, as one under change.
BAD_FORMAT = -8


class LoaderxError(Exception):
    """loaderx refused; `code` is its own."""

    def __init__(self, code, text):
        super().__init__(f"loaderx error {code}: {text}")
        self.code = code


class Loaderx:
    """Leaving the block ends the process. A crash of it is a failure of the test, not its end."""

    def __init__(self, python=sys.executable):
        self.python = python

    def __enter__(self):
        self.process = subprocess.Popen([self.python, PEER, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.pid = self.process.pid
        # The program's name, as the system has it.
        self.turn("ready")
        self.name = pathlib.Path(f"/proc/{self.pid}/comm").read_text().strip()
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(60)
        finally:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()

    def turn(self, do, store=None, seconds=120, **more):
        """One command to the process; gives back its answer."""
        ask = {"do": do, "store": os.fspath(store) if store else None, **more}
        try:
            self.process.stdin.write(json.dumps(ask).encode() + b"\n")
            self.process.stdin.flush()
            if not select.select([self.process.stdout], [], [], seconds)[0]:
                raise AssertionError(f"loaderx did not answer within {seconds} s: {do}")
            line = self.process.stdout.readline()
        except OSError:
            line = b""
        if not line:
            raise AssertionError(f"loaderx ended at: {do}; exit status {self.process.wait(60)}")
        answer = json.loads(line)
        if "error" in answer:
            raise LoaderxError(answer["error"], answer["text"])
        return answer

    def append(self, store, records, codec="flate"):
        self.turn("append", store, records=[base64.b64encode(r).decode() for r in records], codec=codec)

    def delete(self, store, indices):
        self.turn("delete", store, indices=list(indices))

    def compact(self, store):
        self.turn("compact", store)

    def read(self, store):
        """Every record."""
        return [base64.b64decode(r) for r in self.turn("read", store)["records"]]

    def digest(self, store):
        """(number of records, SHA-256 of all of them, one after another)"""
        answer = self.turn("digest", store)
        return answer["length"], answer["sha256"]

    @contextlib.contextmanager
    def has_open(self, store):
        """The store stays open in loaderx as long as the block lasts; turns on it use that opening."""
        self.turn("open", store)
        try:
            yield self
        finally:
            self.turn("close", store)
