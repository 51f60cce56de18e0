"""Jobs of `coshard run` for its tests, whose command lines are all COSHARD QUICKSTART TRAIN RUN_PROGRAM MPI."""
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

import parallel_cases

COSHARD, QUICKSTART, TRAIN, RUN_PROGRAM, MPI = sys.argv[1:6]
MOST = 3.0  # seconds from the death of a rank to the end of the job
NOISE = 3.0  # of a machine that does other things
MARK = "COSHARD_RUN_TEST_MARK"
PYTHON = os.path.realpath(sys.executable)
# Jobs obey signals also where this test was started without (nohup, a script's background).
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_DFL)
# How a rank knows which it is, in programs of one line.
RANK = "import os, signal, sys, time; rank = int(os.environ.get('OMPI_COMM_WORLD_RANK', os.environ.get('PMI_RANK'))); "


def marked(mark):
    """Processes with this mark in their environment."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as environ, open(f"/proc/{pid}/cmdline", "rb") as line:
                if mark.encode() in environ.read():
                    found.append((int(pid), line.read().replace(b"\0", b" ").decode()))
        except OSError:
            pass
    return found


class Job:
    """One `coshard run`, in a session of its own as from a terminal, with stdout and stderr in files, or where `streams` says.

    stdin: its bytes, or a descriptor."""

    def __init__(self, *words, stdin=b"", **streams):
        self.mark = str(uuid.uuid4())
        self.files = [tempfile.TemporaryFile() for _ in range(2)]
        if isinstance(stdin, bytes):
            self.files.append(tempfile.TemporaryFile())
            self.files[2].write(stdin)
            self.files[2].seek(0)
            stdin = self.files[2]
        streams = {"stdin": stdin, "stdout": self.files[0], "stderr": self.files[1], **streams}
        self.started = subprocess.Popen([COSHARD, "run", "--mpi", MPI, *words], env={**os.environ, MARK: self.mark}, start_new_session=True,
                                        **streams)

    def text(self, which):
        size = os.fstat(self.files[which].fileno()).st_size
        return os.pread(self.files[which].fileno(), size, 0).decode()

    def wait_for(self, count, text):
        end = time.time() + 90
        while self.text(0).count(text) < count:
            if self.started.poll() is not None or time.time() > end:
                raise AssertionError(f"no {count} times {text!r} in {self.text(0)!r}; stderr: {self.text(1)!r}")
            time.sleep(0.02)

    def end(self):
        try:
            self.code = self.started.wait(90)
        finally:
            self.ended = time.time()
            self.started.kill()
            end = time.time() + 10  # what was killed may take its time
            while (left := marked(self.mark)) and time.time() < end:
                time.sleep(0.02)
            self.left = left
            for pid, _ in self.left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.out, self.err = self.text(0), self.text(1)
        for file in self.files:
            file.close()
        return self


class Jobs(unittest.TestCase):
    def job(self, *words, **streams):
        return Job(*words, **streams).end()

    def check(self, job, code, last=None):
        """Its exit code and last line, and that nothing of it is left."""
        told = f"stdout: {job.out[:2000]}\nstderr: {job.err[-2000:]}"
        self.assertEqual(job.left, [], told)
        self.assertEqual(job.code, code, told)
        if last is not None:
            self.assertEqual(job.err.splitlines()[-1], last, told)


def main():
    if shutil.which(f"mpirun.{MPI}") is None:
        print(f"skipped: there is no mpirun.{MPI}")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[6:]], testRunner=parallel_cases.Runner(4))
