#!/usr/bin/env python3
"""`coshard run` with each MPI: what the job prints, its exit code, how long it takes to end, and that it leaves nothing behind.

usage: run_test.py COSHARD QUICKSTART TRAIN RUN_PROGRAM MPI      MPI: openmpi, mpich; exit code 77: its launcher is not there
"""
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from run_job import COSHARD, MPI, MOST, NOISE, PYTHON, QUICKSTART, RANK, RUN_PROGRAM, TRAIN, Job, Jobs, main, marked


class Run(Jobs):
    def check_time(self, job):
        died = min(float(time) for time in re.findall(r"dying at ([\d.]+)", job.err))
        took = job.ended - died
        print(f"{self._testMethodName}: over {took:.2f} s after the death")
        self.assertLess(took, MOST + NOISE, job.err)

    # Without failures

    def test_processes_print_what_threads_print(self):
        for ranks in (1, 2, 4):
            threads = subprocess.run([QUICKSTART, "--ranks", str(ranks)], capture_output=True, text=True, timeout=60).stdout
            job = self.job("-n", str(ranks), QUICKSTART, "--ranks", str(ranks))
            self.check(job, 0)
            self.assertEqual(job.out, "".join(f"[0] {line}\n" for line in threads.splitlines()))
            self.assertEqual(job.err, "")

    def test_training_has_the_losses_of_threads(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(f"{folder}/text", "w", encoding="ascii") as file:
                file.writelines(f"{n} times {n} is {n * n}\n" for n in range(5000))
            settings = "--layers 1 --dim 32 --heads 4 --ffn 48 --seq 32 --batch 2 --steps 3 --sample 0 --eval-blocks 1 --threads 1 --ranks 2"
            train = [TRAIN, "--text", f"{folder}/text", *settings.split(), "--json"]
            subprocess.run([*train, f"{folder}/threads"], capture_output=True, check=True, timeout=60)
            self.check(self.job("-n", "2", *train, f"{folder}/job"), 0)
            losses = []
            for name in ("threads", "job"):
                with open(f"{folder}/{name}", encoding="utf-8") as file:
                    losses.append(json.load(file)["loss"])
            self.assertEqual(losses[0], losses[1])
            self.assertEqual(len(losses[0]), 3)

    def test_arguments_reach_the_program_as_they_are(self):
        words = ["two words", "", ":", "-n", "3", ":", "--", "--mpi=none", "a'b\"c$d*", "--help"]
        for dashes in ([], ["--"]):
            job = self.job("-n", "2", "--no-prefix", *dashes, PYTHON, "-c", "import sys; print(sys.argv[1:])", *words)
            self.check(job, 0)
            self.assertEqual(job.out, f"{words}\n" * 2)

    def test_long_output_comes_whole_and_line_by_line(self):
        lines = 100_000
        program = RANK + f"[print(rank, 'x' * 44, i) for i in range({lines})]; print('the end', rank, end='', file=sys.stderr)"
        job = self.job("-n", "2", PYTHON, "-c", program)
        self.check(job, 0)
        for rank in (0, 1):
            mine = [line for line in job.out.splitlines() if line.startswith(f"[{rank}] ")]
            self.assertEqual(mine, [f"[{rank}] {rank} {'x' * 44} {i}" for i in range(lines)])
        self.assertEqual(len(job.out.splitlines()), 2 * lines)
        self.assertEqual(sorted(job.err.splitlines()), ["[0] the end 0", "[1] the end 1"])

    def test_output_comes_whole_to_a_slow_reader(self):
        program = "import sys; sys.stdout.write(('x' * 63 + '\\n') * 60_000)"
        for _ in range(3):  # the programs end while their last output waits
            command = [COSHARD, "run", "--mpi", MPI, "-n", "2", "--no-prefix", PYTHON, "-c", program]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
                size = 0
                while piece := run.stdout.read1(1 << 18):
                    size += len(piece)
                    time.sleep(0.01)
                self.assertEqual((run.wait(60), run.stderr.read(), size), (0, b"", 2 * 60_000 * 64))

    def test_without_prefixes_the_bytes_are_the_programs(self):
        job = self.job("-n", "1", "--no-prefix", PYTHON, "-c", "print('a\\n\\nb', end='')")
        self.check(job, 0)
        self.assertEqual((job.out, job.err), ("a\n\nb", ""))

    def test_stdin_is_that_of_rank_0(self):
        read = RANK + "print(sys.stdin.read() or 'nothing')"
        job = Job("-n", "2", PYTHON, "-c", read, stdin=b"one\ntwo").end()
        self.check(job, 0)
        self.assertEqual(sorted(job.out.splitlines()), ["[0] one", "[0] two", "[1] nothing"])

    def test_signals_that_are_ignored_stay_ignored(self):
        for number in (signal.SIGHUP, signal.SIGINT):
            job = Job("-n", "2", "sh", "-c", "echo begun; sleep 2; echo over", preexec_fn=lambda n=number: signal.signal(n, signal.SIG_IGN))
            job.wait_for(2, "begun")
            os.killpg(job.started.pid, number)
            job.end()
            self.check(job, 0)
            self.assertEqual(job.out.count("over"), 2)

    # A rank fails

    def fails(self, mode, code, last):
        job = self.job("-n", "3", RUN_PROGRAM, mode, "1", "--ranks", "3")
        self.check(job, code, last)
        self.check_time(job)
        self.assertIn("[1] met\n", job.out)
        for survivor in (0, 2):  # each names it
            self.assertRegex(job.err, rf"(?m)^\[{survivor}\] error: .*rank 1, process 1 \(pid \d+ on [^)]+\) has died: ")
        self.assertNotIn("[mpirun", job.err)

    def test_a_rank_that_exits(self):
        job = self.job("-n", "3", RUN_PROGRAM, "exit", "1", "--ranks", "3")
        self.check(job, 3)
        self.assertEqual(job.err.splitlines()[-1], "error: rank 1 exited with code 3")
        self.check_time(job)

    def test_a_rank_that_calls_exit_with_0_says_why_its_code_is_1(self):
        why = r"process 1 ended with exit code 0 after 0 runs, and process [02] failed without it: exiting with code 1 instead"
        job = self.job("-n", "3", RUN_PROGRAM, "quit0", "1", "--ranks", "3")
        self.check(job, 1)
        self.assertRegex(job.err, rf"(?m)^\[1\] error: {why}$")
        self.assertRegex(job.err.splitlines()[-1], rf"^error: rank 1 exited with code 1: {why}$")
        self.check_time(job)

    def test_a_rank_that_is_killed(self):
        self.fails("kill", 137, "error: rank 1 was killed by SIGKILL (out of memory?)")

    def test_a_rank_that_crashes(self):
        self.fails("segv", 139, "error: rank 1 was killed by SIGSEGV")

    def test_a_rank_that_throws(self):
        job = self.job("-n", "3", RUN_PROGRAM, "throw", "1", "--ranks", "3")
        self.assertIn(job.code, (1, 2))
        self.check(job, job.code)
        self.assertRegex(job.err.splitlines()[-1], r"^error: rank 1 exited with code \d: rank 1: this rank was told to fail")
        self.check_time(job)

    def test_ranks_that_ignore_sigterm(self):
        program = RANK + ("signal.signal(signal.SIGTERM, signal.SIG_IGN); print('here', flush=True)\n"
                          "if rank == 1: time.sleep(1); print('dying at', time.time(), file=sys.stderr); sys.exit(5)\ntime.sleep(600)")
        job = self.job("-n", "3", PYTHON, "-c", program)
        self.check(job, 5)
        self.check_time(job)

    def test_others_may_say_what_they_saw(self):
        program = RANK + ("\nif rank == 1: print('dying at', time.time(), file=sys.stderr); sys.exit(4)\n"
                          "time.sleep(1); print('rank 1 is gone', file=sys.stderr); sys.exit(1)")
        job = self.job("-n", "3", PYTHON, "-c", program)
        self.check(job, 4)
        self.assertEqual(job.err.count("rank 1 is gone\n"), 2, job.err)
        self.check_time(job)

    def after_rank_1(self, first, later):
        """Rank 1 does `first`, and 0.8 s after it has ended rank 2 does `later`."""
        with tempfile.TemporaryDirectory() as folder:
            program = RANK + (f"\nif rank == 1:\n  open('{folder}/new', 'w').write(str(os.getpid())); os.rename('{folder}/new', '{folder}/pid')\n"
                              f"  {first}\n"
                              f"while not os.path.exists('{folder}/pid'): time.sleep(0.01)\n"
                              f"pid = open('{folder}/pid').read()\n"
                              "def runs():\n  try: return open(f'/proc/{pid}/stat').read().split()[2] != 'Z'\n  except OSError: return False\n"
                              "while runs(): time.sleep(0.01)\n"
                              f"time.sleep(0.8)\nif rank == 2: {later}\ntime.sleep(600)")
            return self.job("-n", "3", PYTHON, "-c", program)

    def test_the_first_failure_is_the_cause_whatever_later_ones_say(self):
        for code in (1, 3):
            for later in ("sys.exit('error: of its own')", "os.kill(os.getpid(), signal.SIGSEGV)"):
                job = self.after_rank_1(f"os._exit({code})", later)
                self.check(job, code, f"error: rank 1 exited with code {code}")

    # Whatever a program writes

    SENTENCES = ("error: rank 2: disk full", "error: rank 2, layers.1: disk full", "rank 2 ended with: disk full",
                 "train: all_reduce #4 on tp[0] on rank 0 failed: rank 2 ended with: disk full", "  what():  rank 2 ended with: disk full",
                 "error: process 2 (pid 7 on node) has ended with exit code 3 after 1 run, during run 2",
                 "error: rank 2, process 2 (pid 7 on node) has died: its connection failed", "MPI_ABORT was invoked on rank 2 in communicator",
                 "application called MPI_Abort(MPI_COMM_WORLD, 5) - process 2", "warning: rank 2 has been silent for 1 s")

    def test_a_text_like_those_of_the_library_blames_nobody(self):
        for words in self.SENTENCES:
            job = self.after_rank_1(f"print({words!r}, file=sys.stderr); sys.exit(5)", f"print({words!r}, file=sys.stderr); os._exit(3)")
            self.check(job, 5, "error: rank 1 exited with code 5")
            self.assertEqual(job.err.count(words), 2)

    def test_of_programs_without_coshard_the_first_to_end_is_the_cause(self):
        for first, later in ((3, 5), (5, 3), (1, 3)):
            job = self.after_rank_1(f"os._exit({first})", f"print('error: rank 1: of its own', file=sys.stderr); os._exit({later})")
            self.check(job, first, f"error: rank 1 exited with code {first}")
        self.check(self.after_rank_1("os.kill(os.getpid(), signal.SIGKILL)", "os._exit(3)"), 137,
                   "error: rank 1 was killed by SIGKILL (out of memory?)")

    def test_what_a_python_rank_raises_is_shown_and_its_code_is_told(self):
        job = self.after_rank_1("raise RuntimeError('rank 2 ended with: no data')", "os._exit(3)")
        self.check(job, 1, "error: rank 1 exited with code 1")
        self.assertIn("[1] RuntimeError: rank 2 ended with: no data\n", job.err)

    # What coshard records

    def test_a_failure_counts_from_when_it_is_thrown(self):
        # Rank 0 and 2 end at once, rank 1 two seconds later.
        job = self.job("-n", "3", RUN_PROGRAM, "throw late", "1", "--ranks", "3")
        self.check(job, 1)
        self.assertRegex(job.err.splitlines()[-1], "^error: rank 1 (exited with code 1|failed): rank 1: this rank was told to fail")

    def test_a_failure_of_a_rank_of_several_is_that_of_its_process(self):
        for victim, process in ((2, 1), (5, 2)):
            job = self.job("-n", "3", RUN_PROGRAM, "throw", str(victim), "--ranks", "6")
            self.assertIn(job.code, (1, 2))
            self.check(job, job.code)
            self.assertRegex(job.err.splitlines()[-1], rf"^error: rank {process} exited with code \d: rank {victim}: this rank was told to fail")

    def test_a_failure_from_which_a_program_has_recovered_is_not_the_cause(self):
        job = self.job("-n", "3", RUN_PROGRAM, "throw and recover", "1", "--ranks", "3")
        self.check(job, 7, "error: rank 1 exited with code 7")
        self.assertEqual(job.err.count("caught: "), 3, job.err)

    def test_an_uncaught_failure_is_told_with_its_signal(self):
        job = self.job("-n", "3", RUN_PROGRAM, "throw uncaught", "1", "--ranks", "3")
        self.check(job, 134)
        self.assertRegex(job.err.splitlines()[-1], "^error: rank 1 was killed by SIGABRT: rank 1: this rank was told to fail")

    def test_a_wrong_option_is_told_with_its_code(self):
        job = self.job("-n", "2", QUICKSTART, "--ranks", "many")
        self.check(job, 2)
        self.assertRegex(job.err.splitlines()[-1], r"^error: rank [01] exited with code 2: .*many")

    def test_a_failure_of_a_program_that_a_rank_has_started_is_not_that_of_the_rank(self):
        rank = "rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; "
        job = self.job("-n", "2", "sh", "-c", rank + f"if [ $rank = 0 ]; then {QUICKSTART} --ranks many; sleep 600; fi; sleep 1; exit 5")
        self.check(job, 5, "error: rank 1 exited with code 5")

    # A rank in Python that says what the library says, a record is: kind, rank, text, module, place, missing, of a peer.
    RECORDS = RANK + ("import socket\ndef record(text, of_peer='0', who=rank):\n"
                      "  s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
                      "  s.sendto(text if isinstance(text, bytes) else ''.join(f + '\\0' for f in ('timeout', str(who), text, '', '', '', of_peer)).encode(),\n"
                      "           '\\0' + os.environ['COSHARD_FAILURE_SOCKET'])\n")

    def records(self, rank_0, rank_1, code, last):
        program = self.RECORDS + f"if rank == 1:\n  {rank_1}\nelse:\n  {rank_0}\n"
        self.check(self.job("-n", "2", PYTHON, "-c", program), code, last)

    def test_the_first_record_of_a_program_counts(self):
        last = "error: rank 1 exited with code 3: rank 1: disk full"
        for more in ("record(b'nonsense')", "record('another')", "record('rank 0 ended', '1')", "record(b'x' * 8192)"):
            self.records("time.sleep(0.8); record('late'); sys.exit(4)", f"time.sleep(0.3); record('disk full'); {more}; time.sleep(1); sys.exit(3)", 3, last)
        self.records("time.sleep(600)", "record('rank 0 ended', '1'); record('disk full'); sys.exit(3)", 3, last)

    def test_a_record_counts_from_when_it_was_written_also_beside_output(self):
        self.records("time.sleep(0.6); record('late'); sys.exit(4)",
                     "time.sleep(0.3); print('x' * 5000, flush=True); record('disk full'); time.sleep(1); sys.exit(3)", 3,
                     "error: rank 1 exited with code 3: rank 1: disk full")

    def test_a_record_of_a_child_neither_hides_nor_erases_that_of_the_program(self):
        child = "pid = os.fork()\n  if pid == 0: record({!r}); os._exit(0)\n  os.waitpid(pid, 0)\n  "
        last = "error: rank 1 exited with code 3: rank 1: no memory"
        self.records("time.sleep(600)", child.format("of a child") + "record('no memory'); sys.exit(3)", 3, last)
        self.records("time.sleep(600)", "record('no memory')\n  " + child.format(b"") + "sys.exit(3)", 3, last)

    def test_what_a_program_records_after_it_has_recovered_is_new(self):
        self.records("time.sleep(600)", "record('no memory'); record(b''); sys.exit(3)", 3, "error: rank 1 exited with code 3")
        self.records("time.sleep(600)", "record('no memory'); record(b''); record('disk full'); sys.exit(3)", 3,
                     "error: rank 1 exited with code 3: rank 1: disk full")

    def test_a_program_that_only_tells_of_a_peer_is_the_cause_if_nobody_else_is(self):
        self.records("time.sleep(600)", "record('rank 0 has died', '1'); sys.exit(3)", 3, "error: rank 1 exited with code 3: rank 1: rank 0 has died")
        self.records("time.sleep(0.8); os._exit(5)", "record('rank 0 has died', '1'); sys.exit(3)", 5, "error: rank 0 exited with code 5")

    def test_many_records_do_no_harm(self):
        floods = "end = time.time() + 2\n  while time.time() < end: record('x' * 6000); record(b'')\n  record('disk full'); sys.exit(3)"
        self.records("time.sleep(600)", floods, 3, "error: rank 1 exited with code 3: rank 1: disk full")

    def test_a_child_that_outlives_a_job_that_succeeds_is_no_failure(self):
        # hydra waits for it, since it has inherited a descriptor
        job = Job("-n", "2", "sh", "-c", "setsid sleep 20 & exit 0")
        self.assertEqual(job.end().code, 0, job.err)

    def test_the_cause_is_a_line_of_its_own(self):
        job = self.job("-n", "2", "--no-prefix", "sh", "-c", "printf 'error: rank 9 died' >&2; exit 3")
        self.check(job, 3)
        self.assertRegex(job.err.splitlines()[-1], r"^error: rank [01] exited with code 3$")

    def test_a_failure_of_a_program_that_a_rank_has_started_is_told_with_the_code_of_the_rank(self):
        with_shell = f"{QUICKSTART} --ranks many || exit 9"
        job = self.job("-n", "1", "sh", "-c", with_shell)
        self.check(job, 9)
        self.assertRegex(job.err.splitlines()[-1], r"^error: rank 0 exited with code 9: .*many")

    def test_what_a_rank_has_started_ends_with_it(self):
        job = self.job("-n", "2", "sh", "-c", "sleep 600 & echo started")
        self.check(job, 0)
        self.assertEqual(job.out.count("started\n"), 2)

    def test_a_program_that_is_not_there(self):
        job = self.job("-n", "2", "./nowhere")
        self.check(job, 127)
        self.assertRegex(job.err.splitlines()[-1], r"^error: rank [01]: \./nowhere could not be started: No such file or directory$")
        job = self.job("-n", "1", "/etc/passwd")
        self.check(job, 126, "error: rank 0: /etc/passwd could not be started: Permission denied")

    # Signals

    SLEEPS = RANK + "print('here', flush=True); time.sleep(600)"

    def test_a_signal_reaches_every_rank(self):
        tells = RANK + ("signal.signal(signal.{0}, lambda *_: (print('heard'), sys.exit(0))); print('here', flush=True); time.sleep(600)")
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            job = Job("-n", "3", PYTHON, "-c", tells.format(name))
            job.wait_for(3, "here\n")
            job.started.send_signal(getattr(signal, name))
            self.check(job.end(), 0)
            self.assertEqual(job.out.count("heard\n"), 3)

    def test_signals_for_the_program_reach_it_and_leave_the_rest_alone(self):
        tells = RANK + ("signal.signal(signal.{0}, lambda *_: (print('heard', flush=True), sys.exit(0))); print('here', flush=True); time.sleep(600)")
        for name in ("SIGUSR1", "SIGUSR2"):
            job = Job("-n", "3", PYTHON, "-c", tells.format(name))
            job.wait_for(3, "here\n")
            job.started.send_signal(getattr(signal, name))
            self.check(job.end(), 0)
            self.assertEqual(job.out.count("heard\n"), 3)

    def test_a_job_that_is_stopped_stops_its_ranks_and_goes_on_with_them(self):
        job = Job("-n", "2", PYTHON, "-c", RANK + "[(print('tick', rank, i, flush=True), time.sleep(0.01)) for i in range(150)]")
        job.wait_for(2, " 10\n")
        job.started.send_signal(signal.SIGTSTP)
        end = time.time() + 20
        while time.time() < end and self.states(job) != {"T"}:
            time.sleep(0.02)
        self.assertEqual(self.states(job), {"T"})
        ticks = job.text(0).count("tick")
        time.sleep(1)
        self.assertEqual(job.text(0).count("tick"), ticks)
        job.started.send_signal(signal.SIGCONT)
        self.check(job.end(), 0)
        self.assertEqual(job.out.count("tick"), 300)

    def test_a_job_that_is_stopped_and_continued_at_once_goes_on(self):
        for _ in range(5):
            job = Job("-n", "2", PYTHON, "-c", RANK + "print('here', flush=True); time.sleep(1)")
            job.wait_for(2, "here\n")
            job.started.send_signal(signal.SIGTSTP)
            job.started.send_signal(signal.SIGCONT)
            self.check(job.end(), 0)

    def states(self, job):
        """Of `coshard run` and its programs: T is stopped."""
        found = set()
        for pid, line in [*marked(job.mark), (job.started.pid, PYTHON)]:
            with contextlib.suppress(OSError):
                with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
                    if line.startswith(PYTHON):
                        found.add(stat.read().rsplit(")", 1)[1].split()[0])
        return found

    def test_a_rank_that_saves_when_another_has_failed_has_its_grace(self):
        saves = RANK + ("signal.signal(signal.SIGTERM, lambda *_: (time.sleep(3), print('saved', flush=True), sys.exit(0)))\n"
                        "if rank == 1: time.sleep(0.5); sys.exit(5)\ntime.sleep(600)")
        for grace, saved in (("20", 2), ("0", 0)):
            job = self.job("-n", "3", "--grace", grace, PYTHON, "-c", saves)
            self.check(job, 5, "error: rank 1 exited with code 5")
            self.assertEqual(job.out.count("saved\n"), saved)

    def test_a_signal_that_ends_the_ranks_ends_the_job(self):
        job = Job("-n", "3", "sh", "-c", "echo here; exec sleep 600")
        job.wait_for(3, "here\n")
        job.started.send_signal(signal.SIGINT)
        began = time.time()
        self.check(job.end(), 130)
        self.assertRegex(job.err.splitlines()[-1], r"^error: rank \d was killed by SIGINT$")
        self.assertLess(job.ended - began, MOST + NOISE)

    def test_a_signal_ends_a_job_that_is_still_starting(self):
        for name in ("SIGTERM", "SIGINT"):
            for hundredths in range(15):
                job = Job("-n", "2", "sleep", "600")
                time.sleep(hundredths / 100)
                job.started.send_signal(getattr(signal, name))
                job.end()
                number = int(getattr(signal, name))  # before `coshard run` listens, it dies of it
                self.check(job, -number if job.code < 0 else 128 + number)

    def test_the_second_sigint_kills(self):
        stubborn = RANK + "signal.signal(signal.SIGINT, lambda *_: print('no', flush=True)); print('here', flush=True)\nwhile True: time.sleep(1)"
        job = Job("-n", "2", PYTHON, "-c", stubborn)
        job.wait_for(2, "here\n")
        job.started.send_signal(signal.SIGINT)
        job.wait_for(2, "no\n")
        self.assertIsNone(job.started.poll())
        job.started.send_signal(signal.SIGINT)
        self.check(job.end(), 137)

    def test_nothing_outlives_coshard_run(self):
        job = Job("-n", "3", PYTHON, "-c", self.SLEEPS)
        job.wait_for(3, "here\n")
        job.started.kill()
        job.started.wait()
        end = time.time() + 10
        while marked(job.mark) and time.time() < end:
            time.sleep(0.05)
        self.check(job.end(), -signal.SIGKILL)

    def test_what_a_rank_has_started_ends_with_a_guard_that_is_killed(self):
        job = Job("-n", "2", "sh", "-c", "sleep 601 & echo here; exec sleep 600")
        job.wait_for(2, "here\n")
        guards = []
        for pid, line in marked(job.mark):
            if line.startswith("sleep 600"):
                with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
                    guards.append(int(stat.read().split()[3]))  # its parent
        for guard in guards:
            with contextlib.suppress(ProcessLookupError):  # the end of one is that of the job
                os.kill(guard, signal.SIGKILL)
        job.end()
        self.assertNotEqual(job.code, 0)
        self.check(job, job.code)

    def test_a_launcher_that_is_killed_ends_the_job(self):
        job = Job("-n", "2", "sh", "-c", "sleep 601 & echo here; exec sleep 600")
        job.wait_for(2, "here\n")
        for pid, line in marked(job.mark):
            if line.startswith("/usr/bin/mpirun"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        began = time.time()
        self.check(job.end(), 137)
        self.assertRegex(job.err.splitlines()[-1], "mpirun.* was killed by SIGKILL|rank . was lost")
        self.assertLess(job.ended - began, MOST + NOISE)

    # By a library in the program, which ends all processes at once, the guards too.
    ABORTS = """
import ctypes, os
name, world = {"openmpi": ("libmpi.so.40", "ompi_mpi_comm_world"), "mpich": ("libmpich.so.12", None)}[os.environ["MPI_HERE"]]
mpi = ctypes.CDLL(name, ctypes.RTLD_GLOBAL)
mpi.MPI_Init(None, None)
comm = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, world))) if world else ctypes.c_int(0x44000000)
rank = ctypes.c_int()
mpi.MPI_Comm_rank(comm, ctypes.byref(rank))
mpi.MPI_Barrier(comm)
if rank.value == 1:
    mpi.MPI_Abort(comm, 5)
mpi.MPI_Barrier(comm)
"""

    def test_mpi_abort_ends_the_job_with_its_code(self):
        os.environ["MPI_HERE"] = MPI
        job = self.job("-n", "3", PYTHON, "-c", self.ABORTS)
        self.check(job, 5)
        self.assertRegex(job.err.splitlines()[-1],  # the guard of rank 1 may see it first
                         r"^error: (rank 1 exited with code 5|(rank \d was lost: [^;]*; )?mpirun\.\w+ exited with code 5)$")

    def test_a_rank_of_either_mpi_may_start_a_job(self):
        root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        threads = subprocess.run([QUICKSTART, "--ranks", "2"], capture_output=True, text=True, timeout=60).stdout
        for outer in ("openmpi", "mpich"):
            if shutil.which(f"mpirun.{outer}") is None:
                continue
            command = [f"mpirun.{outer}", "-n", "1", COSHARD, "run", "--mpi", MPI, "-n", "2", QUICKSTART, "--ranks", "2"]
            done = subprocess.run(command, env={**os.environ, **root}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=50)
            self.assertEqual((done.returncode, done.stdout), (0, "".join(f"[0] {line}\n" for line in threads.splitlines())), done.stderr)

    # Hosts

    def test_hosts_that_are_this_one(self):
        job = self.job("--hosts", "localhost:2", PYTHON, "-c", RANK + "print(rank)")
        self.check(job, 0)
        self.assertEqual(sorted(job.out.splitlines()), ["[0] 0", "[1] 1"])

    def test_a_host_that_is_not_there(self):
        job = self.job("-n", "2", "--hosts", "no-such-host.invalid", "--start-timeout", "2", PYTHON, "-c", "pass")
        self.assertNotEqual(job.code, 0)
        self.check(job, job.code)
        self.assertIn("no-such-host", job.err)  # Open MPI cuts its domain off
        # hydra waits for ever
        self.assertRegex(job.err.splitlines()[-1], r"^error: (mpirun\.openmpi exited with code \d+|rank 0 on no-such-host\.invalid has not started within 2 s)$")


if __name__ == "__main__":
    main()
