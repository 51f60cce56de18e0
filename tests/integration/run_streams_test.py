#!/usr/bin/env python3
"""`coshard run` with each MPI where its stdin, stdout and stderr are not as usual: nobody reads, reads slowly or no longer, or they are closed.

usage: run_streams_test.py COSHARD QUICKSTART TRAIN RUN_PROGRAM MPI      MPI: openmpi, mpich; exit code 77: its launcher is not there
"""
import fcntl
import hashlib
import os
import pty
import random
import select
import signal
import struct
import subprocess
import tempfile
import termios
import time

from run_job import COSHARD, MPI, MOST, NOISE, PYTHON, RANK, Job, Jobs, main, marked

FLOODS = RANK + "[print('x' * 999) for i in iter(int, 1)]"
# A shell with a job in the background, from which `fg` brings it back.
SHELL = f"set -m; {COSHARD} run --mpi {MPI} -n 1 cat & sleep 1; read line; echo the shell has $line; sleep 1; fg; echo over $?"
# Brings a program to the foreground, on SIGUSR1 takes the terminal from it for a line, and gives it back.
SWITCHES = """
import os, signal, subprocess, sys, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
job = subprocess.Popen(sys.argv[1:], preexec_fn=lambda: (os.setpgid(0, 0), os.tcsetpgrp(0, os.getpid())))
signal.sigwait([signal.SIGUSR1])
os.tcsetpgrp(0, os.getpid())
print("back", flush=True)
time.sleep(1)
print("got", os.read(0, 100).decode(), flush=True)
os.tcsetpgrp(0, job.pid)
sys.exit(job.wait())
"""
READERS = ({}, {"stderr": subprocess.STDOUT})  # of stdout alone, of both


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, *words):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvp(words[0], words)
        self.shown = b""

    def show(self, text):
        """Waits until it has shown `text`."""
        while text not in self.shown:
            if not select.select([self.fd], [], [], 60)[0]:
                raise AssertionError(f"no {text!r} in {self.shown!r}")
            self.shown += os.read(self.fd, 4096)

    def end(self):
        status = os.waitpid(self.pid, 0)[1]
        os.close(self.fd)
        return status


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
            self.check(job.end(), 5, None if streams else "error: rank 1 exited with code 5")
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

    # stdin

    def test_stdin_comes_whole_to_a_slow_reader(self):
        text = random.Random(7).randbytes(3_000_000)
        program = RANK + "import hashlib; time.sleep(1 - rank); print(hashlib.md5(sys.stdin.buffer.read()).hexdigest())"
        job = self.job("-n", "2", PYTHON, "-c", program, stdin=text)
        self.check(job, 0)
        self.assertEqual(sorted(job.out.splitlines()), [f"[{n}] {hashlib.md5(what).hexdigest()}" for n, what in enumerate([text, b""])])

    def test_stdin_that_nobody_reads_does_no_harm(self):
        for program in (["sleep", "1"], ["sh", "-c", "exec <&-; sleep 1"], ["head", "-c", "1"], ["true"]):
            job = self.job("-n", "2", *program, stdin=b"x" * 1_000_000)
            self.check(job, 0)
            self.assertEqual((job.out, job.err), ("[0] x\n" if program[0] == "head" else "", ""))

    def test_input_reaches_the_program_when_it_is_written(self):
        program = RANK + "[print(line, end='', flush=True) for line in iter(sys.stdin.readline, '')]"
        pipe = os.pipe()
        job = Job("-n", "2", "--no-prefix", PYTHON, "-c", program, stdin=pipe[0])
        os.close(pipe[0])
        for count in range(1, 4):
            os.write(pipe[1], b"line\n")
            job.wait_for(count, "line\n")
        os.close(pipe[1])
        job.end()
        self.check(job, 0)
        self.assertEqual(job.out, "line\n" * 3)

    def test_a_stdin_that_cannot_be_read_is_told_of(self):
        folder = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
        job = Job("-n", "2", "cat", stdin=folder).end()
        os.close(folder)
        self.check(job, 0)
        self.assertEqual((job.out, job.err), ("", "warning: stdin could not be read: Is a directory\n"))

    def test_a_job_in_the_background_leaves_the_terminal_to_the_foreground(self):
        terminal = Terminal("bash", "--norc", "-c", SHELL)
        os.write(terminal.fd, b"first\n")
        terminal.show(b"the shell has first")
        os.write(terminal.fd, b"second\n")
        terminal.show(b"[0] second")
        os.write(terminal.fd, b"\4")
        terminal.show(b"over 0")
        self.assertEqual(terminal.end(), 0)

    def test_a_job_that_goes_to_the_background_while_it_waits_for_input_reads_again_in_the_foreground(self):
        job = [COSHARD, "run", "--mpi", MPI, "-n", "1", "sh", "-c", "echo begun; cat"]
        terminal = Terminal(PYTHON, "-c", SWITCHES, *job)
        terminal.show(b"[0] begun")
        time.sleep(1)
        os.kill(terminal.pid, signal.SIGUSR1)
        terminal.show(b"back")
        os.write(terminal.fd, b"first\n")
        terminal.show(b"got first")
        os.write(terminal.fd, b"second\n")
        terminal.show(b"[0] second")
        os.write(terminal.fd, b"\4")
        self.assertEqual(terminal.end(), 0)

    def test_a_fifo_that_never_had_a_writer_is_empty_where_reading_it_does_not_wait(self):
        with tempfile.TemporaryDirectory() as folder:
            os.mkfifo(f"{folder}/fifo")
            fifo = os.open(f"{folder}/fifo", os.O_RDONLY | os.O_NONBLOCK)
            self.check(Job("-n", "1", "cat", stdin=fifo).end(), 0)
            os.close(fifo)

    # Closed ones

    def test_closed_streams_do_no_harm(self):
        program = RANK + "print(rank); print(sys.stdin.read() or 'nothing', rank, file=sys.stderr); sys.exit(3 if rank == 1 else 0)"
        for closed in ((0,), (1,), (2,), (0, 1, 2)):
            job = Job("-n", "2", PYTHON, "-c", program, stdin=b"", preexec_fn=lambda fds=closed: [os.close(fd) for fd in fds]).end()
            self.check(job, 3)
            self.assertEqual(sorted(job.out.splitlines()), [] if 1 in closed else ["[0] 0", "[1] 1"], closed)
            lines = [] if 2 in closed else ["[0] nothing 0", "[1] nothing 1", "error: rank 1 exited with code 3"]
            self.assertEqual(sorted(job.err.splitlines()), lines, closed)


if __name__ == "__main__":
    main()
