"""A store named by the mount point of a live mount: each command does what it does to the store, with a true status."""

import errno
import json
import os
import signal
import subprocess
import unittest

from support import (
    NOBODY, ZRFS, Case, as_nobody, clear_mount, daemons, import_folder, is_mounted, make_tree, noise, run, text,
    wait_until, zrfs,
)

COUNT = 40


class Live(Case):
    def setUp(self):
        super().setUp()
        self.contents = [b"<%d>" % i + text(3000 + i, i) for i in range(COUNT)]
        make_tree(self.dir / "source", {f"sub/{i:03}.txt": content for i, content in enumerate(self.contents)})
        self.store = self.dir / "store.zr"
        zrfs("import", self.dir / "source", self.store)
        self.names = [f"sub/{i:03}.txt" for i in range(COUNT)]

    def told(self, name="delete"):
        return json.loads((self.mnt / name).read_bytes())

    def remove(self, doomed):
        """What a delete does to a list, and the lines that tell it."""
        lines, length = [], len(self.contents) - len(set(doomed))
        holes = sorted((i for i in set(doomed) if i < length), reverse=True)
        movers = [i for i in range(length, len(self.contents)) if i not in doomed]
        for hole, mover in zip(holes, reversed(movers)):
            self.contents[hole], self.names[hole] = self.contents[mover], self.names[mover]
            lines.append((mover, hole))
        del self.contents[length:], self.names[length:]
        return lines

    def moves(self, done):
        *moves, last = done.stdout.decode().splitlines()
        return sorted(tuple(map(int, move.split(" -> "))) for move in moves), last

    def assert_holds(self):
        """Mount and store hold what the model says."""
        for i, (content, name) in enumerate(zip(self.contents, self.names)):
            self.assertTrue((self.mnt / "records" / f"{i:08}.txt").read_bytes() == content, i)
            self.assertTrue((self.mnt / "tree" / name).read_bytes() == content, name)
        self.assertEqual(len(os.listdir(self.mnt / "records")), len(self.contents))
        self.assertTrue(zrfs("cat", self.store, f"0-{len(self.contents) - 1}").stdout == b"".join(self.contents))


class Reading(Live):
    def test_reading_commands_read_the_store_behind(self):
        with self.mount(self.store) as mount:
            for args in (
                ["ls"], ["ls", "--json", "3-5"], ["cat", "7", "1-2"], ["sample", "--mode", "shuffle"], ["verify", "--json"],
            ):
                with self.subTest(args=args):
                    command, *rest = args
                    at_store = zrfs(command, self.store, *rest)
                    at_mount = zrfs(command, mount.point, *rest)
                    self.assertEqual((at_mount.stdout, at_mount.stderr), (at_store.stdout, at_store.stderr))
            zrfs("export", mount.point, self.dir / "out")
            run("diff", "-r", self.dir / "source", self.dir / "out", check=0)

    def test_stats(self):
        with self.mount(self.store) as mount:
            mount.read(3, "txt")
            figures = json.loads(zrfs("stats", mount.point, "--json").stdout)
            self.assertEqual(figures, self.told("stats"))
            self.assertEqual((figures["records"], figures["counters"]["reads"]), (COUNT, 1))
            lines = zrfs("stats", mount.point).stdout.decode().splitlines()
            of_store = zrfs("stats", self.store).stdout.decode().splitlines()
            # What only the store's files tell is left out.
            self.assertEqual(lines[1:], [line for line in of_store[1:] if not line.startswith("apparent")])
            self.assertIn(str(mount.point), lines[0])

    def test_by_another_path_to_the_mount_point(self):
        os.symlink(self.mnt, self.dir / "link")
        with self.mount(self.store):
            self.assertEqual(json.loads(zrfs("stats", "link", "--json", cwd=self.dir).stdout), self.told("stats"))
            self.assertEqual(zrfs("cat", "mnt/../mnt/", "0", cwd=self.dir).stdout, self.contents[0])
            # What lies in a mount is no store.
            self.assert_clear(zrfs("stats", self.mnt / "records", check=None), "meta.zr")

    def test_the_topmost_mount_counts(self):
        other = import_folder(self.dir, "other.zr", [b"other"])
        with self.mount(self.store):
            zrfs("mount", other, self.mnt)
            self.assertEqual(zrfs("cat", self.mnt, "0").stdout, b"other")
            zrfs("umount", self.mnt)
            self.assertEqual(zrfs("cat", self.mnt, "0").stdout, self.contents[0])

    def test_append_and_mount_take_the_store_behind(self):
        make_tree(self.dir / "more", {"more.txt": b"more"})
        with self.mount(self.store) as mount:
            self.assert_clear(zrfs("import", self.dir / "more", mount.point, check=None), "exists already", "--append")
            zrfs("import", "--append", self.dir / "more", mount.point)
            self.assertEqual((mount.point / "tree/more.txt").read_bytes(), b"more")
            (self.dir / "second").mkdir()
            try:
                zrfs("mount", mount.point, self.dir / "second")
                self.assertEqual((self.dir / "second/tree/more.txt").read_bytes(), b"more")
            finally:
                clear_mount(self.dir / "second")

    def test_a_refusal_names_the_mount_and_what_to_do(self):
        # What a mount does itself, and what it does not.
        commands = [(["delete", self.store, "0"], True), (["compact", self.store], True), (["seal", self.store], False)]
        with self.mount(self.store):
            for command, itself in commands:
                done = zrfs(*command, check=None)
                self.assert_clear(done, f"zrfs umount {self.mnt}")
                self.assertEqual(f"or name {self.mnt} in the place of the store".encode() in done.stderr, itself, done.stderr)

    def test_seal_and_repair_are_refused_as_the_store_is_in_use(self):
        with self.mount(self.store) as mount:
            for args in (["seal"], ["repair"], ["seal", "--undo"]):
                command, *rest = args
                self.assert_clear(zrfs(command, mount.point, *rest, check=None), f"process {mount.pid}")


