"""LoRA adapters beside PEFT, and token files beside NumPy: what coshard trains and writes is read there with the same logits, and the other way round; merged files too.
usage: lora_test.py LORA_FILES COSHARD      exit code 77: no torch, transformers and peft in this Python or $TORCH_PYTHON"""
import os
import subprocess
import sys
import tempfile

import torch_python

torch_python.require("numpy", "torch", "transformers", "peft", "safetensors")
import numpy
import torch
from peft import AutoPeftModelForCausalLM, LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

TEXT = bytes(32 + (i * i + i // 7) % 90 for i in range(64)) * 32
TOLERANCE = 1e-5


def run(*command):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout


def refused(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    assert done.returncode == 2, (command, done)
    return done.stderr


def distance(a, b):
    return ((a - b).abs().max() / b.abs().max().clamp(min=1)).item()


def logits_of(model):
    with torch.no_grad():
        return model.eval()(torch.tensor([list(TEXT[:200])])).logits


class Folder:
    """A scratch folder with a base model and a text."""

    def __init__(self, path, program):
        self.path, self.program = path, program
        torch.manual_seed(0)
        config = LlamaConfig(vocab_size=256, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                             num_key_value_heads=2, max_position_embeddings=4096, initializer_range=0.1)
        self.base = LlamaForCausalLM(config)
        self.base.save_pretrained(self.at("base"))
        for name, text in (("text", TEXT), ("start", TEXT[:200])):
            with open(self.at(name), "wb") as file:
                file.write(text)

    def at(self, name):
        return os.path.join(self.path, name)

    def train(self, name, ranks, plan, steps):
        out = run(self.program, "train", self.at("base"), self.at("text"), self.at(name), ranks, plan, steps)
        return [float(line) for line in out.split()]

    def logits(self, adapter, ranks, plan):
        name = self.at(f"logits of {adapter} {ranks} {plan}")
        run(self.program, "logits", self.at("base"), self.at(adapter), self.at("start"), name, ranks, plan)
        return load_file(os.path.join(name, "model.safetensors"))["logits"]

    def peft_model(self, adapter):
        return PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(self.at("base")), self.at(adapter))


def check_training(folder):
    """Statement 64: the loss halves, PEFT reads the adapter, and each plan gives the same."""
    losses = folder.train("one", 1, "tp", 200)
    assert losses[-1] < losses[0] / 2, (losses[0], losses[-1])
    peft = logits_of(folder.peft_model("one"))
    assert distance(logits_of(AutoPeftModelForCausalLM.from_pretrained(folder.at("one"))), peft) == 0
    plain = logits_of(AutoModelForCausalLM.from_pretrained(folder.at("base")))
    assert distance(peft, plain) > 0.1
    for ranks, plan in ((1, "tp"), (2, "tp"), (2, "tp-sp"), (2, "fsdp")):
        got = folder.logits("one", ranks, plan)
        assert distance(got, peft) < TOLERANCE, (ranks, plan, distance(got, peft))
    want = None
    for ranks, plan in ((1, "tp"), (2, "tp"), (2, "tp-sp")):
        folder.train(f"{plan} {ranks}", ranks, plan, 5)
        adapter = load_file(folder.at(f"{plan} {ranks}/adapter_model.safetensors"))
        want = want or adapter
        for name, value in adapter.items():
            assert distance(value, want[name]) < 1e-4, (ranks, plan, name, distance(value, want[name]))
    print(f"200 steps: loss {losses[0]:.3f} -> {losses[-1]:.3f}; PEFT's logits are equal on each plan")


def check_merge(folder, coshard):
    run(coshard, "ckpt", "merge", folder.at("base"), folder.at("one"), folder.at("merged"))
    merged = AutoModelForCausalLM.from_pretrained(folder.at("merged"))
    want = folder.peft_model("one").merge_and_unload().state_dict()
    worst = max(distance(value, want[name]) for name, value in merged.state_dict().items())
    assert worst < 1e-6, worst
    refused(coshard, "ckpt", "merge", folder.at("base"), folder.at("base"), folder.at("other"))
    print(f"ckpt merge differs from merge_and_unload by at most {worst:.1e}")


def check_peft_files(folder, coshard):
    """What PEFT writes: a list, an expression, a scale by the root of the rank; and what is refused."""
    cases = {"list": {"target_modules": ["q_proj", "down_proj"]},
             "all": {"target_modules": "all-linear", "use_rslora": True},
             "expression": {"target_modules": r".*\.(k|gate)_proj"},
             "layers": {"target_modules": ["q_proj", "v_proj"], "layers_to_transform": [0], "exclude_modules": r".*\.v_proj"},
             "dora": {"target_modules": ["q_proj"], "use_dora": True},
             "ranks": {"target_modules": ["q_proj", "v_proj"], "rank_pattern": {"q_proj": 3}},
             "embeddings": {"target_modules": ["q_proj", "embed_tokens"]},
             "head": {"target_modules": ["q_proj", "lm_head"]},
             "saved": {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]}}
    for name, options in cases.items():
        torch.manual_seed(1)
        config = LoraConfig(r=4, lora_alpha=7, lora_dropout=0.1, init_lora_weights=False, task_type="CAUSAL_LM", **options)
        model = get_peft_model(AutoModelForCausalLM.from_pretrained(folder.at("base")), config)
        model.save_pretrained(folder.at(name))
        if name in ("list", "all", "expression", "layers"):
            want = logits_of(model)
            for ranks, plan in ((1, "tp"), (2, "tp"), (2, "fsdp")):
                got = folder.logits(name, ranks, plan)
                assert distance(got, want) < TOLERANCE, (name, ranks, plan, distance(got, want))
            run(coshard, "ckpt", "merge", folder.at("base"), folder.at(name), folder.at(f"{name} merged"))
            continue
        told = refused(folder.program, "logits", folder.at("base"), folder.at(name), folder.at("start"), folder.at("no"), 1, "tp")
        key = {"dora": "use_dora true", "ranks": "rank_pattern {", "saved": "modules_to_save [", "embeddings": "embed_tokens",
               "head": "base_model.model.lm_head"}[name]
        assert key in told and told.count("\n") == 1, told
    print(f"{len(cases)} adapters of PEFT are read or refused")


def check_gpt2(folder, coshard):
    """Weights of a Conv1D are stored transposed, square ones as well."""
    torch.manual_seed(2)
    GPT2LMHeadModel(GPT2Config(vocab_size=256, n_embd=32, n_layer=2, n_head=4, n_positions=256)).save_pretrained(folder.at("gpt2"))
    for layer, turned in (("c_attn", True), ("attn.c_proj", True), ("attn.c_proj", False)):
        config = LoraConfig(r=4, lora_alpha=7, init_lora_weights=False, task_type="CAUSAL_LM", target_modules=[layer],
                            fan_in_fan_out=turned)
        model = get_peft_model(AutoModelForCausalLM.from_pretrained(folder.at("gpt2")), config)
        name = f"gpt2 {layer} {turned}"
        model.save_pretrained(folder.at(name))
        run(coshard, "ckpt", "merge", folder.at("gpt2"), folder.at(name), folder.at(name + " merged"))
        got, want = (logits_of(each) for each in (AutoModelForCausalLM.from_pretrained(folder.at(name + " merged")), model))
        assert distance(got, want) < TOLERANCE, (name, distance(got, want))
    print("adapters of GPT-2 are merged as PEFT does")


def check_tokens(folder):
    """Token files are arrays of NumPy."""
    for name, dtype, most in (("narrow", numpy.uint16, 1 << 16), ("wide", numpy.uint32, 1 << 32)):
        for count in (1, 999):
            ids = numpy.random.default_rng(count).integers(most - 50, most, count).astype(dtype)
            numpy.save(folder.at(name), ids)
            run(folder.program, "tokens", folder.at(name + ".npy"), folder.at("copy.npy"))
            copied = numpy.load(folder.at("copy.npy"), mmap_mode="r")
            assert copied.dtype == dtype and numpy.array_equal(copied, ids), (name, count)
            with open(folder.at(name + ".npy"), "rb") as a, open(folder.at("copy.npy"), "rb") as b:
                assert a.read() == b.read(), (name, count)
    print("token files have the bytes of numpy.save")


def main(program, coshard):
    with tempfile.TemporaryDirectory() as path:
        folder = Folder(path, program)
        check_tokens(folder)
        check_training(folder)
        check_merge(folder, coshard)
        check_gpt2(folder, coshard)
        check_peft_files(folder, coshard)


if __name__ == "__main__":
    main(*sys.argv[1:])
