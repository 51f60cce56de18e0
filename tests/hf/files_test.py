"""What coshard writes, read by safetensors; what safetensors writes, read by coshard; and that nothing which safetensors refuses is taken.
usage: files_test.py MODEL_FILES COSHARD [STATES]      exit code 77: no torch and safetensors in this Python or $TORCH_PYTHON"""
import json
import os
import random
import re
import struct
import subprocess
import sys
import tempfile

import torch_python

torch_python.require("safetensors", "torch")
import torch
from safetensors import safe_open
from safetensors.torch import save_file

DTYPES = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16, "i64": torch.int64,
          "i32": torch.int32, "bool": torch.bool}
HERE = os.path.dirname(os.path.abspath(__file__))


def bits(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def tensors_in(folder):
    """All tensors of a folder, with the file of each where an index says so."""
    index = os.path.join(folder, "model.safetensors.index.json")
    names = ["model.safetensors"]
    places = {}
    if os.path.exists(index):
        with open(index, encoding="utf-8") as file:
            places = json.load(file)["weight_map"]
        names = sorted(set(places.values()))
    assert sorted(name for name in os.listdir(folder) if name.endswith(".safetensors")) == names, folder
    found = {}
    for name in names:
        with safe_open(os.path.join(folder, name), "pt") as file:
            assert file.metadata() == {"format": "pt"}
            for key in file.keys():
                assert key not in found and places.get(key, name) == name, (folder, key)
                found[key] = file.get_tensor(key)
    return found


def check_states(model_files, folder, states):
    """Statements 3 and 4: files of random states."""
    told = subprocess.run([model_files, "write", folder, "0", str(states)], check=True, capture_output=True, text=True).stdout
    expected = {}
    for line in told.splitlines():
        seed, number, name, dtype, sizes = line.split("\t")
        expected.setdefault(seed, {})[name] = (int(number), DTYPES[dtype], [int(size) for size in sizes.split(",") if size])
    assert len(expected) == states
    count = files = 0
    for seed, tensors in expected.items():
        found = tensors_in(os.path.join(folder, seed))
        assert sorted(found) == sorted(tensors), (seed, sorted(found))
        for name, (number, dtype, shape) in tensors.items():
            tensor = found[name]
            assert tensor.dtype == dtype and list(tensor.shape) == shape, (seed, name, tensor.dtype, tensor.shape)
            mask = 1 if dtype == torch.bool else 255
            want = bytes((131 * k + 17 * number + int(seed)) & mask for k in range(tensor.numel() * tensor.element_size()))
            assert bits(tensor) == want, (seed, name)
            count += 1
        files += len(os.listdir(os.path.join(folder, seed)))
    print(f"{states} states: {count} tensors in {files} files are as they were written")


def random_file(path, draw):
    dtypes = list(DTYPES.values()) + [torch.uint8, torch.int16, torch.float8_e4m3fn, torch.uint64]
    tensors = {}
    for number in range(draw.randint(1, 8)):
        shape = [draw.choice([0, 1, 2, 3]) if draw.random() < 0.9 else 5 for _ in range(draw.randint(0, 8))]
        tensors[f"é{number}.{draw.randint(0, 9)}"] = torch.zeros(shape, dtype=draw.choice(dtypes))
    save_file(tensors, path, metadata={"format": "pt"})
    return tensors


def check_listing(coshard, folder):
    """ls and verify of files that safetensors wrote."""
    draw = random.Random(4)
    for number in range(10):
        path = os.path.join(folder, f"{number}.safetensors")
        tensors = random_file(path, draw)
        listed = json.loads(subprocess.run([coshard, "ckpt", "ls", "--json", path], check=True, capture_output=True).stdout)
        with open(path, "rb") as file:
            content = file.read()
        length = struct.unpack("<Q", content[:8])[0]
        header = json.loads(content[8:8 + length])
        want = {name: (header[name]["dtype"], list(tensor.shape), 8 + length + header[name]["data_offsets"][0]) for name, tensor in tensors.items()}
        assert {t["name"]: (t["dtype"], t["shape"], t["offset"]) for t in listed["tensors"]} == want, path
        answer = json.loads(subprocess.run([coshard, "ckpt", "verify", "--json", path], check=True, capture_output=True).stdout)
        assert answer["whole"] is True and answer["tensors"] == len(tensors), answer
    for name in ("whole", "sharded", "types.safetensors"):
        subprocess.run([coshard, "ckpt", "verify", os.path.join(HERE, "files", name)], check=True, capture_output=True)
    print("ckpt ls and verify agree with safetensors on 10 random files")


def check_conversions(coshard, folder):
    """convert casts as torch does, from and to each floating-point type."""
    floats = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
    torch.manual_seed(5)
    wide = torch.cat([torch.randn(20_000, dtype=torch.float64) * 10.0 ** torch.randint(-45, 40, (20_000,)).double(),
                      torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 65504.0, 65519.999, 65520.0, 2.0 ** -24, 2.0 ** -25])])
    tensors = {f"w.{name}": wide.to(dtype) for name, dtype in floats.items()}
    tensors |= {"i": torch.arange(-3, 4), "b": torch.tensor([True, False]), "u": torch.arange(5, dtype=torch.uint8)}
    path = os.path.join(folder, "wide.safetensors")
    save_file(tensors, path, metadata={"format": "pt"})
    for name, dtype in floats.items():
        out = os.path.join(folder, f"to-{name}")
        subprocess.run([coshard, "ckpt", "convert", path, out, "--dtype", name, "--file-bytes", "100000"], check=True, capture_output=True)
        found = tensors_in(out)
        assert sorted(found) == sorted(tensors)
        for key, tensor in tensors.items():
            want = tensor.to(dtype) if tensor.is_floating_point() else tensor
            same = found[key].dtype == want.dtype and bits(torch.nan_to_num(found[key], 7)) == bits(torch.nan_to_num(want, 7))
            assert same and torch.equal(found[key].isnan(), want.isnan()), (name, key)
    print("ckpt convert casts 80,000 values as torch does")


