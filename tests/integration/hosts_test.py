#!/usr/bin/env python3
"""Programs over several hosts, which are network namespaces: what they compute is what threads compute, and it goes over the link.

usage: hosts_test.py MPI TRAIN STEADY_JOB COSHARD SeveralHosts|DelayedHosts      MPI: openmpi, mpich; exit code 77: no namespaces can be
made here, its launcher is not there, or for DelayedHosts: this kernel cannot delay what a link carries
"""
import json
import re
import subprocess
import sys
import tempfile
import unittest

import parallel_cases
from namespaces import Hosts, Job, skip_unless_possible

MPI, TRAIN, STEADY, COSHARD = sys.argv[1:5]
KIB = 1024


class Training(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.text = f"{cls.folder.name}/text"
        with open(cls.text, "w", encoding="ascii") as file:
            file.writelines(f"{n} times {n} is {n * n}\n" for n in range(5000))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def training(self, ranks, name):
        settings = "--layers 2 --dim 64 --heads 8 --ffn 96 --seq 64 --batch 2 --steps 4 --sample 0 --eval-blocks 1 --threads 1".split()
        return [TRAIN, "--text", self.text, *settings, "--ranks", str(ranks), "--json", f"{self.folder.name}/{name}"]

    def losses(self, name):
        with open(f"{self.folder.name}/{name}", encoding="utf-8") as file:
            found = json.load(file)["loss"]
        self.assertEqual(len(found), 4)
        return found

    def losses_of_threads(self, ranks):
        done = subprocess.run(self.training(ranks, "threads.json"), capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.losses("threads.json")

    def run_job(self, hosts, command):
        with Job(hosts, command) as job:
            self.assertEqual(job.end(), 0, job.shown())
            return job.out

    def trains(self, hosts, ranks):
        """What a rank sends, by its own account."""
        threads = self.losses_of_threads(ranks)
        out = self.run_job(hosts, hosts.mpirun(MPI, *self.training(ranks, "hosts.json")))
        self.assertEqual(self.losses("hosts.json"), threads)
        return float(re.search(r"^all +total +\d+ +([\d.]+) ", out, re.M).group(1)) * 1e6


class SeveralHosts(Training):
    def test_hosts_have_one_name(self):
        with Hosts(2, "1gbit") as hosts:
            names = {subprocess.run(hosts.on(host, "uname", "-n"), capture_output=True, text=True).stdout for host in (0, 1)}
            self.assertEqual(len(names), 1)

    def test_training_on_two_hosts_has_the_losses_of_threads(self):
        with Hosts(2, "1gbit") as hosts:
            before = [hosts.sent(host) for host in (0, 1)]
            payload = self.trains(hosts, 2)
            self.assertGreater(payload, 1e5)
            for host in (0, 1):
                self.assertGreater(hosts.sent(host) - before[host], payload)

    def test_training_on_two_hosts_with_two_ranks_on_each_has_the_losses_of_threads(self):
        with Hosts(2, "1gbit") as hosts:
            before = [hosts.sent(host) for host in (0, 1)]
            payload = self.trains(hosts, 4)
            for host in (0, 1):  # half of it at least is for the other host's ranks
                self.assertGreater(hosts.sent(host) - before[host], payload / 2)

    def test_training_on_four_hosts_has_the_losses_of_threads(self):
        with Hosts(4, "1gbit") as hosts:
            before = [hosts.sent(host) for host in range(4)]
            payload = self.trains(hosts, 4)
            for host in range(4):
                self.assertGreater(hosts.sent(host) - before[host], payload)

    def test_two_processes_on_each_host_reach_each_other(self):
        with Hosts(2, "1gbit") as hosts:
            before = [hosts.sent(host) for host in (0, 1)]
            out = self.run_job(hosts, hosts.mpirun(MPI, STEADY, "64", "5", "0", each=2))
            self.assertIn("all sums are right", out)
            for host in (0, 1):
                self.assertGreater(hosts.sent(host) - before[host], 5 * 64 * 1024)

    def test_a_mesh_keeps_its_inner_dimension_within_hosts_though_ranks_alternate(self):
        with Hosts(2, "1gbit") as hosts:
            by_node = {"openmpi": ["--map-by", "node"], "mpich": ["-ppn", "1"]}[MPI]
            launcher = hosts.mpirun(MPI, each=2)
            before = [hosts.sent(host) for host in (0, 1)]
            out = self.run_job(hosts, [*launcher, *by_node, COSHARD, "doctor"])
            self.assertRegex(out, r"(?m)^processes +4 on 2 hosts$")
            self.assertRegex(out, r"(?m)^host 0 +.*, ranks 0, 2$")
            self.assertRegex(out, r"(?m)^host 1 +.*, ranks 1, 3$")
            links = {name: float(rate) for rate, name in re.findall(r"(?m)^link +[\d.e+]+ us, ([\d.e-]+) GB/s, measured between (\w+)$", out)}
            self.assertEqual(sorted(links), ["hosts", "ranks"], out)
            self.assertLess(links["hosts"], 0.15, out)  # 1 Gbit/s, and what a bucket of tbf holds
            for host in (0, 1):  # one gather of 4 MiB by each rank, 13 times
                self.assertGreater(hosts.sent(host) - before[host], 13 * 2 * 4 * KIB * KIB)

    def test_sums_go_over_the_link(self):
        for count in (2, 4):
            with Hosts(count, "1gbit") as hosts:
                before = [hosts.sent(host) for host in range(count)]
                out = self.run_job(hosts, hosts.mpirun(MPI, STEADY, str(KIB), "10", "0"))
                self.assertIn("all sums are right", out)
                payload = 10 * KIB * 1024 * 2 * (count - 1) / count  # no all_reduce sends less
                for host in range(count):
                    self.assertGreater(hosts.sent(host) - before[host], payload)

    def test_a_shard_that_two_ranks_of_a_host_gather_goes_over_the_link_once(self):
        for kib, pieces in ((16384, 1), (16384, 400)):
            with Hosts(2, "1gbit") as hosts:
                before = [hosts.sent(host) for host in (0, 1)]
                out = self.run_job(hosts, hosts.mpirun(MPI, STEADY, "1", "1", "0", "--at-once", str(kib), str(pieces), "--ranks", "4"))
                self.assertIn("all is gathered", out)
                payload = kib // pieces * KIB * pieces * 2  # of the two ranks there
                for host in (0, 1):
                    sent = hosts.sent(host) - before[host]
                    self.assertGreater(sent, payload)
                    self.assertLess(sent, 1.1 * payload)

    def test_coshard_run_starts_processes_on_hosts(self):
        for count in (2, 4):
            with Hosts(count, "1gbit") as hosts:
                before = [hosts.sent(host) for host in range(count)]
                out = self.run_job(hosts, hosts.coshard_run(COSHARD, MPI, STEADY, str(KIB), "10", "0"))
                self.assertIn("[0] all sums are right", out)
                for host in range(count):
                    self.assertGreater(hosts.sent(host) - before[host], 10 * KIB * 1024 * 2 * (count - 1) / count)


class DelayedHosts(Training):
    def test_a_delay_of_the_link_changes_nothing(self):
        with Hosts(2, "1gbit") as hosts:
            hosts.set_delay("2ms")
            self.trains(hosts, 2)


skip_unless_possible(MPI, delay="DelayedHosts" in sys.argv[5:])
unittest.main(argv=[sys.argv[0], *sys.argv[5:]], testRunner=parallel_cases.Runner(3))
