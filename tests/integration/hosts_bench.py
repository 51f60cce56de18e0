#!/usr/bin/env python3
"""Measures what processes and links cost: a training step of two processes beside one of two threads; between two hosts, which are network
namespaces, an all_reduce beside the time of the wire, how much of one equal compute hides, and a training step, serial beside overlapped.
Figures, and whether they reach their targets; exit code 0 either way.

usage: hosts_bench.py LINK_JOB TRAIN [MPI...]      build/tests/integration/link_job build/examples/train; MPI: openmpi, mpich
"""
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

from namespaces import LAUNCHERS, Hosts, Job, skip_unless_possible

GIGABIT, SLOW = 1e9 / 8, 800e6 / 8  # bytes a second
RATES = {"800mbit": SLOW, "2400mbit": 3 * SLOW}
PAIRS = 3  # of runs, interleaved; medians count
STEP = "--layers 4 --dim 256 --heads 8 --ffn 688 --seq 256 --batch 8 --threads 1 --steps 12 --sample 0 --eval-blocks 1 --log-every 100".split()
ON_ONE_MACHINE = {"openmpi": ["--oversubscribe"], "mpich": []}


def measure(hosts, mpi, program, *options, each=1):
    with Job(hosts, hosts.mpirun(mpi, program, *options, each=each)) as job:
        if job.end(300) != 0:
            sys.exit(job.shown())
        return job.out


def figures(command, folder, run):
    """What a training that `run` starts says of itself."""
    run([*command, "--json", f"{folder}/run.json"])
    with open(f"{folder}/run.json", encoding="utf-8") as file:
        return json.load(file)


def step_ms(command, folder, run):
    return figures(command, folder, run)["step_ms"]


def on_this_machine(command):
    environment = {**os.environ, "TERM": "dumb", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    subprocess.run(command, check=True, capture_output=True, text=True, env=environment, timeout=300)


def processes_beside_threads(mpi, train, folder):
    start = [LAUNCHERS[mpi], "-n", "2", *ON_ONE_MACHINE[mpi]]
    pairs = [(step_ms([*train, "--ranks", "2"], folder, on_this_machine), step_ms([*start, *train], folder, on_this_machine)) for _ in range(PAIRS)]
    threads, processes = (statistics.median(times) for times in zip(*pairs))
    print(f"{mpi}, shared memory: a step of 2 threads {threads:.0f} ms, of 2 processes {processes:.0f} ms: "
          f"{processes / threads:.2f} (target 1.1)")


def best_ms(serial, bytes_per_s):
    """The closed form: all communication under compute, or all compute under communication. Of two hosts, each of which sends as much as
    an all_reduce has, and half of what is gathered or scattered."""
    communication = serial["communication"]
    wire = sum(row["bytes_per_step"] * (1 if row["kind"] == "all_reduce" else 0.5) for row in communication["rows"]) / bytes_per_s * 1e3
    return max(serial["step_ms"] - communication["exposed_ms_per_step"], wire)


def steps_over(hosts, mpi, train, folder, rate):
    def on_hosts(command):
        measure(hosts, mpi, *command)

    for plan, how in (("tp", []), ("tp", ["--weave", "4"]), ("tp-sp", []), ("tp-sp", ["--weave", "4"]), ("dp", [])):
        run = [*train, "--plan", plan]
        pairs = [[figures([*run, *way], folder, on_hosts) for way in (["--overlap", "off"], ["--measure-links", *how])] for _ in range(PAIRS)]
        serial, overlapped = (statistics.median(each["step_ms"] for each in runs) for runs in zip(*pairs))
        best = statistics.median(best_ms(pair[0], RATES[rate]) for pair in pairs)
        print(f"{mpi}, {rate}: a step with plan {' '.join([plan, *how])}, serial {serial:.0f} ms, overlapped {overlapped:.0f} ms: "
              f"{serial / overlapped:.2f} x as fast; the closed-form best is {best:.0f} ms, {serial / best:.2f} x: {best / overlapped:.0%} (target 85 %)")


def collectives_over(mpi, link_job):
    with Hosts(2, "1gbit") as hosts:
        out = measure(hosts, mpi, link_job, "--threads", "1")
    print(f"{mpi}, 2 hosts, 1 Gbit/s   wire ms   all_reduce ms   ratio (target 1.1)")
    for kib, took in re.findall(r"^all_reduce (\d+) ([\d.]+)", out, re.M):
        wire = int(kib) * 1024 / GIGABIT * 1e3  # each sends as much as it has
        print(f"{int(kib) // 1024:>8} MiB {wire:>21.1f} {float(took):>15.1f} {float(took) / wire:>7.2f}")
    with Hosts(2, "800mbit") as hosts:
        out = measure(hosts, mpi, link_job, "--threads", "1")
    reduce, compute, serial, overlapped, hidden, stretched = map(float, re.search(r"^overlap (.*)", out, re.M).group(1).split())
    print(f"{mpi}, 20 MB over 800 Mbit/s: all_reduce {reduce:.0f} ms (wire {20e6 / SLOW * 1e3:.0f}), compute {compute:.0f} ms, "
          f"serial {serial:.0f} ms, overlapped {overlapped:.0f} ms: {hidden:.0%} hidden (target 85 %); "
          f"TCP took {stretched:.0f} ms from compute")


def links_over(mpi, link_job, rate):
    with Hosts(2, rate) as hosts:
        out = measure(hosts, mpi, link_job, "--threads", "1", each=2)
    plan, before, after = re.search(r"^links (\S+) (\S+) (\S+)", out, re.M).groups()
    print(f"{mpi}, {rate}, dp=2 between hosts, tp=2 within: a step {float(before):.1f} ms, once the links are measured {float(after):.1f} ms: "
          f"{float(after) / float(before):.2f} (target 1.03); the gradient's sum: {plan.rstrip(',')}")


def main():
    link_job, train, mpis = sys.argv[1], sys.argv[2], sys.argv[3:] or ["openmpi", "mpich"]
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/text", "w", encoding="ascii") as file:
            file.writelines(f"{n} times {n} is {n * n}\n" for n in range(50000))
        training = [train, "--text", f"{folder}/text", *STEP]
        for mpi in mpis:
            skip_unless_possible(mpi)
            processes_beside_threads(mpi, training, folder)
            collectives_over(mpi, link_job)
            for rate in RATES:
                links_over(mpi, link_job, rate)
                with Hosts(2, rate) as hosts:
                    steps_over(hosts, mpi, training, folder, rate)


main()
