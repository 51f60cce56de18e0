#!/usr/bin/env python3
"""Processes with torchrun's variables and without MPI: they meet at process 0, and nobody else gets in.

usage: torchrun_test.py FAULTY_JOB
"""
import os
import random
import socket
import subprocess
import sys
import time
import unittest

import parallel_cases
from like_torchrun import free_port, variables

PROGRAM = sys.argv[1]
NOTHING = ["9", "short", "60"]  # 60 steps, and no fault


class Torchrun(unittest.TestCase):
    def setUp(self):
        self.port = free_port()
        self.running = []

    def tearDown(self):
        for one in self.running:
            one.kill()
            one.communicate()

    def start(self, rank, size, *options, local_size=None, **more):
        command = [PROGRAM, *NOTHING, "--ranks", str(size), *options]
        env = {**os.environ, **variables(rank, size, self.port, local_size), **more}
        one = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.running.append(one)
        return one

    def ended(self, one):
        out, err = one.communicate(timeout=60)
        return one.returncode, out, err

    def test_processes_meet_whoever_comes_first(self):
        for order in ([0, 1, 2], [2, 1, 0]):
            self.port = free_port()
            jobs = []
            for rank in order:
                jobs.append(self.start(rank, 3))
                time.sleep(0.3)
            for rank, job in zip(order, jobs):
                code, out, err = self.ended(job)
                self.assertEqual((code, err), (0, ""))
                self.assertEqual("all steps done" in out, rank == 0)

    def test_one_process_is_as_by_itself(self):
        code, out, err = self.ended(self.start(0, 1))
        self.assertEqual((code, err), (0, ""))
        self.assertIn("all steps done", out)

    def test_another_token_is_refused_and_the_job_goes_on(self):
        zero = self.start(0, 2, COSHARD_TOKEN="right")
        for wrong in ("wrong", ""):
            code, _, err = self.ended(self.start(1, 2, COSHARD_TOKEN=wrong))
            self.assertEqual(code, 1)
            self.assertEqual(err, f"error: process 1 cannot connect to process 0: 127.0.0.1:{self.port + 1}: rejected: the processes have different secrets (COSHARD_TOKEN)\n")
        one = self.start(1, 2, COSHARD_TOKEN="right")
        for job in (zero, one):
            code, _, err = self.ended(job)
            self.assertEqual((code, err), (0, ""))

    def test_several_hosts_need_a_token(self):
        code, _, err = self.ended(self.start(0, 4, local_size=2, MASTER_ADDR="192.0.2.1"))
        self.assertEqual(code, 2)
        self.assertIn("several hosts (MASTER_ADDR=192.0.2.1) without COSHARD_TOKEN", err)

    def test_strangers_do_no_harm(self):
        zero, one = self.start(0, 2), None
        draw = random.Random(7)
        strangers = []
        begin = time.monotonic()
        while one is None or (time.monotonic() < begin + 10 and len(strangers) < 10000):
            stranger = socket.socket()
            stranger.settimeout(1)
            try:
                stranger.connect(("127.0.0.1", self.port + 1))
                if len(strangers) % 2:
                    stranger.sendall(draw.randbytes(draw.randrange(1, 2000)))
            except OSError:
                time.sleep(0.01)
            strangers.append(stranger)
            if len(strangers) > 500:
                strangers[-500].close()
            if one is None and (len(strangers) >= 1000 or time.monotonic() > begin + 5):  # a connection may take a second
                with open(f"/proc/{zero.pid}/status", encoding="ascii") as status:  # it waits for the other
                    kib = next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))
                self.assertLess(kib, 200 * 1024)
                one = self.start(1, 2)
        for stranger in strangers:
            stranger.close()
        for job in (zero, one):
            code, _, err = self.ended(job)
            self.assertEqual((code, err), (0, ""))

    def test_a_port_that_is_taken_is_named(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", self.port + 1))
            taken.listen()
            code, _, err = self.ended(self.start(0, 2))
        self.assertEqual(code, 1)
        self.assertEqual(err, f"error: process 0 cannot listen on port {self.port + 1}: the port has been in use for 5 s\n")

    def test_a_process_that_never_comes_is_named(self):
        code, _, err = self.ended(self.start(0, 3, "--timeout", "1"))
        self.assertEqual(code, 1)
        self.assertIn("2 of 3 processes did not join the job within 1 s: 1, 2", err)
        code, _, err = self.ended(self.start(1, 3, "--timeout", "1"))
        self.assertEqual(code, 1)
        self.assertIn("process 1 cannot connect to process 0: 127.0.0.1", err)


unittest.main(argv=[sys.argv[0], *sys.argv[2:]], testRunner=parallel_cases.Runner(3))
