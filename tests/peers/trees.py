"""Folders with all that a folder may hold, and what must be equal when one has gone through a store."""

import os
import pathlib
import stat

from support import noise, text

# Times before 1970, in parts of a second, far from now.
TIMES = [1_700_000_000_123_456_789, 0, 1, -1, -1_500_000_000, 999_999_999, 4_102_444_800_000_000_000]

ODD_NAMES = [
    b"plain.png", b" ", b" leading and trailing ", b"new\nline", b"\n", b"tab\there", b"\r", b"carriage\r",
    b"'quotes\"", b"back\\slash", b"\\n", b"-rf", b"--names", b"-", b"...", b"..a", b"trailing.", b"a.", b"Case", b"case",
    b"\xff\xfe", b"caf\xe9", b"\xed\xb2\x80", "café ☃ 🦀".encode(), "cafe\u0301".encode(), b"\x1b[31mred", b"x" * 255,
    "ü".encode() * 127, b"*?[]{}$`;&|<>", b"00000001.png", b"tree", b"#", b"%s",
]


def odd_tree(root):
    """Every odd name as a file at the top, as a folder with a file in it, and in a folder far below; links; empty folders.

    Gives back {path: bytes} of the files.
    """
    root = os.fsencode(root)
    files = {}
    for i, name in enumerate(ODD_NAMES):
        files[name] = text(100 + i, i) if i % 2 else noise(100 + i, i)
        files[b"folders/" + name + b"/inside"] = noise(10 + i, 1000 + i)
        files[b"a/b/c/d/e/" + name] = b"<%d>" % i
    files[b"empty"] = b""
    files[b"deep/" + b"/".join([b"d" * 200] * 15) + b"/file"] = b"a long path"
    for path, data in files.items():
        path = os.path.join(root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(data)
    os.makedirs(os.path.join(root, b"nothing/in/here"))
    os.makedirs(os.path.join(root, b"nothing\n/\xff"))
    links = {
        b"link": b"plain.png", b"folders/up": b"../plain.png", b"a/link to folder": b"b/c", b"\xff link\n": b"./a//b/../b/",
        b"l" * 255: b"plain.png", b"long target": b"./" * 150 + b"plain.png",
    }
    for name, target in links.items():
        os.symlink(target, os.path.join(root, name))
    dress(root)
    return files


def dress(root):
    """Times and modes for everything in a folder, and for the folder."""
    count = 0
    for where, folders, files in os.walk(os.fsencode(root), topdown=False):
        for name in files:
            path = os.path.join(where, name)
            if not os.path.islink(path):
                os.chmod(path, 0o755 if count % 3 == 0 else 0o644)
            os.utime(path, ns=(0, TIMES[count % len(TIMES)] + count), follow_symlinks=False)
            count += 1
        for name in folders:
            if os.path.islink(os.path.join(where, name)):
                os.utime(os.path.join(where, name), ns=(0, 17 + count), follow_symlinks=False)
        os.utime(where, ns=(0, TIMES[(count + 3) % len(TIMES)] + count))
        count += 1


def tree_of(root, times=True, roots_time=True):
    """{path: what is there} of everything in a folder: kind, executable or not, time, contents."""
    root = os.fsencode(root)
    seen = {}

    def look(path):
        st = os.lstat(path)
        when = st.st_mtime_ns if times and (roots_time or path != root) else None
        at = os.path.relpath(path, root)
        if stat.S_ISLNK(st.st_mode):
            seen[at] = ("link", os.readlink(path), when)
        elif stat.S_ISDIR(st.st_mode):
            seen[at] = ("folder", when)
        else:
            seen[at] = ("file", bool(st.st_mode & 0o100), when, pathlib.Path(os.fsdecode(path)).read_bytes())

    look(root)
    for where, folders, files in os.walk(root):
        for name in folders + files:
            look(os.path.join(where, name))
    return seen
