"""The daemon's life: idle=, log lines and exit reasons, readiness for a service manager, what it inherits, many files."""

import concurrent.futures
import contextlib
import fcntl
import mmap
import os
import pathlib
import pty
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import termios
import threading
import time
import unittest

from support import (
    MIB, ZRFS, Case, as_nobody, clear_mount, daemons, import_folder, is_mounted, noise, run, say, stop, wait_until,
    write_store, zrfs,
)

CONTENTS = [noise(3000 + i, i) for i in range(60)]
# How long the threads of `ManyFiles` open files. A release is tried with 60.
LIFE_SECONDS = float(os.environ.get("LIFE_SECONDS", 5))
STAMP = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ zrfs: ")


class Life(Case):
    def setUp(self):
        super().setUp()
        self.store = import_folder(self.dir, "store.zr", CONTENTS)
        self.mnt.mkdir()
        self.log = self.dir / "log"
        self.addCleanup(clear_mount, self.mnt)

    def record(self, index, point=None):
        return pathlib.Path(point or self.mnt) / "records" / f"{index:08}.bin"

    def assert_serves(self, point=None):
        self.assertEqual([self.record(i, point).read_bytes() for i in (0, 1, 59)], [CONTENTS[i] for i in (0, 1, 59)])

    def wait_gone(self, point=None):
        point = point or self.mnt
        wait_until(lambda: not is_mounted(point), "the mount is gone", 20)
        wait_until(lambda: not daemons(point), "the daemon ended", 20)

    def logged(self):
        """The log's lines without their times, which each must have."""
        lines = self.log.read_bytes().splitlines()
        for line in lines:
            self.assertRegex(line, STAMP)
        return [STAMP.sub(b"", line).decode() for line in lines]

    def front(self, *options, **kwargs):
        """`zrfs mount -f` that serves."""
        kwargs.setdefault("stdout", subprocess.PIPE)
        kwargs.setdefault("stderr", subprocess.PIPE)
        process = subprocess.Popen([ZRFS, "mount", "-f", self.store, self.mnt, *options], stdin=subprocess.DEVNULL, **kwargs)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        for pipe in filter(None, (process.stdout, process.stderr)):
            self.addCleanup(pipe.close)
        wait_until(lambda: is_mounted(self.mnt) or process.poll() is not None, "mounted")
        self.assertIsNone(process.poll())
        self.assert_serves()
        return process

    def connections(self):
        """What the kernel says of its FUSE connections: a folder each, named for the mount's device."""
        folder = self.dir / "connections"
        folder.mkdir()
        run("mount", "-t", "fusectl", "fusectl", folder, check=0)
        self.addCleanup(folder.rmdir)
        self.addCleanup(run, "umount", folder, check=0)
        return folder / str(os.minor(os.stat(self.mnt).st_dev))


