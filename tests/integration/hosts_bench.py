#!/usr/bin/env python3
"""Measures what a link between two hosts, which are network namespaces, costs: an all_reduce beside the time of the wire, and how much of
one equal compute hides. Figures, and whether they reach their targets; exit code 0 either way.

usage: hosts_bench.py LINK_JOB [MPI...]      build/tests/integration/link_job; MPI: openmpi, mpich
"""
import re
import sys

from namespaces import Hosts, Job, skip_unless_possible

GIGABIT, SLOW = 1e9 / 8, 800e6 / 8  # bytes a second
OPTIONS = ["--threads", "1"]


def measure(hosts, mpi, program):
    with Job(hosts, hosts.mpirun(mpi, program, *OPTIONS)) as job:
        if job.end(120) != 0:
            sys.exit(job.shown())
        return job.out


def main():
    program, mpis = sys.argv[1], sys.argv[2:] or ["openmpi", "mpich"]
    for mpi in mpis:
        skip_unless_possible(mpi)
        with Hosts(2, "1gbit") as hosts:
            out = measure(hosts, mpi, program)
        print(f"{mpi}, 2 hosts, 1 Gbit/s   wire ms   all_reduce ms   ratio (target 1.1)")
        for kib, took in re.findall(r"^all_reduce (\d+) ([\d.]+)", out, re.M):
            wire = int(kib) * 1024 / GIGABIT * 1e3  # each sends as much as it has
            print(f"{int(kib) // 1024:>8} MiB {wire:>21.1f} {float(took):>15.1f} {float(took) / wire:>7.2f}")
        with Hosts(2, "800mbit") as hosts:
            out = measure(hosts, mpi, program)
        reduce, compute, serial, overlapped, hidden = map(float, re.search(r"^overlap (.*)", out, re.M).group(1).split())
        print(f"{mpi}, 20 MB over 800 Mbit/s: all_reduce {reduce:.0f} ms (wire {20e6 / SLOW * 1e3:.0f}), compute {compute:.0f} ms, "
              f"serial {serial:.0f} ms, overlapped {overlapped:.0f} ms: {hidden:.0%} hidden (target 85 %)")


main()
