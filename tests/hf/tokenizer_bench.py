"""Speed of the tokenizer of examples/llama beside `tokenizers` (encode_batch_fast), each on one thread, in seconds of the
CPU, on the lines of texts.
usage: tokenizer_bench.py LLAMA_TEXT FOLDER TEXT...      FOLDER has tokenizer.json; needs a Python with tokenizers ($TORCH_PYTHON)"""
import os
import statistics
import subprocess
import sys
import time

import torch_python

torch_python.require("tokenizers")
os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import Tokenizer

LLAMA_TEXT, FOLDER, *TEXTS = sys.argv[1:]
ROUNDS, PASSES = 5, 4


def ours(text):
    """Seconds of the first pass of a process, of its other passes, and ids."""
    told = subprocess.run([LLAMA_TEXT, "bench", FOLDER, text, str(PASSES)], check=True, capture_output=True, text=True).stdout.split()
    return float(told[0]), min(map(float, told[2::2])), int(told[1])


def theirs(lines):
    made = Tokenizer.from_file(os.path.join(FOLDER, "tokenizer.json"))
    seconds = []
    for _ in range(PASSES):
        begin = time.process_time()
        ids = made.encode_batch_fast(lines)
        seconds.append(time.process_time() - begin)
    return seconds[0], min(seconds[1:]), sum(len(i.ids) for i in ids)


for text in TEXTS:
    with open(text, encoding="utf-8", newline="") as file:
        content = file.read()
    lines = content.removesuffix("\n").split("\n")
    ratios = []
    for _ in range(ROUNDS):
        a, b = ours(text), theirs(lines)
        assert a[2] == b[2], f"{a[2]} ids, tokenizers {b[2]}"
        ratios.append((b[0] / a[0], b[1] / a[1], a[0], a[1], b[0], b[1]))
    cold, warm, *seconds = (statistics.median(r) for r in zip(*ratios))
    size = len(content.encode()) / 1e6
    rates = [size / s for s in seconds]
    print(f"{text}: {size:.1f} MB; cold {rates[0]:.1f} MB/s, {cold:.1f} x tokenizers ({rates[2]:.2f}); "
          f"warm {rates[1]:.1f} MB/s, {warm:.1f} x tokenizers ({rates[3]:.2f})")