class Idle(Life):
    def points(self, names):
        points = {name: self.dir / f"idle-{name}" for name in names}
        for point in points.values():
            self.addCleanup(clear_mount, point)
            point.mkdir()
        return points

    def start(self, point, seconds=2):
        zrfs("mount", self.store, point, "-o", f"idle={seconds},log={point}.log")

    def test_it_ends_when_nobody_uses_it_and_every_use_keeps_it(self):
        self.need_root()
        uses = {
            "list-records": lambda p: os.listdir(p / "records"),
            "stat-file": lambda p: os.stat(p / "stats"),
            "access": lambda p: self.assertTrue(os.access(p / "tree", os.R_OK)),
            "read": lambda p: self.record(3, p).read_bytes(),
            "missing": lambda p: os.path.exists(p / "absent"),
        }
        with contextlib.ExitStack() as held:
            points = self.points([*uses, "file", "map", "folder", "mount", "bind", "bound"])
            for name, point in points.items():
                if name != "bound":
                    self.start(point)
            held.enter_context(open(self.record(4, points["file"]), "rb")).read()
            with open(self.record(5, points["map"]), "rb") as f:
                mapping = held.enter_context(mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ))
            worker = held.enter_context(subprocess.Popen(["sleep", "600"], cwd=points["folder"] / "tree"))
            held.callback(worker.kill)
            run("mount", "-t", "tmpfs", "tmpfs", points["mount"] / "records", check=0)
            held.callback(run, "umount", points["mount"] / "records")
            run("mount", "--bind", points["bind"] / "tree", points["bound"], check=0)
            held.callback(run, "umount", points["bound"])
            # For longer than an unused mount lives. A look at its root and at how full it is, as watchers of all mounts take,
            # is no use.
            for name in ("unused", "unused-1", "unused-2"):
                control = self.points([name])[name]
                self.start(control, 1)
                while is_mounted(control):
                    for use, point in points.items():
                        uses.get(use, lambda p: None)(point)
                    with contextlib.suppress(FileNotFoundError):
                        os.stat(control)
                        os.statvfs(control)
                    time.sleep(0.05)
                self.wait_gone(control)
                self.assertIn(b"zrfs: unused for 1 s: unmounted\n", pathlib.Path(f"{control}.log").read_bytes())
            self.assertEqual([name for name, point in points.items() if not is_mounted(point)], [])
            self.assertEqual(mapping[:], CONTENTS[5])
            stays = f"zrfs: warn: unused for 2 s: it stays, as it is at {points['bound']}, too\n"
            self.assertEqual(pathlib.Path(f"{points['bind']}.log").read_text().count(stays), 1)

    def test_without_privilege(self):
        program = self.open_to_nobody(self.store, 0o777)
        run(*as_nobody(program, "mount", self.store, self.mnt, "-o", f"idle=1,log={self.log}"), check=0)
        reader = subprocess.Popen(as_nobody("sh", "-c", f"exec 3<{self.record(0)}; cat <&3; exec sleep 600"), stdout=subprocess.PIPE)
        with reader:
            try:
                self.assertEqual(reader.stdout.read(len(CONTENTS[0])), CONTENTS[0])
                # It is in use longer than an unused one lives.
                other = self.dir / "other"
                other.mkdir()
                self.addCleanup(clear_mount, other)
                for _ in range(2):
                    self.start(other, 1)
                    self.wait_gone(other)
                self.assertTrue(is_mounted(self.mnt))
            finally:
                reader.kill()
        self.wait_gone()
        self.assertEqual(self.logged()[1:], ["unused for 1 s: unmounted"])

    def test_a_copy_in_another_mount_namespace_goes_on(self):
        self.need_root()
        self.start(self.mnt, 1)
        [pid] = daemons(self.mnt)
        with subprocess.Popen(["unshare", "-m", "--propagation=private", "sh", "-c", "echo there; exec sleep 600"], stdout=subprocess.PIPE) as other:
            try:
                self.assertEqual(other.stdout.readline(), b"there\n")
                wait_until(lambda: not is_mounted(self.mnt), "the mount is gone")
                # Its own look shows that it lives on, where it was not taken away.
                read = run("nsenter", f"--mount=/proc/{other.pid}/ns/mnt", "cat", self.record(7), check=0)
                self.assertEqual(read.stdout, CONTENTS[7])
                self.assertEqual(daemons(self.mnt), [pid])
            finally:
                other.kill()
        self.wait_gone()


