"""A store beside the list of records that it must equal: what the tests of delete, compact, seal, verify and repair share."""

import ctypes
import hashlib
import json
import os
import re
import select
import shutil
import stat
import subprocess

from support import HEADER, META_SIZE, ZRFS, Case, import_folder, make_folder, noise, read_header, read_meta, text, zrfs

# In the header's version while records are being moved.
MARK = 0x8000
MOVE = re.compile(rb"(\d+) -> (\d+)")
DELETED = re.compile(rb"deleted (\d+) records?, (\d+) left")
MOVED = re.compile(rb"moved (\d+) records?\b")
PAGE = 4096


# The model

def swap_last(records, indices):
    """What a delete leaves: from the highest index down, the last record takes the place that becomes free.

    Gives back what is left, and {old index: new index} of the records that have another index now.
    """
    at = list(range(len(records)))
    for index in sorted(set(indices), reverse=True):
        last = at.pop()
        if index < len(at):
            at[index] = last
    return [records[i] for i in at], {old: new for new, old in enumerate(at) if old != new}


def follow(labels, moves, left):
    """What a client does with the moves that a delete tells, to a table of its own."""
    patched = labels[:left]
    for old, new in moves.items():
        patched[new] = labels[old]
    return patched


def sample(rng, seed, most=2000):
    """A record: it compresses, or does not, or has a length that others have as well."""
    kind = rng.randrange(3)
    if kind == 0:
        return text(rng.randint(1, most), seed)
    if kind == 1:
        return noise(rng.randint(1, most), seed)
    return noise(64, seed)


def spelled(indices, rng):
    """The same records as arguments of a command, one way or another, and what goes to standard input."""
    words = [str(i) for i in indices]
    for at, index in enumerate(indices):
        if rng.random() < 0.2:
            words[at] = f"{index}-{index}"
    way = rng.randrange(4)
    if way == 0:
        return words, b""
    if way == 1:
        return [", ".join(words)], b""
    return ["-"], rng.choice(["\n", " ", ","]).join(words).encode()


# Files

def pieces(path):
    """The parts of a file that may hold something else than zeros, as (offset, bytes), page by page."""
    fd = os.open(path, os.O_RDONLY)
    try:
        size, at = os.fstat(fd).st_size, 0
        while at < size:
            try:
                at = os.lseek(fd, at, os.SEEK_DATA) // PAGE * PAGE
            except OSError:
                return
            end = os.lseek(fd, at, os.SEEK_HOLE)
            while at < end:
                page = os.pread(fd, PAGE, at)
                if page.strip(b"\0"):
                    yield at, page
                at += PAGE
    finally:
        os.close(fd)


def fingerprint(folder):
    """Names, modes, sizes and contents of everything below a folder; times do not count, and holes are zeros."""
    found = {}
    for where, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.join(where, name)
            st = os.lstat(path)
            digest = hashlib.sha256()
            if stat.S_ISREG(st.st_mode):
                for at, page in pieces(path):
                    digest.update(b"%d:" % at + page)
            size = 0 if stat.S_ISDIR(st.st_mode) else st.st_size
            found[os.path.relpath(path, folder)] = (st.st_mode, size, digest.hexdigest())
    return found


class Saved:
    """A store's files, kept in memory. `restore` writes them again, with their times."""

    def __init__(self, store):
        self.store = store
        self.files, self.folders = {}, []
        for where, folders, files in os.walk(store):
            self.folders += [os.path.join(where, name) for name in folders]
            for name in files:
                path = os.path.join(where, name)
                self.files[path] = (os.stat(path), list(pieces(path)))

    def restore(self):
        for name in os.listdir(self.store):
            remove(os.path.join(self.store, name))
        for path in self.folders:
            os.mkdir(path)
        for path, (st, parts) in self.files.items():
            with open(path, "wb") as f:
                for at, piece in parts:
                    f.seek(at)
                    f.write(piece)
                f.truncate(st.st_size)
            os.chmod(path, stat.S_IMODE(st.st_mode))
            os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))


def write_empty_store(store):
    """A store without a record, by hand."""
    os.makedirs(store)
    with open(os.path.join(store, "meta.zr"), "wb") as f:
        f.write(HEADER.pack(b"ZREC", 1, 0, 0, 0))
        f.truncate(META_SIZE)
    open(os.path.join(store, "0.zr"), "wb").close()


def remove(path):
    """Whatever is there, and however much of it."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def disk(path):
    """Bytes that a file takes on disk."""
    return os.stat(path).st_blocks * 512


class Watch:
    """Waits for writes to a file. It does not open the file: zrfs looks whether anybody else has it open."""

    IN_MODIFY = 2

    def __init__(self, path):
        libc = ctypes.CDLL(None, use_errno=True)
        self.fd = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self.fd < 0 or libc.inotify_add_watch(self.fd, os.fsencode(path), self.IN_MODIFY) < 0:
            raise OSError(ctypes.get_errno(), "inotify", path)

    def wait(self, seconds):
        """True once there was a write since the last call."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return False
        os.read(self.fd, 65536)
        return True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.fd)


def start(*args, **kwargs):
    """zrfs, not waited for."""
    kwargs.setdefault("stdin", subprocess.DEVNULL)
    kwargs.setdefault("stdout", subprocess.DEVNULL)
    kwargs.setdefault("stderr", subprocess.DEVNULL)
    return subprocess.Popen([ZRFS, *args], **kwargs)


# Test cases

