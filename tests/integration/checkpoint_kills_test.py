#!/usr/bin/env python3
"""Jobs of two processes that are killed at random times while they save: resumed, they have the losses of one that was not.

usage: checkpoint_kills_test.py MPI CHECKPOINT_JOB      MPI: openmpi, mpich; exit code 77: its launcher is not there

COSHARD_KILLS=200: how many times; COSHARD_FIRST_SEED=7: another draw of them.
"""
import contextlib
import itertools
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

MPI, JOB = sys.argv[1:3]
KILLS = int(os.environ.get("COSHARD_KILLS", 10))
SEED = int(os.environ.get("COSHARD_FIRST_SEED", 1))
LAST = 60  # steps of a training
# Without cross-memory attach of UCX, which ends a process that reads from one that has died.
ENV = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "UCX_TLS": "posix,sysv,self"}
START = {
    "openmpi": ["mpirun.openmpi", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1"],
    "mpich": ["mpirun.mpich"],
}[MPI]


def unfinished(folder):
    """What says that a save is under way: of a step, or the removal of an old one."""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return [name for name in names if name.endswith((".part", ".old"))]


class Training:
    """A job that trains up to LAST, resuming from the folder, and what it has told."""

    def __init__(self, folder, background):
        environment = {**ENV, "BACKGROUND": "1"} if background else ENV
        self.folder = folder
        self.streams = [tempfile.TemporaryFile() for _ in range(2)]
        self.job = subprocess.Popen([*START, "-n", "2", JOB, "losses", folder, str(LAST)], env=environment, stdout=self.streams[0],
                                    stderr=self.streams[1], start_new_session=True)

    def text(self, which=0):
        if isinstance(self.streams[which], str):
            return self.streams[which]
        return os.pread(self.streams[which].fileno(), os.fstat(self.streams[which].fileno()).st_size, 0).decode()

    def told(self):
        """By step; what a dying process left unfinished of its last line does not count."""
        whole = self.text().rpartition("\n")[0] + "\n"
        return {int(step): loss for step, loss in re.findall(r"^loss (\d+) (\S+)$", whole, re.MULTILINE)}

    def resumed(self):
        found = re.search(r"^resumed (\d+)$", self.text(), re.MULTILINE)
        return int(found.group(1)) if found else None

    def pids(self):
        return [int(pid) for _, pid in sorted(re.findall(r"^rank (\d) is process (\d+)$", self.text(), re.MULTILINE))]

    def wait_for_steps(self):
        end = time.time() + 60
        while (self.resumed() is None or len(self.pids()) < 2) and self.job.poll() is None and time.time() < end:
            time.sleep(0.002)
        return self.resumed() is not None

    def wait_for_a_save(self):
        end = time.time() + 5
        while not unfinished(self.folder) and self.job.poll() is None and time.time() < end:
            pass

    def kill(self, ranks):
        """Returns what was being saved. All are stopped first, so that it is of the time of their death."""
        pids = self.pids()
        with contextlib.suppress(ProcessLookupError):
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
        saving = unfinished(self.folder)
        for number, whom in ((signal.SIGKILL, [pids[rank] for rank in ranks]), (signal.SIGCONT, pids)):
            for pid in whom:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        return saving

    def end(self):
        code = self.job.wait(60)
        texts = [self.text(which) for which in range(2)]
        for stream in self.streams:
            stream.close()
        self.streams = texts
        return code


class Kills(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="coshard-kills-")
        self.addCleanup(scratch.cleanup)
        self.folders = (os.path.join(scratch.name, str(number)) for number in itertools.count())
        self.draw = random.Random(SEED)

    def train(self, folder, background):
        """To the end; also how long it took."""
        training = Training(folder, background)
        training.wait_for_steps()
        begin = time.time()
        self.assertEqual(training.end(), 0, training.streams)
        return training, time.time() - begin

    def killed(self, background):
        whole, seconds = self.train(next(self.folders), background)
        losses = whole.told()
        self.assertEqual(sorted(losses), list(range(1, LAST + 1)))
        kills = during = resumed = 0
        folder, newest = next(self.folders), 0
        while kills < KILLS:
            training = Training(folder, background)
            steps = training.wait_for_steps()
            time.sleep(self.draw.uniform(0, seconds / 3))
            if self.draw.random() < 0.5:
                training.wait_for_a_save()
            saving = training.kill(self.draw.choice(([0], [1], [0, 1])))
            code = training.end()
            self.assertTrue(steps, training.streams)
            told = training.told()
            self.assertEqual(told, {step: losses[step] for step in told}, f"after step {training.resumed()}")
            self.assertGreaterEqual(training.resumed(), newest)
            # When a step ends, the one before was saved; in the background, the one before that.
            newest = max([training.resumed(), *(step - 1 - background for step in told)])
            resumed += training.resumed() > 0
            if code == 0:  # was too late for it
                folder, newest = next(self.folders), 0
            else:
                kills, during = kills + 1, during + bool(saving)
        last = self.train(folder, background)[0]
        self.assertGreaterEqual(last.resumed(), newest)
        self.assertEqual(last.told(), {step: losses[step] for step in range(last.resumed() + 1, LAST + 1)})
        print(f"{kills} kills, {during} of them during saves; {resumed} trainings resumed")
        self.assertGreaterEqual(4 * during, kills)
        self.assertGreaterEqual(2 * resumed, kills)

    def test_S13_killed_while_it_saves(self):
        self.killed(background=False)

    def test_S13_killed_while_it_saves_in_the_background(self):
        self.killed(background=True)


if __name__ == "__main__":
    if shutil.which(START[0]) is None:
        print(f"skipped: there is no {START[0]}")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