class Log(Life):
    def test_what_it_says_from_beginning_to_end(self):
        def send(number):
            return lambda: os.kill(daemons(self.mnt)[0], number)

        for reason, end in (
            ("unmounted from outside, by umount or the like", lambda: zrfs("umount", self.mnt)),
            ("SIGTERM: unmounted", send(signal.SIGTERM)),
            ("SIGINT: unmounted", send(signal.SIGINT)),
            ("SIGHUP: unmounted", send(signal.SIGHUP)),
        ):
            with self.subTest(reason=reason):
                # Relative to where the command is given; the daemon works elsewhere.
                run(ZRFS, "mount", "store.zr", "mnt", "-o", "log=log,cache=7", cwd=self.dir, check=0)
                begun = f"{self.store} is mounted at {self.mnt}: 60 records; options: log=log,cache=7"
                self.assertEqual(self.logged(), [begun])
                end()
                self.wait_gone()
                self.assertEqual(self.logged(), [begun, reason])
                self.log.unlink()

    def test_a_signal_while_it_is_in_use(self):
        with self.mount(self.store, "-o", f"log={self.log}") as mount, open(self.record(0), "rb"):
            os.kill(mount.pid, signal.SIGTERM)
            self.wait_gone()
        self.assertEqual(self.logged()[1:], ["warn: SIGTERM: ended while the mount was in use: its readers get an error"])

    def test_the_error_that_ended_it(self):
        self.need_root()
        with self.mount(self.store, "-o", f"log={self.log}"):
            (self.connections() / "abort").write_text("1")
            wait_until(lambda: not daemons(self.mnt), "the daemon ended")
            self.assertRegex("\n".join(self.logged()[1:]), "^error: the mount ended: [^\n]+$")

    def test_in_front(self):
        process = self.front()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
        self.assertEqual((process.returncode, out), (0, b"%s is mounted at %s: 60 records\n" % (bytes(self.store), bytes(self.mnt))))
        self.assertEqual(err, b"zrfs: SIGINT: unmounted\n")

    def test_in_front_with_a_file(self):
        process = self.front("-o", f"log={self.log}")
        zrfs("umount", self.mnt)
        out, err = process.communicate(timeout=20)
        self.assertEqual((process.returncode, out.count(b"\n"), err), (0, 1, b""))
        self.assertEqual(self.logged()[1:], ["unmounted from outside, by umount or the like"])
        done = zrfs("mount", "-f", self.dir / "absent.zr", self.mnt, "-o", f"log={self.log}", check=None)
        self.assert_clear(done, "absent.zr")

    def test_a_file_that_cannot_be_opened(self):
        for front in ([], ["-f"]):
            done = zrfs("mount", *front, self.store, self.mnt, "-o", f"log={self.dir}/absent/log", check=None)
            self.assert_clear(done, "absent/log")
            self.assertFalse(is_mounted(self.mnt))
            self.assertEqual(daemons(self.mnt), [])

    def test_a_fifo_that_nobody_reads(self):
        os.mkfifo(self.log)
        self.assert_clear(zrfs("mount", self.store, self.mnt, "-o", f"log={self.log}", check=None, timeout=20), str(self.log))
        self.assertFalse(is_mounted(self.mnt))

    def test_a_full_disk_under_it_harms_nothing(self):
        with self.mount(self.store, "-o", "log=/dev/full"):
            self.assert_serves()
            # A warning that can't be written.
            with open(self.store / "0.zr", "r+b") as chunk:
                chunk.truncate(100)
            with self.assertRaises(OSError):
                self.record(20).read_bytes()
            self.assertTrue((self.mnt / "stats").read_bytes())

    def test_it_is_cut_while_it_is_written(self):
        # As logrotate's copytruncate does: no hole is left where the lines were.
        with self.mount(self.store, "-o", f"log={self.log}"):
            os.truncate(self.log, 0)
        self.assertEqual(self.logged(), ["unmounted from outside, by umount or the like"])