def changed(header, draw):
    pieces = ["0", "1", "-1", "2.0", "1e3", "[", "]", "{", "}", ",", '"', "null", "true", " ", "\t", "\\", "18446744073709551615", '"F32"', '"U8"',
              '"x":[{}],', '"__metadata__":{"a":"b"},', "9" * 20, "\\u0061", "\\ud800", "\x01", "é"]
    text = bytearray(header)
    for _ in range(draw.randint(1, 2)):
        at = draw.randrange(len(text) + 1)
        kind = draw.random() * 2
        if kind < 0.3:
            text[at:at + draw.randint(1, 4)] = draw.choice(pieces).encode()
        elif kind < 0.6:
            text[at:at] = draw.choice(pieces).encode()
        elif kind < 0.8:
            del text[at:at + draw.randint(1, 6)]
        elif numbers := list(re.finditer(rb"\d+", bytes(text))):
            match = draw.choice(numbers)
            text[match.start():match.end()] = str(draw.choice([0, 1, 2, 3, 4, 8, 2**62, 2**64 - 1])).encode()
    return bytes(text)


def is_refused(path):
    try:
        with safe_open(path, "np") as file:
            file.keys()
        return False
    except Exception:  # SafetensorError, and others of the binding
        return True


def check_refusals(model_files, folder, count):
    """Statement 6: what safetensors refuses, coshard refuses."""
    draw = random.Random(6)
    bases = []
    for name in sorted(os.listdir(os.path.join(HERE, "files"))):
        if name.startswith("header"):
            with open(os.path.join(HERE, "files", name), "rb") as file:
                content = file.read()
            length = struct.unpack("<Q", content[:8])[0]
            bases.append((content[8:8 + length], content[8 + length:]))
    bases.append((b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F32","shape":[0,2],"data_offsets":[1,1]}}', b"1"))
    paths = []
    for number in range(count):
        header, data = bases[draw.randrange(len(bases))] if number % 2 else bases[-1]
        header = changed(header, draw)
        paths.append(os.path.join(folder, f"{number}.safetensors"))
        with open(paths[-1], "wb") as file:
            file.write(struct.pack("<Q", len(header)) + header + data)
    paths += [os.path.join(HERE, "attacks", name) for name in os.listdir(os.path.join(HERE, "attacks")) if name.endswith("safetensors")]
    told = subprocess.run([model_files, "read"], input="\n".join(paths) + "\n", check=True, capture_output=True, text=True).stdout.splitlines()
    assert len(told) == len(paths)
    figures = {"by both": 0, "by coshard alone": 0, "by none": 0}
    reasons = {}
    for path, line in zip(paths, told):
        theirs, ours = is_refused(path), line.startswith("refused: ")
        assert ours or not theirs, f"{path}: safetensors refuses it"
        figures["by both" if theirs else "by coshard alone" if ours else "by none"] += 1
        if ours and not theirs:
            reasons.setdefault(re.sub(r"'.*?'|\d+", "_", line.split("safetensors: ", 1)[1]), path)
    print("refused", figures, "alone for:", sorted(reasons))


def main(model_files, coshard, states="100"):
    with tempfile.TemporaryDirectory() as folder:
        for part in ("states", "listing", "conversions", "refusals"):
            os.mkdir(os.path.join(folder, part))
        check_states(model_files, os.path.join(folder, "states"), int(states))
        check_listing(coshard, os.path.join(folder, "listing"))
        check_conversions(coshard, os.path.join(folder, "conversions"))
        check_refusals(model_files, os.path.join(folder, "refusals"), 2000)


if __name__ == "__main__":
    main(*sys.argv[1:])