def verify(store):
    """(exit status, what `verify --json` says)"""
    done = zrfs("verify", store, "--json", check=None)
    if done.returncode not in (0, 1) or b"panicked" in done.stderr:
        raise AssertionError(f"zrfs verify: exit status {done.returncode}, {done.stderr!r}")
    try:
        found = json.loads(done.stdout)
    except ValueError:
        raise AssertionError(f"zrfs verify --json wrote no JSON: {done.stdout[:500]!r}, {done.stderr!r}") from None
    return done.returncode, found


def records_of(store, lengths=None):
    """Every record of a store, by cat, and by ls where the lengths are not known."""
    if lengths is None:
        lengths = [int(line.split(b"\t")[1]) for line in zrfs("ls", store).stdout.splitlines()]
    data = zrfs("cat", store, f"0-{len(lengths) - 1}").stdout if lengths else b""
    if len(data) != sum(lengths):
        raise AssertionError(f"records of {sum(lengths)} bytes, cat wrote {len(data)}")
    found, at = [], 0
    for length in lengths:
        found.append(data[at:at + length])
        at += length
    return found


class Changing(Case):
    def setUp(self):
        super().setUp()
        self.store = self.dir / "store.zr"

    def make(self, records, *options, name="store.zr"):
        """A new store with these records."""
        remove(self.dir / name)
        if records:
            return import_folder(self.dir, name, records, *options)
        write_empty_store(self.dir / name)
        return self.dir / name

    def append(self, records, *options, store=None, check=0):
        source = self.dir / "more"
        make_folder(source, records)
        try:
            return zrfs("import", "--append", source, store or self.store, *options, check=check)
        finally:
            shutil.rmtree(source)

    def assert_same(self, found, records):
        """Like assertEqual, without megabytes of difference."""
        if found != records:
            wrong = [i for i, (a, b) in enumerate(zip(found, records)) if a != b]
            self.fail(f"{len(found)} records, {len(records)} expected; the first that differ: {wrong[:10]}")

    def assert_holds(self, records, store=None):
        """Exactly these records, in this order; no change is under way."""
        store = store or self.store
        self.assert_same(records_of(store), records)
        header = read_header(store)
        self.assertEqual((header[1] & MARK, header[4]), (0, len(records)))

    def assert_verified(self, store=None):
        """verify finds nothing bad; gives back what it says."""
        status, found = verify(store or self.store)
        self.assertEqual((status, found["bad"], found["faults"]), (0, [], []), found)
        self.assertEqual(found["checked"] + found["unchecked"], found["records"], found)
        return found

    def assert_sound(self, records, store=None):
        self.assert_holds(records, store)
        self.assertEqual(self.assert_verified(store)["records"], len(records))

    def assert_dense(self, store=None):
        """Compacted: the records lie one behind another from the start, and the chunk ends with them."""
        store = store or self.store
        header, entries = read_meta(store)
        at = 0
        for offset, stored, _, chunk, _, _ in sorted(entries, key=lambda e: (e[3], e[0], e[1])):
            # An empty record has no bytes: it may lie anywhere before the frontier.
            if stored == 0:
                continue
            self.assertEqual((chunk, offset), (0, at))
            at += stored
        self.assertTrue(all((e[3], e[0]) <= (header[2], header[3]) for e in entries))
        # Nor does one lie at the very start of a store: where there is nothing else, a byte is left out.
        at = 1 if entries and at == 0 else at
        self.assertEqual((header[2], header[3]), (0, at), "the frontier is where the last record ends")
        self.assertEqual(sorted(n for n in os.listdir(store) if n.endswith(".zr")), ["0.zr", "meta.zr"])

    def delete(self, indices, records, *options, rng=None, store=None):
        """`zrfs delete`, beside the model: gives back (records that are left, moves)."""
        store = store or self.store
        words, standard_input = spelled(indices, rng) if rng else (["-"], " ".join(map(str, indices)).encode())
        done = zrfs("delete", store, *words, *options, input=standard_input)
        left, moves = swap_last(records, indices)
        lines = done.stdout.splitlines()
        told = [tuple(map(int, found.groups())) for found in map(MOVE.fullmatch, lines) if found]
        self.assertEqual(sorted(told), sorted(moves.items()))
        last = [line for line in lines if not MOVE.fullmatch(line) and line.startswith(os.fsencode(store))]
        self.assertEqual(len(last), 1, done.stdout[-500:])
        if "--with" not in options:
            self.assertEqual(last, lines[-1:])
        figures = DELETED.search(last[0])
        self.assertTrue(figures, last)
        self.assertEqual(tuple(map(int, figures.groups())), (len(set(indices)), len(left)))
        return left, dict(told)

    def compact(self, store=None):
        """`zrfs compact`; gives back how many records it says it moved."""
        store = store or self.store
        # loaderx may have deleted the last records and nothing else.
        line = zrfs("compact", "--accept", store).stdout.splitlines()[-1]
        self.assertTrue(line.startswith(os.fsencode(store)), line)
        figures = MOVED.search(line)
        self.assertTrue(figures, line)
        return int(figures[1])

    def assert_refused_unchanged(self, args, *words, status=(1,), stores=None, **kwargs):
        """A command that fails in one clear line, and changes nothing in any of the stores."""
        stores = stores or [self.store]
        before = [fingerprint(store) for store in stores]
        done = zrfs(*args, check=None, **kwargs)
        self.assert_clear(done, *words, status=status)
        self.assertEqual(done.stdout, b"")
        self.assertEqual([fingerprint(store) for store in stores], before)
        return done