class Readiness(Life):
    @contextlib.contextmanager
    def manager(self, name):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(name.replace("@", "\0", 1))
            manager.settimeout(20)
            yield manager, {**os.environ, "NOTIFY_SOCKET": name}

    def test_a_mount_in_front_tells(self):
        ready = f"READY=1\nSTATUS={self.store} is mounted at {self.mnt}: 60 records".encode()
        for name in (str(self.dir / "notify"), f"@zrfs-peer-{os.getpid()}"):
            for end in (lambda p: p.terminate(), lambda _: zrfs("umount", self.mnt)):
                with self.subTest(name=name), self.manager(name) as (manager, env):
                    process = self.front(env=env)
                    self.assertEqual(manager.recv(4096), ready)
                    end(process)
                    self.assertEqual(manager.recv(4096), b"STOPPING=1")
                    self.assertEqual(process.wait(20), 0)
                    (self.dir / "notify").unlink(missing_ok=True)

    def test_a_manager_that_is_gone_ends_nothing(self):
        process = self.front(env={**os.environ, "NOTIFY_SOCKET": str(self.dir / "absent")})
        process.terminate()
        _, err = process.communicate(timeout=20)
        self.assertEqual(process.returncode, 0)
        self.assertIn(b"absent", err)

    def test_a_daemon_does_not(self):
        with self.manager(str(self.dir / "notify")) as (manager, env):
            zrfs("mount", self.store, self.mnt, env=env)
            [pid] = daemons(self.mnt)
            self.assertNotIn(b"NOTIFY_SOCKET", pathlib.Path(f"/proc/{pid}/environ").read_bytes())
            zrfs("umount", self.mnt)
            self.wait_gone()
            manager.setblocking(False)
            self.assertRaises(BlockingIOError, manager.recv, 4096)


