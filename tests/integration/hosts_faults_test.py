#!/usr/bin/env python3
"""Jobs over several hosts, which are network namespaces, when a link is cut or slow, a process dies or stops, and strangers come.

usage: hosts_faults_test.py MPI STEADY_JOB COSHARD      MPI: openmpi, mpich; exit code 77: no namespaces can be made here, or its launcher is
not there
"""
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

import parallel_cases
from namespaces import Hosts, Job, skip_unless_possible

MPI, STEADY, COSHARD = sys.argv[1:4]
STRANGERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "strangers.py")
ENDLESS = ("64", "1000000", "5")  # KiB, sums, milliseconds between two
NOISE = 5.0  # seconds, of a machine that does other things


def who(rank):
    return rf"rank {rank}, process {rank} \(pid \d+ on [^)]+\)"


def memory_of(pid):
    """KiB that are resident."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1))


class Faults(unittest.TestCase):
    def start(self, hosts, *program):
        """By `coshard run`, which lets survivors speak."""
        job = Job(hosts, hosts.coshard_run(COSHARD, MPI, STEADY, *program))
        self.addCleanup(job.__exit__)
        job.wait_for("sum 3\n" if "1000000" in program else "liveness at port")
        return job

    def stop_in_the_middle(self, hosts, program, host, error, most):
        """Stops the process of a host 5 s into what takes 10; what is on its way still arrives, then there is that error, `most` s later.

        A machine that is too busy to move the data for seconds ends the wait before, or soon after: then once more."""
        least = 4 - 2
        for attempts_left in (2, 1, 0):
            job = self.start(hosts, *program)
            time.sleep(5)
            took = 0
            if job.started.poll() is None:
                begin = time.monotonic()
                os.kill(hosts.pid_on(host, STEADY), signal.SIGSTOP)
                job.wait_for(error)
                took = time.monotonic() - begin
                if took > least:
                    break
            if attempts_left > 0:
                job.end(2 + 3 + NOISE)
        self.assertGreater(took, least, job.shown())
        self.assertLess(took, most + NOISE)
        self.assertNotEqual(job.end(2 + 3 + NOISE), 0, job.shown())

    def check_nothing_remains(self, hosts, program="", seconds=10):
        end = time.monotonic() + seconds
        while (left := hosts.processes(program)) and time.monotonic() < end:
            time.sleep(0.05)
        self.assertEqual(left, [])

    # Links

    def test_a_link_that_is_cut_is_an_error_within_the_deadline(self):
        with Hosts(2, "1gbit") as hosts:
            job = self.start(hosts, *ENDLESS, "--timeout", "10")  # its connections fail at three quarters of it
            hosts.set_link(1, "down")
            job.wait_for(rf"\[0\] error: .*{who(1)} has died: its connection failed: ", seconds=10 + NOISE)
            self.assertNotEqual(job.end(5 + NOISE), 0, job.shown())
            self.assertRegex(job.err.splitlines()[-1], rf"^error: rank 0 exited with code \d+: .*{who(1)} has died: ")
            self.check_nothing_remains(hosts, STEADY)
            hosts.set_link(1, "up")  # what MPI's launcher has on the other host does not notice before
            self.check_nothing_remains(hosts)

    @parallel_cases.starts_first
    def test_a_host_that_is_gone_ends_a_job_whose_programs_do_not_notice(self):
        with Hosts(2, "1gbit") as hosts:
            job = Job(hosts, hosts.coshard_run(COSHARD, MPI, "sh", "-c", "echo here; exec sleep 1000"))
            self.addCleanup(job.__exit__)
            for rank in (0, 1):
                job.wait_for(rf"\[{rank}\] here")
            begin = time.monotonic()
            hosts.set_link(1, "down")
            self.assertNotEqual(job.end(60 + 5 + 3 + 5 * NOISE), 0, job.shown())
            self.assertGreater(time.monotonic() - begin, 30)
            self.assertRegex(job.err.splitlines()[-1], r"^error: rank 1 was lost: its connection failed: \w")
            self.check_nothing_remains(hosts, shutil.which("sleep"), seconds=10 + 5 * NOISE)
            hosts.set_link(1, "up")
            self.check_nothing_remains(hosts)

    def test_under_mpirun_both_sides_of_a_cut_link_end(self):
        with Hosts(2, "1gbit") as hosts, Job(hosts, hosts.mpirun(MPI, STEADY, *ENDLESS, "--timeout", "10")) as job:
            job.wait_for("sum 3\n")
            hosts.set_link(1, "down")
            job.wait_for(rf"error: .*{who(1)} has died: its connection failed: ", seconds=10 + NOISE)
            self.check_nothing_remains(hosts, STEADY)

    def test_a_link_that_is_cut_for_less_than_the_deadline_is_no_error(self):
        with Hosts(2, "1gbit") as hosts:
            job = self.start(hosts, "64", "300", "5", "--timeout", "16")
            hosts.set_link(1, "down")
            time.sleep(3)
            hosts.set_link(1, "up")
            self.assertEqual(job.end(), 0, job.shown())
            self.assertIn("all sums are right", job.out)

    def test_a_slow_link_is_no_error_while_bytes_move(self):
        with Hosts(2, "1gbit") as hosts:
            job = self.start(hosts, "49152", "1", "0", "--timeout", "4")
            hosts.set_rate("50mbit")
            self.assertEqual(job.end(), 0, job.shown())
            self.assertIn("all sums are right", job.out)
            self.assertGreater(time.monotonic() - job.begin, 4 + 2, "the link was not slow")

    def test_a_rank_that_waits_for_one_whose_link_to_a_third_one_is_slow_does_so_while_bytes_move(self):
        with Hosts(3, "1gbit") as hosts:
            hosts.set_rate("20mbit")
            job = self.start(hosts, "64", "1", "0", "--first", "24576", "1", "--timeout", "4")  # which takes 10 s
            self.assertEqual(job.end(), 0, job.shown())
            self.assertIn("all sums are right", job.out)
            self.assertGreater(time.monotonic() - job.begin, 4 + 4, "the link was not slow")

    def test_a_slow_link_that_carries_many_short_blocks_is_no_error(self):
        for kib, pieces in (("12288", "400"), ("5120", "1280")):  # blocks of 30 KiB; of 4, which go with what announces them
            with Hosts(2, "1gbit") as hosts:
                hosts.set_rate({"400": "10mbit", "1280": "4mbit"}[pieces])
                job = self.start(hosts, "1", "1", "0", "--at-once", kib, pieces, "--timeout", "6")  # which takes 10 s
                self.assertEqual(job.end(), 0, job.shown())
                self.assertIn("all is gathered", job.out)
                self.assertGreater(time.monotonic() - job.begin, 6 + 2, "the link was not slow")

    def test_a_rank_that_waits_for_one_which_moves_many_short_blocks_over_a_slow_link_does_so(self):
        with Hosts(3, "1gbit") as hosts:
            hosts.set_rate("20mbit")
            job = self.start(hosts, "64", "1", "0", "--first", "24576", "400", "--timeout", "4")
            self.assertEqual(job.end(), 0, job.shown())
            self.assertIn("all sums are right", job.out)
            self.assertRegex(job.err, r"\[0\] warning: rank 0 has waited [4-8](\.\d+)? s for all_reduce #0 .* missing: 1 .*; it goes on waiting while data move\n")
            self.assertGreater(time.monotonic() - job.begin, 4 + 4, "the link was not slow")

    def test_a_rank_that_waits_behind_many_short_blocks_which_no_longer_move_is_told_so_at_the_deadline(self):
        with Hosts(2, "1gbit") as hosts:
            hosts.set_rate("10mbit")
            program = ("1", "1", "0", "--at-once", "12288", "400", "--timeout", "4")
            # The wait ends a deadline after what was on its way, or when the process has been silent for longer.
            late = r"timeout after \d+(\.\d+)? s on rank 0 waiting for .* missing: (the data of )?1 "
            self.stop_in_the_middle(hosts, program, 1, rf"error: .*({late}|{who(1)} has died: it has been silent )", 4 + 2)

    def test_a_rank_that_waits_for_one_whose_data_no_longer_move_is_told_so_at_the_deadline(self):
        with Hosts(3, "1gbit") as hosts:
            hosts.set_rate("20mbit")
            program = ("64", "1", "0", "--first", "24576", "1", "--timeout", "4")
            late = r"error: .*timeout after \d+(\.\d+)? s on rank [01] waiting for .* missing: (the (data|sum) of )?[12]"
            self.stop_in_the_middle(hosts, program, 2, late, 4 + 4)

    def test_a_host_with_loopback_alone_runs_jobs_of_its_own(self):
        name = f"coshard-alone-{os.getpid()}"
        subprocess.run(["ip", "netns", "add", name], check=True)
        self.addCleanup(subprocess.run, ["ip", "netns", "del", name], check=True)
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        command = ["ip", "netns", "exec", name, COSHARD, "run", "--mpi", MPI, "--hosts", "localhost:2", "sh", "-c", "echo here"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, sorted(done.stdout.splitlines())), (0, ["[0] here", "[1] here"]), done.stderr)

    # Clocks

    def test_the_first_failure_is_the_cause_whatever_the_clocks_of_hosts_say(self):
        rank = "rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; "
        for ahead in (3600, 0):
            for first in (0, 1):
                with Hosts(2, "1gbit", ahead) as hosts:
                    ends = ("sleep 0.5; exit 5", "exited with code 5"), (f"{STEADY} 1 1 0 --ranks many", r"exited with code \d+: .*many.*")
                    for end, told in ends:
                        program = rank + f"if [ $rank = {first} ]; then {end}; else sleep 1.5; exit 3; fi"
                        job = Job(hosts, hosts.coshard_run(COSHARD, MPI, "sh", "-c", program))
                        self.addCleanup(job.__exit__)
                        self.assertNotEqual(job.end(), 0, job.shown())
                        self.assertRegex(job.err.splitlines()[-1], rf"^error: rank {first} {told}$", job.shown())

    # Processes

    def test_a_process_that_is_killed_on_another_host_is_named_by_the_survivors(self):
        for count in (2, 4):
            with Hosts(count, "1gbit") as hosts:
                job = self.start(hosts, *ENDLESS)
                victim = count - 1
                begin = time.monotonic()
                os.kill(hosts.pid_on(victim, STEADY), signal.SIGKILL)
                self.assertEqual(job.end(3 + NOISE), 128 + signal.SIGKILL, job.shown())
                self.assertLess(time.monotonic() - begin, 3 + NOISE)
                for survivor in range(victim):
                    self.assertRegex(job.err, rf"(?m)^\[{survivor}\] error: .*{who(victim)} has died: ")
                self.assertEqual(job.err.splitlines()[-1], f"error: rank {victim} was killed by SIGKILL (out of memory?)")
                self.check_nothing_remains(hosts)

    def test_a_process_that_is_stopped_on_another_host_is_warned_of_and_is_an_error_at_the_deadline(self):
        with Hosts(2, "1gbit") as hosts:
            job = self.start(hosts, *ENDLESS, "--timeout", "8")
            begin = time.monotonic()
            os.kill(hosts.pid_on(1, STEADY), signal.SIGSTOP)
            job.wait_for(rf"\[0\] warning: {who(1)} has been silent for [2-6](\.\d)? s")
            self.assertLess(time.monotonic() - begin, 2 + NOISE)
            job.wait_for(r"\[0\] error: .*timeout after (8|9|1\d)(\.\d+)? s on rank 0 waiting for all_reduce .* missing: (the (data|sum) of )?1 ")
            took = time.monotonic() - begin
            self.assertGreater(took, 8 - 0.1)
            self.assertLess(took, 8 + NOISE)
            self.assertNotEqual(job.end(2 + 3 + NOISE), 0, job.shown())  # it has two seconds for its last words
            self.check_nothing_remains(hosts)

    def test_a_process_that_is_stopped_on_another_host_and_continued_in_time_finishes(self):
        with Hosts(2, "1gbit") as hosts:
            job = self.start(hosts, "64", "300", "5", "--timeout", "8")
            job.wait_for("sum 0\n")  # before, it may not have connected, so that nobody hears it fall silent
            pid = hosts.pid_on(1, STEADY)
            os.kill(pid, signal.SIGSTOP)
            job.wait_for(rf"\[0\] warning: {who(1)} has been silent for ")
            time.sleep(1)
            os.kill(pid, signal.SIGCONT)
            self.assertEqual(job.end(), 0, job.shown())
            self.assertIn("all sums are right", job.out)

    # Strangers

    @parallel_cases.starts_first
    def test_strangers_do_no_harm(self):
        with Hosts(2, "1gbit") as hosts:
            job = self.start(hosts, "64", "1000", "25")
            listening = subprocess.run(hosts.on(0, "ss", "-Hltnp"), capture_output=True, text=True, check=True).stdout
            self.assertNotIn(f"pid={job.started.pid},", listening, "coshard run listens though all have come")
            port = job.wait_for(r"liveness at port (\d+)").group(1)
            pid = hosts.pid_on(0, STEADY)
            before = memory_of(pid)
            begin = time.monotonic()
            came = subprocess.run(hosts.on(1, sys.executable, STRANGERS, hosts.addresses[0], port), capture_output=True, text=True, timeout=120)
            self.assertIsNone(job.started.poll(), f"they came too late: {job.shown()}")
            grown = memory_of(pid) - before
            print(f"{came.stdout.strip()}; in {time.monotonic() - begin:.1f} s; memory grew by {grown} KiB of {before}")
            self.assertEqual(came.returncode, 0, came.stdout + came.stderr)
            self.assertLess(grown, 4096)
            self.assertEqual(job.end(), 0, job.shown())
            self.assertIn("all sums are right", job.out)
            # Open MPI's launcher warns of an agent that it was too slow to give a group of its own.
            said = [line for line in job.err.splitlines() if "plm:rsh: Warning: setpgid(" not in line]
            self.assertEqual(said, [])

    def test_processes_of_one_host_let_nobody_in_from_another(self):
        with Hosts(2, "1gbit") as hosts:
            hosts_of_job = hosts.on(0, COSHARD, "run", "--mpi", MPI, "--hosts", f"{hosts.addresses[0]}:2", STEADY, "64", "1000000", "5")
            with Job(hosts, hosts_of_job) as job:
                port = job.wait_for(r"liveness at port (\d+)").group(1)
                knock = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)"
                came = subprocess.run(hosts.on(1, sys.executable, "-c", knock, hosts.addresses[0], port), capture_output=True, text=True)
                self.assertIn("ConnectionRefusedError", came.stderr)


skip_unless_possible(MPI)
unittest.main(argv=[sys.argv[0], *sys.argv[4:]], testRunner=parallel_cases.Runner(5))
