#!/usr/bin/env python3
"""Checkpoints on disks that fail, and of programs that are killed: resuming finds the old step or the new one, whole.

usage: checkpoint_faults_test.py CHECKPOINT_JOB

A job's own calls are recorded (recorded_disk.h) and replayed on a model of a disk that may lose or reorder whatever was not
synced: data, sizes, and names in folders.
"""
import errno
import os
import pathlib
import random
import re
import socket
import subprocess
import sys
import tempfile
import unittest

JOB = os.path.abspath(sys.argv[1])
RANKS = "2"
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # where a sync costs nothing


def run(*args, check=True, text=None, **environment):
    done = subprocess.run([JOB, *map(str, args)], input=text, capture_output=True, text=True, timeout=300,
                          env={**os.environ, **{name: str(value) for name, value in environment.items()}})
    if check and done.returncode != 0:
        raise AssertionError(f"{args}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def last_saved(text, otherwise=0):
    return int((re.findall(r"saved (\d+)", text) or [otherwise])[-1])


class File:
    def __init__(self):
        self.synced, self.pending = b"", []  # functions of bytes

    def sync(self):
        self.synced, self.pending = self.now(lambda *_: True, 0), []

    def now(self, happened, depth):
        data = bytearray(self.synced)
        for kind, at, new in self.pending:
            if not happened(kind, depth):
                continue
            end = at + len(new)
            if len(data) < end:
                data.extend(bytes(end - len(data)))
            if kind == "cut":
                del data[at:]
            elif kind == "data":
                data[at:end] = new
        return bytes(data)


class Folder:
    def __init__(self):
        self.synced, self.entries, self.pending = {}, {}, []

    def change(self, gone, name, node):
        """One step of a journal: a name goes, another comes; either may be None."""
        self.pending.append((gone, name, node))
        self.apply(self.entries, self.pending[-1])

    @staticmethod
    def apply(entries, change):
        gone, name, node = change
        if gone is not None:
            entries.pop(gone, None)
        if name is not None:
            entries[name] = node

    def sync(self):
        self.synced, self.pending = dict(self.entries), []

    def now(self, happened, depth):
        entries = dict(self.synced)
        for change in self.pending:
            if happened("name", depth):
                self.apply(entries, change)
        return entries


class Disk:
    """Replays a record; `unsynced`: the number of a sync that is left out."""

    def __init__(self, root, unsynced=None):
        self.root, self.top, self.syncs, self.unsynced = root, Folder(), -1, unsynced

    def at(self, path):
        node = self.top
        for part in pathlib.PurePath(path).relative_to(self.root).parts:
            node = node.entries[part]
        return node

    def play(self, line):
        call, *args = line.split(" ")
        if call == "note":
            return
        path = pathlib.PurePath(args[0])
        if call in ("mkdir", "create"):
            self.at(path.parent).change(None, path.name, Folder() if call == "mkdir" else File())
        elif call in ("unlink", "rmdir"):
            self.at(path.parent).change(path.name, None, None)
        elif call == "rename":
            self.at(path.parent).change(path.name, pathlib.PurePath(args[1]).name, self.at(path))
        elif call == "write":
            self.at(path).pending.append(("data", int(args[1]), bytes.fromhex(args[2])))
        elif call == "allocate":
            self.at(path).pending.append(("size", 0, bytes(int(args[1]))))
        elif call == "size":
            self.at(path).pending.append(("cut", int(args[1]), b""))
        elif call == "sync":
            self.syncs += 1
            if self.syncs != self.unsynced:
                self.at(path).sync()
        else:
            raise AssertionError(line)

    def crash(self, happened):
        """What is there after the power was cut: bytes by path; None of a folder."""
        found = {}

        def look(node, path, depth):
            for name, child in node.now(happened, depth).items():
                if isinstance(child, Folder):
                    found[f"{path}{name}"] = None
                    look(child, f"{path}{name}/", depth + 1)
                else:
                    found[f"{path}{name}"] = child.now(happened, depth) if name != ".lock" else b""

        look(self.top, "", 0)
        return tuple(sorted(found.items()))


def crashes(draws):
    """Which of what was not synced has happened, by kind and depth of the folder."""
    yield lambda kind, depth: False
    yield lambda kind, depth: True
    yield lambda kind, depth: kind not in ("name", "cut")
    for deepest in range(4):
        yield lambda kind, depth: kind != "data" and depth <= deepest
    for seed in range(draws):
        draw = random.Random(seed)
        yield lambda kind, depth: draw.random() < 0.5


class Outcomes:
    """What the job finds after each crash; each state of the disk is tried once."""

    def __init__(self, scratch):
        self.scratch, self.known, self.waiting = scratch, {}, []

    def ask(self, state):
        if state not in self.known:
            self.known[state] = None
            self.waiting.append(state)

    def find(self):
        folders = []
        for number, state in enumerate(self.waiting):
            top = pathlib.Path(self.scratch, f"{len(self.known)}-{number}")
            top.mkdir()
            for path, data in state:
                (top / path).mkdir() if data is None else (top / path).write_bytes(data)
            folders.append(top / "runs/a")
        said = run("check", text="".join(f"{folder}\n" for folder in folders)).stdout.splitlines()
        assert len(said) == len(folders), (len(said), len(folders))
        self.known.update(zip(self.waiting, said))
        self.waiting = []


class Faults(unittest.TestCase):
    background = {}  # of the environment

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="coshard-faults-", dir=MEMORY)
        self.addCleanup(scratch.cleanup)
        self.scratch = scratch.name
        self.root = os.path.join(self.scratch, "disk")
        os.mkdir(self.root)
        self.folder = os.path.join(self.root, "runs/a")

    def record(self, last):
        record = os.path.join(self.scratch, "record")
        run("train", self.folder, RANKS, last, **self.background, DISK_FOLDER=self.root, DISK_RECORD=record)
        return pathlib.Path(record).read_text(encoding="utf-8").splitlines()

    def losses(self, lines, outcomes, draws, unsynced=None):
        """States of the disk, with the steps that one may resume from there, at every point of the record."""
        disk, saved = Disk(self.root, unsynced), 0
        states = []
        for line in lines:
            disk.play(line)
            saved = last_saved(line, saved)
            for happened in crashes(draws):
                states.append((disk.crash(happened), (saved, saved + 1), line))
                outcomes.ask(states[-1][0])
        return states

    def wrong(self, states, outcomes):
        return [(outcomes.known[state], steps, line[:200]) for state, steps, line in states
                if outcomes.known[state] not in [f"resumed {step}" for step in steps]]

    def test_S12b_a_disk_that_forgets_what_was_not_synced(self):
        lines = self.record(3)
        outcomes = Outcomes(self.scratch)
        states = self.losses(lines, outcomes, 12)
        outcomes.find()
        print(f"{len(lines)} calls, {len(states)} crashes, {len(outcomes.known)} states of the disk")
        self.assertEqual(self.wrong(states, outcomes), [])

        # Each sync is needed: without it, some crash loses a step or leaves half of one.
        syncs = [line.split(" ")[1] for line in lines if line.startswith("sync ")]
        without = [self.losses(lines, outcomes, 2, number) for number in range(len(syncs))]
        outcomes.find()
        needless = {re.sub(r"\d+", "N", os.path.relpath(path, self.root))
                    for path, states in zip(syncs, without) if not self.wrong(states, outcomes)}
        # The mark says whose the remains of a save are; the other removes it.
        self.assertEqual(needless, {"runs/a/step-N.part/.saving", "runs/a/step-N"})

    def end_of(self, saved):
        """After a fault: one of two steps is there, whole, and training goes on."""
        found = run("check", text=self.folder + "\n").stdout.strip()
        self.assertIn(found, [f"resumed {saved}", f"resumed {saved + 1}"])
        after = run("train", self.folder, RANKS, 5)
        self.assertEqual(after.stdout.splitlines()[0], found)
        self.assertEqual(sorted(os.listdir(self.folder)), [".lock", "step-4", "step-5"])

    def each_fault(self, faulty):
        """Calls faulty(number) for 1, 2, … until it returns False three times: a job may do without a call. How often it did not."""
        number = faults = without = 0
        while without < 3:
            number += 1
            self.folder = os.path.join(self.root, f"{number}-{random.random()}")
            run("train", self.folder, RANKS, 1)
            if faulty(number):
                faults, without = faults + 1, 0
            else:
                without += 1
        return faults

    def test_S12_killed_at_each_call(self):
        def killed(number):
            done = run("train", self.folder, RANKS, 3, check=False, **self.background, DISK_FOLDER=self.root, DISK_KILL=number)
            if done.returncode == 0:
                return False
            self.end_of(last_saved(done.stdout, 1))
            return True

        self.assertGreater(self.each_fault(killed), 50)

    def test_S15_each_call_that_fails(self):
        times = {}
        for call, code in (("create", errno.EACCES), ("mkdir", errno.EROFS), ("allocate", errno.ENOSPC), ("write", errno.EIO),
                           ("sync", errno.EIO), ("rename", errno.EIO), ("unlink", errno.EIO), ("rmdir", errno.EBUSY)):

            def failed(number, call=call, code=code):
                done = run("train", self.folder, RANKS, 3, check=False, **self.background, DISK_FOLDER=self.root, DISK_FAIL=f"{call}:{number}:{code}")
                if done.returncode == 0:  # the call was not made so often, or it removes an old step, which is tried again
                    warned = done.stderr.startswith("warning: " + self.folder)
                    if warned:
                        self.assertIn(os.strerror(code), done.stderr)
                        self.end_of(3)
                    return warned
                self.assertEqual(done.returncode, 1)
                self.assertRegex(done.stderr, r"\Aerror: .*rank \d: " + re.escape(self.folder) + r"[^\n]*\n\Z")
                self.assertIn(os.strerror(code) if call != "allocate" else "bytes, the disk has", done.stderr)
                if call not in ("unlink", "rmdir"):  # which remove it
                    self.assertFalse([name for name in os.listdir(self.folder) if name.endswith(".part")])
                self.end_of(last_saved(done.stdout, 1))
                return True

            times[call] = self.each_fault(failed)
        print("faults:", times)
        self.assertGreater(min(times.values()), 0)

    def mount(self, *options):
        place = os.path.join(self.scratch, "mounted")
        os.makedirs(place, exist_ok=True)
        done = subprocess.run(["mount", *options, "-t", "tmpfs", "tmpfs", place], capture_output=True, text=True)
        if done.returncode != 0:
            self.skipTest("cannot mount: " + done.stderr.strip())
        self.addCleanup(subprocess.run, ["umount", "-l", place])
        return place

    def test_S14_a_full_disk(self):
        self.folder = os.path.join(self.mount("-o", "size=48k"), "a")
        done = run("train", self.folder, RANKS, 9, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"\Aerror: .*rank 0: [^\n]* needs \d+ bytes, the disk has \d+\n\Z")
        saved = last_saved(done.stdout)
        self.assertEqual(run("check", text=self.folder + "\n").stdout, f"resumed {saved}\n")
        self.assertFalse([name for name in os.listdir(self.folder) if name.endswith(".part")])

    def test_a_limit_of_the_process(self):
        done = subprocess.run(["bash", "-c", f"ulimit -f 3; exec {JOB} train {self.folder} {RANKS} 3"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, r"\Aerror: .*rank 0: [^\n]*File too large\n\Z")

    def test_a_folder_that_was_moved(self):
        with subprocess.Popen([JOB, "train", self.folder, RANKS, "1000000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as job:
            while not job.stdout.readline().startswith("saved"):
                self.assertIsNone(job.poll())
            os.rename(self.folder, self.folder + "-moved")
            os.mkdir(self.folder)
            _, errors = job.communicate(timeout=60)
        self.assertEqual(job.returncode, 1)
        self.assertIn(self.folder, errors)
        self.assertEqual(errors.count("\n"), 1)

    def test_S21_a_read_only_folder(self):
        place = self.mount()
        self.folder = os.path.join(place, "a")
        run("train", self.folder, RANKS, 1)
        subprocess.run(["mount", "-o", "remount,ro", place], check=True)
        done = run("train", self.folder, RANKS, 3, check=False)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("Read-only file system", done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1)

    def test_S20_two_jobs_in_one_folder(self):
        with subprocess.Popen([JOB, "train", self.folder, RANKS, "1000000"], stdout=subprocess.PIPE, text=True) as first:
            while not first.stdout.readline().startswith("saved"):
                self.assertIsNone(first.poll())
            second = run("train", self.folder, RANKS, 9, check=False)
            self.assertEqual((second.returncode, second.stdout), (1, ""))
            self.assertIn(f"process {first.pid} on host {socket.gethostname()} saves there", second.stderr)
            first.kill()
            first.wait()
            saved = last_saved(first.stdout.read(), 1)
        found = run("train", self.folder, RANKS, saved + 3).stdout
        self.assertRegex(found, rf"\Aresumed ({saved}|{saved + 1})\n")


class InBackground(Faults):
    """The same of saves that are written while the program goes on."""

    background = {"BACKGROUND": 1}


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    unittest.main(verbosity=2)
