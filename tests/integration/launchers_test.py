#!/usr/bin/env python3
"""Programs as several processes under the launcher of each MPI: what they print is what threads print; what they refuse to start as.

usage: launchers_test.py MPI QUICKSTART TRAIN OWN_MPI [COSHARD]
MPI: openmpi, mpich; exit code 77: its launcher is not there. OWN_MPI initialises MPI itself and is built with the same one.
"""
import collections
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import parallel_cases

MPI, QUICKSTART, TRAIN, OWN_MPI = sys.argv[1:5]
COSHARD = sys.argv[5] if len(sys.argv) > 5 else None
# No terminal, whatever mpirun gives its processes.
SETTINGS = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "TERM": "dumb"}
# Processes wait for each other on fewer cores than there are of them.
STARTS = {"openmpi": ["mpirun.openmpi", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1"], "mpich": ["mpirun.mpich"]}
OTHER = "mpich" if MPI == "openmpi" else "openmpi"
NAMES = {"openmpi": "Open MPI", "mpich": "MPICH"}


def start(count, *command, mpi=MPI):
    return [*STARTS[mpi], "-n", str(count), *command]


def run(command, **variables):
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **SETTINGS, **variables}, timeout=120)


def printed(command, **variables):
    done = run(command, **variables)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return [line for line in done.stdout.split("\n") if line]


def expect(same, what, *shown):
    if not same:
        sys.exit(f"{what}: " + "\n".join(str(one) for one in shown))
    print(f"ok: {what}")


def expect_refused(what, command, *told, **variables):
    """In one line of its own, which `told` is in; exit code 2."""
    done = run(command, **variables)
    lines = [line for line in done.stderr.split("\n") if re.match(r"(error|train): ", line)]
    expect(done.returncode != 0 and lines and all(any(text in line for line in lines) for text in told), what, done.returncode, done.stderr)


def spread_as_threads():
    for processes, ranks in [(2, 2), (2, 4), (3, 3), (4, 4)]:
        threads = printed([QUICKSTART, "--ranks", str(ranks)])
        # one rank per process, unless told otherwise
        options = [] if ranks == processes else ["--ranks", str(ranks)]
        spread = printed(start(processes, QUICKSTART, *options))
        expect(threads == spread and threads, f"{processes} processes, {ranks} ranks", threads, spread)
    threads = printed([QUICKSTART])
    expect(threads == printed(start(1, QUICKSTART)), "a job of one process runs threads", threads)


def trains():
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "text")
        with open(text, "w", encoding="ascii") as file:
            file.writelines(f"{n} times {n} is {n * n}\n" for n in range(5000))
        train = [TRAIN, "--text", text, *"--layers 1 --dim 32 --heads 4 --ffn 48 --seq 32 --batch 2 --steps 3 --sample 8 --log-every 1 --threads 1".split()]

        def figures(lines):  # whatever does not depend on time, and is told once
            return [found.group() for line in lines for found in re.finditer(r"^.* ranks, plan.*|loss [\d.]+|held-out .*", line)]

        def table(lines):  # what was moved: kind, purpose, count and bytes of each row, in no order
            head = next(n for n, line in enumerate(lines) if line.startswith("op "))
            end = next(n for n, line in enumerate(lines) if line.startswith("all "))
            return [lines[head - 1], *sorted([line[:60].split() for line in lines[head + 1 : end + 1]])]

        def written(name, command):  # the keys of the JSON file, what each rank of the trace did how often, and over what
            json_file, trace = os.path.join(folder, name + ".json"), os.path.join(folder, name + ".trace")
            lines = printed([*command, "--json", json_file, "--trace", trace])
            with open(json_file, encoding="utf-8") as file:
                report = json.load(file)
            with open(trace, encoding="utf-8") as file:
                traced = json.load(file)
            spans = [one for one in traced["traceEvents"] if one["ph"] == "X"]
            # How often an await is shown depends on whether a part of it took any time.
            did = collections.Counter((one["pid"], one["name"]) for one in spans if not one["name"].startswith("await "))
            did.update({(one["pid"], one["name"]) for one in spans if one["name"].startswith("await ")})
            begin, end = min(one["ts"] for one in spans), max(one["ts"] for one in spans)
            return lines, sorted(report), report["loss"], did, end - begin, traced["otherData"]["transport"]

        for processes, ranks in [(2, 2), (2, 4), (4, 4)]:
            what = f"train, {ranks} ranks in {processes} processes"
            threads = written("threads", [*train, "--ranks", str(ranks)])
            spread = written("spread", start(processes, *train, "--ranks", str(ranks)))
            expect(figures(threads[0]) == figures(spread[0]) and len(figures(spread[0])) == 5, what, threads[0], spread[0])
            expect(table(threads[0]) == table(spread[0]) and len(table(spread[0])) > 4, f"{what}: one table of all ranks", threads[0], spread[0])
            expect(threads[1] == spread[1] and len(spread[1]) > 8, f"{what}: the same keys of JSON", threads[1], spread[1])
            expect(threads[2] == spread[2] and len(spread[2]) == 3, f"{what}: the same losses, bit by bit", threads[2], spread[2])
            expect(threads[3] == spread[3] and len({rank for rank, _ in spread[3]}) == ranks, f"{what}: one trace of all ranks", threads[3], spread[3])
            expect(spread[4] < 60e6, f"{what}: on one clock", spread[4])
            transports = threads[5] == "threads of one process" and spread[5].startswith(f"{processes} processes over {NAMES[MPI]}")
            expect(transports, f"{what}: the trace says over what", threads[5], spread[5])
        expect_refused("heads that the processes do not divide", start(3, *train), "--heads 4 is not divisible by --ranks 3")


