#!/usr/bin/env python3
"""`coshard run` with each MPI where its stdin, stdout and stderr are not as usual: nobody reads, reads slowly or no longer, or they are closed.

usage: run_streams_test.py COSHARD QUICKSTART TRAIN RUN_PROGRAM MPI      MPI: openmpi, mpich; exit code 77: its launcher is not there
"""
import fcntl
import os
import signal
import struct
import subprocess
import termios
import time

from run_job import COSHARD, MPI, MOST, NOISE, PYTHON, RANK, Job, Jobs, main, marked

FLOODS = RANK + "[print('x' * 999) for i in iter(int, 1)]"
READERS = ({}, {"stderr": subprocess.STDOUT})  # of stdout alone, of both


class Unread(Job):
    """What it writes to goes to a pipe that nobody reads."""

    def __init__(self, *words, **streams):
        self.reader, writer = os.pipe()
        super().__init__(*words, stdout=writer, **streams)
        os.close(writer)

    def held(self):
        return struct.unpack("i", fcntl.ioctl(self.reader, termios.FIONREAD, bytes(4)))[0]

    def wait_until_full(self):
        """Until no more comes, and a moment longer, for what is behind it to fill up too."""
        end, held = time.time() + 60, -1
        while held < 30_000 or self.held() > held:
            if self.started.poll() is not None or time.time() > end:
                raise AssertionError(f"it wrote {self.held()} bytes, and to stderr {self.text(1)!r}")
            held = self.held()
            time.sleep(0.5)

    def end(self):
        super().end()
        os.close(self.reader)
        return self


class Streams(Jobs):
    # Nobody reads

    def check_prompt(self, job, begin):
        print(f'{self._testMethodName}: over {job.ended - begin:.2f} s later')
        self.assertLess(job.ended - begin, MOST + NOISE)

    def test_a_signal_ends_a_job_whose_output_nobody_reads(self):
        for streams in READERS:
            for name in ("SIGINT", "SIGTERM"):
                job = Unread("-n", "2", PYTHON, "-c", FLOODS, **streams)
                job.wait_until_full()
                job.started.send_signal(getattr(signal, name))
                begin = time.time()
                self.check(job.end(), 128 + getattr(signal, name))
                self.check_prompt(job, begin)
                if not streams:
                    self.assertRegex(job.err, rf"warning: nobody reads stdout; its last \d+ bytes are lost\nerror: rank \d was killed by {name}\n$")

    def test_a_rank_that_fails_ends_a_job_whose_output_nobody_reads(self):
        fails = RANK + "signal.signal(signal.SIGUSR1, lambda *_: (print('last words', file=sys.stderr), sys.exit(5)))\nwhile rank == 1: time.sleep(0.1)\n"
        for streams in READERS:
            job = Unread("-n", "3", PYTHON, "-c", fails + FLOODS, **streams)
            job.wait_until_full()
            for pid, line in marked(job.mark):
                with open(f"/proc/{pid}/environ", encoding="ascii", errors="replace") as environ:
                    variables = environ.read().split("\0")
                if line.startswith(PYTHON) and ("OMPI_COMM_WORLD_RANK=1" in variables or "PMI_RANK=1" in variables):
                    os.kill(pid, signal.SIGUSR1)
            begin = time.time()
            self.check(job.end(), 5, None if streams else "error: rank 1 exited with code 5: last words")
            self.check_prompt(job, begin)

    def test_a_signal_ends_what_only_waits_for_a_reader(self):
        job = Unread("-n", "2", PYTHON, "-c", RANK + "print('x' * 150_000)")  # which the guards and `coshard run` hold
        job.wait_until_full()
        end = time.time() + 60
        while [line for _, line in marked(job.mark) if line.startswith(PYTHON)] and time.time() < end:
            time.sleep(0.05)
        self.assertIsNone(job.started.poll())  # without one it waits
        job.started.send_signal(signal.SIGTERM)
        begin = time.time()
        self.check(job.end(), 1, "error: output could not be written: Interrupted system call")
        self.check_prompt(job, begin)

    def test_programs_wait_for_a_reader_and_nothing_grows_meanwhile(self):
        job = Unread("-n", "2", PYTHON, "-c", FLOODS)
        job.wait_until_full()
        before = self.memory(job)
        time.sleep(2)
        self.assertLess(self.memory(job) - before, 4096)
        job.started.terminate()
        job.end()

    def memory(self, job):
        """KiB that are resident, of all its processes."""
        total = 0
        for pid, _ in marked(job.mark):
            with open(f"/proc/{pid}/statm", encoding="ascii") as statm:
                total += int(statm.read().split()[1]) * 4
        return total

    # A slow reader, and one that goes

    def test_a_slow_reader_gets_all_that_a_job_that_fails_has_written(self):
        program = "import sys; sys.stdout.write(('x' * 63 + '\\n') * 8_000); sys.stdout.flush(); sys.exit(3)"
        command = [COSHARD, "run", "--mpi", MPI, "-n", "1", "--no-prefix", PYTHON, "-c", program]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
            begin, size = time.time(), 0
            while piece := run.stdout.read1(4096):
                size += len(piece)
                time.sleep(0.05)
            self.assertEqual((run.wait(60), size, run.stderr.read()), (3, 8_000 * 64, b"error: rank 0 exited with code 3\n"))
            self.assertGreater(time.time() - begin, MOST)

    def test_a_reader_that_goes_ends_the_job(self):
        job = Unread("-n", "2", PYTHON, "-c", FLOODS)
        job.wait_until_full()
        os.close(job.reader)
        job.reader = os.open("/dev/null", os.O_RDONLY)
        begin = time.time()
        self.check(job.end(), 128 + signal.SIGPIPE, "error: output could not be written: Broken pipe")
        self.check_prompt(job, begin)

    def test_a_full_disk_is_an_error(self):
        with open("/dev/full", "wb") as full:
            job = Job("-n", "2", "echo", "text", stdout=full).end()
        self.check(job, 1, "error: output could not be written: No space left on device")

    def test_sigpipe_is_as_usual_for_programs(self):
        job = self.job("-n", "2", "--no-prefix", "grep", "SigIgn", "/proc/self/status")
        self.check(job, 0)
        for line in job.out.splitlines():
            self.assertEqual(int(line.split()[1], 16) >> (signal.SIGPIPE - 1) & 1, 0, job.out)

    # Closed ones

    def test_closed_streams_do_no_harm(self):
        program = RANK + "print(rank); print(sys.stdin.read() or 'nothing', rank, file=sys.stderr); sys.exit(3 if rank == 1 else 0)"
        for closed in ((0,), (1,), (2,), (0, 1, 2)):
            job = Job("-n", "2", PYTHON, "-c", program, stdin=b"", preexec_fn=lambda fds=closed: [os.close(fd) for fd in fds]).end()
            self.check(job, 3)
            self.assertEqual(sorted(job.out.splitlines()), [] if 1 in closed else ["[0] 0", "[1] 1"], closed)
            lines = [] if 2 in closed else ["[0] nothing 0", "[1] nothing 1", "error: rank 1 exited with code 3: nothing 1"]
            self.assertEqual(sorted(job.err.splitlines()), lines, closed)


if __name__ == "__main__":
    main()