class Start(Life):
    def descriptors(self):
        [pid] = daemons(self.mnt)
        folder = f"/proc/{pid}/fd"
        return {int(fd): os.readlink(f"{folder}/{fd}") for fd in os.listdir(folder)}

    def test_it_holds_nothing_of_its_caller(self):
        reader, writer = os.pipe()
        with open(reader, "rb") as reader:
            with open(writer, "wb") as writer:
                shell = f"exec 7>&{writer.fileno()}; exec {ZRFS} mount {self.store} {self.mnt}"
                run("sh", "-c", shell, pass_fds=[writer.fileno()], check=0)
            os.set_blocking(reader.fileno(), False)
            self.assertEqual(reader.read(), b"", "somebody holds the other end")
        with self.subTest("only its own files"):
            held = self.descriptors()
            self.assertEqual([held.pop(fd) for fd in range(3)], ["/dev/null"] * 3)
            ours = re.compile(rf"{re.escape(str(self.store))}(/|$)|/dev/fuse$|socket:")
            self.assertEqual([path for path in held.values() if not ours.match(path)], [])

    def test_a_shell_that_takes_its_output_returns(self):
        done = run("sh", "-c", f'x=$({ZRFS} mount {self.store} {self.mnt} 2>&1); echo "<$x>"', timeout=20, check=0)
        self.assertEqual(done.stdout.decode(), f"<{self.store} is mounted at {self.mnt}: 60 records>\n")
        self.assert_serves()

    def test_closed_standard_streams(self):
        for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
            for front in ("", "-f"):
                with self.subTest(closed=closed, front=front):
                    with subprocess.Popen(["sh", "-c", f"exec {ZRFS} mount {front} {self.store} {self.mnt} {closed}"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
                        wait_until(lambda: is_mounted(self.mnt), "mounted")
                        self.assert_serves()
                        if not front:
                            self.assertEqual(process.wait(20), 0)
                        held = self.descriptors()
                        self.assertEqual([held.get(fd) for fd in range(3)], ["/dev/null"] * 3)
                        zrfs("umount", self.mnt)
                        self.assertEqual(process.wait(20), 0)
                    self.wait_gone()

    def test_a_program_that_was_replaced(self):
        program = self.dir / "zrfs"
        shutil.copy(ZRFS, program)
        # Started from a file that has no name any more, as by an upgrade at that moment.
        run("sh", "-c", f"exec 9<{program}; rm {program}; exec /proc/self/fd/9 mount {self.store} {self.mnt}", check=0)
        self.assert_serves()
        [pid] = daemons(self.mnt)
        self.assertEqual(pathlib.Path(f"/proc/{pid}/comm").read_text(), "zrfs\n")
        self.assertEqual(pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0], b"zrfs")

    def test_a_terminal_that_hangs_up(self):
        ours, theirs = pty.openpty()
        shell = subprocess.Popen(
            ["sh", "-c", f"{ZRFS} mount {self.store} {self.mnt}; read line"],
            stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        with shell:
            with open(ours, "rb", buffering=0) as terminal:
                self.assertIn(b"60 records", terminal.read(4096))
            self.assertEqual(shell.wait(20), -signal.SIGHUP)
        self.assert_serves()

    def test_signals_that_the_caller_has_blocked_end_it(self):
        ends = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
        for number in sorted(ends):
            with self.subTest(signal=number):
                # The thread's mask goes to the child, and by it to the daemon.
                before = signal.pthread_sigmask(signal.SIG_BLOCK, ends)
                try:
                    command = [ZRFS, "mount", self.store, self.mnt]
                    subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True, restore_signals=False)
                finally:
                    signal.pthread_sigmask(signal.SIG_SETMASK, before)
                os.kill(daemons(self.mnt)[0], number)
                self.wait_gone(self.mnt)

    def test_little_address_space_is_refused(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (200 * MIB, 200 * MIB))

        command = [ZRFS, "mount", self.store, self.mnt, "-o", "threads=2"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, preexec_fn=limit, check=False)
        self.assert_clear(done, "200.00 MiB", "640.00 MiB", "ulimit -v")
        self.assertFalse(is_mounted(self.mnt))

    def test_a_hundred_in_turn(self):
        folder = self.dir / "tmp"
        folder.mkdir()
        loop = f"for i in $(seq 100); do {ZRFS} mount {self.store} {self.mnt} && {ZRFS} umount {self.mnt} || exit 1; done"
        done = run("sh", "-c", loop, env={**os.environ, "TMPDIR": str(folder)}, check=0)
        self.assertEqual((done.stdout.count(b"\n"), done.stderr), (100, b""))
        self.wait_gone()
        self.assertEqual(os.listdir(folder), [])
        self.assertEqual(sorted(os.listdir(self.dir)), ["mnt", "store.zr", "tmp"])

    def test_a_mount_point_on_the_path(self):
        """Without privilege, where a program is looked for there: it must be neither waited for nor in the way when dead."""
        program = self.open_to_nobody(self.store)
        env = {**os.environ, "PATH": f"{self.mnt}:{os.environ['PATH']}"}

        def nobody(*args):
            return run(*as_nobody(*args), check=0, cwd="/", env=env, timeout=30)

        nobody(program, "mount", self.store, self.mnt)
        os.kill(daemons(self.mnt)[0], signal.SIGKILL)
        wait_until(lambda: not daemons(self.mnt), "the daemon is gone")
        nobody(program, "mount", self.store, self.mnt)
        self.assertEqual(nobody("cat", self.record(9)).stdout, CONTENTS[9])
        nobody(program, "umount", self.mnt)
        self.wait_gone()


class Killed(Life):
    def test_readers_get_errors_and_the_same_command_takes_over(self):
        self.need_root()
        zrfs("mount", self.store, self.mnt)
        [pid] = daemons(self.mnt)
        connection = self.connections()
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        in_read = [
            subprocess.Popen(["sh", "-c", f"exec 3<{path}; echo open; read line; cat <&3"], **pipes)
            for path in [self.record(i) for i in range(3)] + [self.mnt / "batch"]
        ]
        in_open = []
        try:
            for reader in in_read:
                self.assertEqual(reader.stdout.readline(), b"open\n")
            for i in range(4):
                os.stat(self.record(30 + i))
            stop(pid)
            for reader in in_read:
                reader.stdin.write(b"\n")
                reader.stdin.flush()
            in_open = [subprocess.Popen(["cat", self.record(30 + i)], **pipes) for i in range(4)]
            wait_until(lambda: int((connection / "waiting").read_text()) >= 8, "8 wait for the daemon")
            os.kill(pid, signal.SIGKILL)
            for reader in in_read + in_open:
                _, err = reader.communicate(timeout=20)
                self.assertNotEqual((reader.returncode, err), (0, b""))
        finally:
            # Not even a killed reader ends before a stopped daemon does.
            for daemon in daemons(self.mnt):
                os.kill(daemon, signal.SIGKILL)
            for reader in in_read + in_open:
                reader.kill()
                reader.communicate()
        wait_until(lambda: not daemons(self.mnt), "the daemon is gone")
        zrfs("mount", self.store, self.mnt)
        self.assert_serves()


class ManyFiles(Life):
    def limit(self):
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))

    def test_files_take_no_descriptors_and_leave_nothing(self):
        self.need_root()
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, before)
        resource.setrlimit(resource.RLIMIT_NOFILE, (8192, max(8192, before[1])))
        zrfs("mount", self.store, self.mnt, "-o", "cache=16,batch_size=4,steps=9", preexec_fn=self.limit)
        [pid] = daemons(self.mnt)

        def held():
            return len(os.listdir(f"/proc/{pid}/fd"))

        def peak():
            return int(re.search(r"VmHWM:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1]) >> 10

        def path(n):
            others = [self.mnt / "batch", self.mnt / "batch.tar", self.mnt / f"batches/{n}.tar", self.mnt / "stats", self.mnt / "README"]
            return others[n // 20 % len(others)] if n % 20 == 0 else self.record(n % 60)

        def check(n, got):
            if n % 20:
                self.assertEqual(got, CONTENTS[n % 60])
            else:
                self.assertTrue(got)

        # So that each chunk and sidecar is open.
        for n in range(0, 120, 5):
            with open(path(n), "rb", buffering=0) as f:
                check(n, f.read(4096))
        calm = held()
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(open(path(n), "rb", buffering=0)) for n in range(5000)]
            for n, f in enumerate(files):
                check(n, f.read(4096))
            self.assertLessEqual(held(), calm)
        end = threading.Event()

        def work(seed):
            choice, done = random.Random(seed), 0
            while not end.is_set():
                n = choice.randrange(5000)
                with open(path(n), "rb", buffering=0) as f:
                    check(n, f.read(4096))
                done += 1
            return done

        with concurrent.futures.ThreadPoolExecutor(256) as pool:
            try:
                working = [pool.submit(work, seed) for seed in range(256)]
                # Until then, or until one has failed.
                concurrent.futures.wait(working, LIFE_SECONDS, concurrent.futures.FIRST_EXCEPTION)
            finally:
                end.set()
            opened = sum(future.result() for future in working)
        say(f"256 threads opened {opened} files in {LIFE_SECONDS:.0f} s; the daemon took {peak()} MiB at most")
        self.assertGreater(opened, 256)
        wait_until(lambda: held() <= calm, "the daemon holds as many descriptors as before")
        self.assertLess(peak(), 200)
        zrfs("umount", self.mnt)
        self.wait_gone()

    def test_more_chunks_than_it_may_open(self):
        store = self.dir / "wide.zr"
        write_store(store, [(0, 10, 10, i, 0, 0) for i in range(300)], {i: {0: b"chunk %04d" % i} for i in range(300)})
        done = zrfs("mount", store, self.mnt, preexec_fn=self.limit, check=None)
        self.assert_clear(done, "wide.zr", "300 chunk files", "256", "ulimit -n")
        self.assertFalse(is_mounted(self.mnt))
        with self.mount(store) as mount:
            self.assertEqual([mount.read(i) for i in range(300)], [b"chunk %04d" % i for i in range(300)])


if __name__ == "__main__":
    unittest.main()