class Deleting(Live):
    def test_indices_and_names_and_a_list_on_standard_input(self):
        with self.mount(self.store) as mount:
            for args, doomed, given in (
                (["3", "7-9", "3"], [3, 7, 8, 9], b""),
                (["-"], [0, 1, 2, 30], b"0,1 2\n30\n"),
                (["--names", "-"], [5, 20], b"%s\n%s\n" % (b"sub/005.txt", b"sub/020.txt")),
                (["-0", "--names", "-"], [11], b"sub/011.txt\0"),
                (["-"], [], b""),
                (["--names", "-"], [], b""),
            ):
                with self.subTest(args=args):
                    doomed = [self.names.index(f"sub/{i:03}.txt") for i in doomed] if "--names" in args else doomed
                    moves = self.remove(doomed)
                    done = zrfs("delete", mount.point, *args, input=given)
                    told, last = self.moves(done)
                    self.assertEqual((told, done.stderr), (sorted(moves), b""))
                    self.assertEqual(sorted(map(tuple, self.told()["moves"])), sorted(moves))
                    plural = "record" if len(doomed) == 1 else "records"
                    self.assertEqual(last, f"{mount.point}: deleted {len(doomed)} {plural}, {len(self.contents)} left")
                    self.assert_holds()

    def test_a_list_of_many_pieces(self):
        many = import_folder(self.dir, "many.zr", [b"%d" % i for i in range(60_000)])
        with self.mount(many) as mount:
            doomed = range(0, 60_000, 2)
            done = zrfs("delete", mount.point, "-", input=b"\n".join(b"%d" % i for i in doomed))
            moves, last = self.moves(done)
            self.assertEqual((len(moves), last), (15_000, f"{mount.point}: deleted 30000 records, 30000 left"))
            self.assertEqual(json.loads((self.mnt / "stats").read_bytes())["records"], 30_000)
            values = sorted(int((self.mnt / "records" / name).read_bytes()) for name in os.listdir(mount.records)[:500])
            self.assertTrue(all(value % 2 for value in values))

    def test_refusals_delete_nothing(self):
        with self.mount(self.store) as mount:
            for args, status, words in (
                (["40"], 1, ["40"]), (["7", "99"], 1, ["99"]), (["seven"], 2, ["seven", "--names"]), (["9-7"], 2, ["9-7"]),
                (["--names", "-"], 1, ["sub/none", "nothing was done"]), (["0", "--with", self.dir / "other.zr"], 2, ["-o labels="]),
            ):
                with self.subTest(args=args):
                    done = zrfs("delete", mount.point, *args, check=None, input=b"sub/none\n")
                    self.assert_clear(done, *words, status=[status])
                    self.assertEqual(done.stdout, b"")
            other = import_folder(self.dir, "other.zr", self.contents)
            done = zrfs("delete", other, "0", "--with", mount.point, check=None)
            self.assert_clear(done, "-o labels=", status=[2])
            self.assertEqual(self.told()["batches"], 0)
            self.assert_holds()

    def test_a_batch_that_comes_in_between_makes_the_list_old(self):
        with self.mount(self.store) as mount:
            with subprocess.Popen(
                [ZRFS, "delete", mount.point, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            ) as late:
                held = f"/proc/{late.pid}/fd"
                wait_until(lambda: os.fsencode(mount.point / "delete") in links(held), "it has opened delete")
                self.remove([3])
                zrfs("delete", mount.point, "3")
                out, err = late.communicate(b"4\n", timeout=30)
            self.assert_clear(subprocess.CompletedProcess([], late.returncode, out, err), "old", "not applied")
            self.assert_holds()

    def test_a_store_that_others_read(self):
        with self.mount(self.store) as mount:
            with subprocess.Popen([ZRFS, "cat", self.store, "-"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as reader:
                wait_until(lambda: os.fsencode(self.store / "meta.zr") in links(f"/proc/{reader.pid}/fd"), "it has the store open")
                self.assert_clear(zrfs("delete", mount.point, "0", check=None), f"process {reader.pid}", "not applied")
                self.assert_clear(zrfs("compact", mount.point, check=None), f"process {reader.pid}")
                reader.communicate(b"0\n", timeout=30)
            self.remove([0])
            zrfs("delete", mount.point, "0")
            self.assert_holds()

    def test_labels_follow(self):
        labels = import_folder(self.dir, "labels.zr", [b"%d" % i for i in range(COUNT)])
        with self.mount(self.store, "-o", f"labels={labels}") as mount:
            self.remove([2, 4])
            zrfs("delete", mount.point, "2", "4")
            self.assert_holds()
            of_labels = [int(content[1:content.index(b">")]) for content in self.contents]
            self.assertEqual(zrfs("cat", labels, "0-37").stdout, b"".join(b"%d" % i for i in of_labels))

    def test_a_closed_pipe_is_silent(self):
        with self.mount(self.store) as mount:
            script = '"$0" delete "$1" 0-19 | true; echo "${PIPESTATUS[0]}"'
            done = run("bash", "-c", script, ZRFS, mount.point, check=0)
            self.assertEqual((done.stderr, done.stdout.strip() in (b"0", b"141")), (b"", True))
            self.assertEqual(self.told()["deleted"], 20)


def links(folder):
    found = []
    for name in os.listdir(folder):
        try:
            found.append(os.readlink(os.path.join(os.fsencode(folder), os.fsencode(name))))
        except OSError:
            pass
    return found


class Compacting(Live):
    def test_it_waits_for_the_end_and_tells_what_was_done(self):
        with self.mount(self.store) as mount:
            self.remove(range(20))
            zrfs("delete", mount.point, "0-19")
            self.assertGreater(self.told("stats")["reclaimable"], 0)
            done = zrfs("compact", mount.point)
            status = self.told("compact")
            self.assertEqual(status["state"], "done")
            line = done.stdout.decode().strip()
            self.assertTrue(line.startswith(f"{mount.point}: moved {status['records_moved']} record"), line)
            self.assertEqual((done.stderr, self.told("stats")["reclaimable"]), (b"", 0))
            self.assert_holds()
            self.assert_clear(zrfs("compact", mount.point, "--accept", check=None), "--accept", status=[2])

    def test_an_interruption_ends_the_waiting_alone(self):
        big = import_folder(self.dir, "big.zr", [noise(1 << 20, i) for i in range(64)], "--codec", "raw")
        with self.mount(big) as mount:
            zrfs("delete", mount.point, "0-3")
            with subprocess.Popen(
                [ZRFS, "compact", mount.point], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            ) as process:
                wait_until(lambda: self.told("compact")["state"] != "idle", "it has begun")
                process.send_signal(signal.SIGINT)
                out, err = process.communicate(timeout=30)
            # A machine that is fast enough was done before.
            if process.returncode:
                self.assert_clear(subprocess.CompletedProcess([], process.returncode, out, err), "goes on", "compact")
            wait_until(lambda: self.told("compact")["state"] == "done", "it ends all the same", 60)


class Refusing(Live):
    def refused(self, *words):
        for args in (["delete", self.mnt, "0"], ["compact", self.mnt]):
            with self.subTest(args=args[0]):
                self.assert_clear(zrfs(*args, check=None), *words)

    def test_read_only_mounts(self):
        for option in ("ro", "dataonly"):
            with self.subTest(option=option), self.mount(self.store, "-o", option) as mount:
                self.refused("read-only", str(mount.point))
                self.assertNotIn(b"(read-only)", mount.done.stdout)
                self.assert_holds()
                self.assertEqual(json.loads(zrfs("stats", mount.point, "--json").stdout)["records"], COUNT)

    def test_a_file_system_that_is_read_only(self):
        self.need_root()
        frozen = self.dir / "frozen"
        frozen.mkdir()
        run("mount", "--bind", self.dir, frozen, check=0)
        try:
            run("mount", "-o", "remount,bind,ro", frozen, check=0)
            with self.mount(frozen / "store.zr") as mount:
                self.assertEqual(mount.done.stderr, b"")
                self.assertTrue(mount.done.stdout.endswith(b" (read-only)\n"), mount.done.stdout)
                self.refused("read-only")
                self.assert_errno([errno.EROFS], os.open, mount.point / "delete", os.O_WRONLY)
        finally:
            run("umount", "-l", frozen, check=0)

    def test_a_mount_whose_daemon_was_killed(self):
        with self.mount(self.store) as mount:
            os.kill(mount.pid, signal.SIGKILL)
            wait_until(lambda: not daemons(self.mnt), "the daemon is gone")
            for args in (["stats", self.mnt], ["delete", self.mnt, "0"], ["compact", self.mnt], ["ls", self.mnt], ["verify", self.mnt]):
                with self.subTest(args=args[0]):
                    self.assert_clear(zrfs(*args, check=None), "dead", str(self.mnt), "umount")

    def test_a_store_that_was_renamed(self):
        with self.mount(self.store) as mount:
            os.rename(self.store, self.dir / "elsewhere.zr")
            self.assert_clear(zrfs("ls", mount.point, check=None), str(self.store), "reached")
            # What needs no path goes on.
            self.remove([1])
            zrfs("delete", mount.point, "1")
            zrfs("compact", mount.point)
            self.assertEqual(json.loads(zrfs("stats", mount.point, "--json").stdout)["records"], COUNT - 1)
            # Another one in its place has other names.
            zrfs("import", self.dir / "source", self.store)
            for args in (["ls", mount.point], ["delete", mount.point, "--names", "-"]):
                done = zrfs(*args, check=None, input=b"sub/001.txt\n")
                self.assert_clear(done, str(self.store), "another one is now")
            self.store = self.dir / "elsewhere.zr"
            self.assert_holds()

    def test_labels_that_were_renamed(self):
        labels = import_folder(self.dir, "labels.zr", [b"%d" % i for i in range(COUNT)])
        with self.mount(self.store, "-o", f"labels={labels}") as mount:
            os.rename(labels, self.dir / "elsewhere.zr")
            self.assert_clear(zrfs("delete", mount.point, "1", check=None), "not applied", "labels.zr")
            self.assertEqual((self.told()["batches"], self.told()["deleted"]), (0, 0))
            self.assert_holds()
            os.rename(self.dir / "elsewhere.zr", labels)
            self.remove([1])
            zrfs("delete", mount.point, "1")
            self.assert_holds()


class Others(Live):
    """Users other than the owner of the mount."""

    def setUp(self):
        super().setUp()
        self.program = self.open_to_nobody(self.store)

    def nobody(self, *args, check=None):
        return run(*as_nobody(self.program, *args), check=check, cwd="/")

    def test_they_read_and_do_not_change(self):
        with self.mount(self.store, "-o", "allow_other") as mount:
            self.assertEqual(json.loads(self.nobody("stats", mount.point, "--json", check=0).stdout)["records"], COUNT)
            self.assertEqual(self.nobody("cat", mount.point, "3", check=0).stdout, self.contents[3])
            for args in (["delete", mount.point, "0"], ["compact", mount.point]):
                self.assert_clear(self.nobody(*args), "owner", "root")
            self.assert_holds()

    def test_the_owner_that_was_named_changes(self):
        with self.mount(self.store, "-o", f"allow_other,uid={NOBODY}") as mount:
            self.remove([0])
            self.nobody("delete", mount.point, "0", check=0)
            self.nobody("compact", mount.point, check=0)
            self.assert_holds()
            self.remove([0])
            zrfs("delete", mount.point, "0")
            self.assert_holds()

    def test_who_may_not_write_to_a_store_mounts_it_read_only(self):
        self.mnt.mkdir()
        os.chown(self.mnt, NOBODY, NOBODY)
        try:
            done = self.nobody("mount", self.store, self.mnt, check=0)
            self.assertEqual(done.stderr, b"")
            self.assertTrue(done.stdout.endswith(b" (read-only)\n"), done.stdout)
            for args in (["delete", self.mnt, "0"], ["compact", self.mnt]):
                self.assert_clear(self.nobody(*args), "read-only")
            self.nobody("umount", self.mnt, check=0)
            wait_until(lambda: not is_mounted(self.mnt), "the mount is gone")
        finally:
            clear_mount(self.mnt)


if __name__ == "__main__":
    unittest.main()