def refusals():
    expect_refused("ranks that the processes do not divide", start(2, QUICKSTART, "--ranks", "3"), "ranks 3 is not a multiple of the 2 processes")
    torchrun = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    expect_refused("torchrun alone", [QUICKSTART], "WORLD_SIZE=2 and RANK=0", "mpirun -n 2", **torchrun)
    expect_refused("half of torchrun", [QUICKSTART], "WORLD_SIZE=2 without RANK, LOCAL_RANK, MASTER_ADDR, MASTER_PORT", WORLD_SIZE="2")
    expect_refused("another torchrun", start(2, QUICKSTART), " contradict WORLD_SIZE=5 and RANK=4: ", **{**torchrun, "WORLD_SIZE": "5", "RANK": "4"})
    size, rank = {"openmpi": ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"), "mpich": ("PMI_SIZE", "PMI_RANK")}[MPI]
    expect_refused("a launcher that MPI does not know", [QUICKSTART], f"{size}=2 and {rank}=1, but MPI reports size 1 and rank 0", NAMES[MPI], **{size: "2", rank: "1"})


def own_mpi():
    for level in ("serialized", "multiple"):  # runs twice, the second time on an io_context of its own
        expect(printed(start(3, OWN_MPI, level)) == ["sum 6"] * 2, f"a program that initialises MPI, {level}")
    expect(printed([OWN_MPI, "serialized"]) == ["sum 3"] * 2, "the same by itself: threads")
    late = printed(start(3, OWN_MPI, "serialized", "late"))  # two wait for the third one; UCX may say that a message was not received
    told = sorted(line for line in late if line.startswith("told "))
    expect(told == ["told disk full"] + ["told rank 2 ended with: disk full"] * 2, "a failure elsewhere, after the ranks here have ended", told)
    for level in ("single", "funneled"):
        expect_refused(f"MPI is not for threads: {level}", start(2, OWN_MPI, level), f"with MPI_THREAD_{level.upper()}: call MPI_Init_thread with")
    if MPI == "openmpi":  # MPICH would not find its peers either
        hidden = ["env", "-u", "OMPI_COMM_WORLD_SIZE", "-u", "OMPI_COMM_WORLD_RANK"]
        expect(printed(start(2, *hidden, OWN_MPI, "serialized")) == ["sum 3"] * 2, "MPI by a launcher that is not known")
    if shutil.which(STARTS[OTHER][0]):
        expect_refused("the launcher of the other MPI", start(2, OWN_MPI, "serialized", mpi=OTHER), f"the program has loaded {NAMES[MPI]}: start it with")


def doctor():
    lines = printed(start(3, COSHARD, "doctor"))
    for text in (r"compiler .*", r"processes      3 on 1 host", r"host 0         .*, ranks 0, 1, 2", r"link           [\d.]+ us, [\d.]+ GB/s, measured between ranks"):
        expect(len([line for line in lines if re.fullmatch(text, line)]) == 1, f"doctor of a job says once: {text}", "\n".join(lines))


def main():
    if shutil.which(STARTS[MPI][0]) is None:
        print(f"skipped: there is no {STARTS[MPI][0]}")
        sys.exit(77)
    cases = [trains, own_mpi, spread_as_threads, refusals, *([doctor] if COSHARD else [])]
    result = parallel_cases.Runner(3).run(unittest.TestSuite(unittest.FunctionTestCase(case) for case in cases))
    sys.exit(not result.wasSuccessful())


main()
