"""`coshard ckpt convert` of GGUF files beside gguf's dequantize, transformers and tokenizers.
usage: gguf_test.py COSHARD      $COSHARD_GGUF: a file of a llama model to compare as well; exit code 77: there is no Python with gguf"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

import torch_python

torch_python.require("gguf", "safetensors", "tokenizers", "torch", "transformers")
import gguf
import numpy as np
import torch
import transformers
from gguf import GGMLQuantizationType as Type
from safetensors.numpy import load_file
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

COSHARD, = sys.argv[1:]
HIDDEN, INNER, HEADS, KEYS, LAYERS, VOCAB = 64, 96, 4, 2, 2, 320
BLOCKS = {Type.Q8_0: 34, Type.Q4_0: 18, Type.Q4_1: 20}
NAMES = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
         "ffn_down": "mlp.down_proj"}
WHOLE = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight", "output.weight": "lm_head.weight"}


def shapes(arch, tied):
    found = {"token_embd.weight": (VOCAB, HIDDEN), "output_norm.weight": (HIDDEN,)}
    if not tied:
        found["output.weight"] = (VOCAB, HIDDEN)
    keys = HIDDEN // HEADS * KEYS
    for i in range(LAYERS):
        for name, shape in {"attn_norm": (HIDDEN,), "attn_q": (HIDDEN, HIDDEN), "attn_k": (keys, HIDDEN), "attn_v": (keys, HIDDEN),
                            "attn_output": (HIDDEN, HIDDEN), "ffn_norm": (HIDDEN,), "ffn_gate": (INNER, HIDDEN), "ffn_up": (INNER, HIDDEN),
                            "ffn_down": (HIDDEN, INNER)}.items():
            found[f"blk.{i}.{name}.weight"] = shape
        if arch == "qwen2":
            for name, size in (("attn_q", HIDDEN), ("attn_k", keys), ("attn_v", keys)):
                found[f"blk.{i}.{name}.bias"] = (size,)
    return found


def vocabulary():
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.train_from_iterator(["the quick brown fox and the lazy dog 123 "] * 9, trainers.BpeTrainer(
        vocab_size=VOCAB - 2, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    model = json.loads(made.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get) + ["<s>", "</s>"]
    return tokens, [" ".join(merge) if isinstance(merge, list) else merge for merge in model["merges"]]


def write(path, arch, kind, pre="gpt-2", tied=True, any_bits=False, seed=0):
    draw = np.random.default_rng(seed)
    out = gguf.GGUFWriter(path, arch)
    for add, value in ((out.add_block_count, LAYERS), (out.add_context_length, 128), (out.add_embedding_length, HIDDEN),
                       (out.add_feed_forward_length, INNER), (out.add_head_count, HEADS), (out.add_head_count_kv, KEYS),
                       (out.add_layer_norm_rms_eps, 1e-6), (out.add_rope_freq_base, 12345.0)):
        add(value)
    tokens, merges = vocabulary()
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre(pre)
    out.add_token_list(tokens)
    out.add_token_types([1] * (len(tokens) - 2) + [3, 3])
    out.add_token_merges(merges)
    out.add_bos_token_id(len(tokens) - 2)
    out.add_eos_token_id(len(tokens) - 1)
    out.add_chat_template("{% for m in messages %}{{ m.content }}{% endfor %}")
    for name, shape in shapes(arch, tied).items():
        values = draw.normal(0, 0.05, shape).astype(np.float32)
        if len(shape) == 1 or kind == Type.F32:
            out.add_tensor(name, values + 1 if name.endswith("norm.weight") else values)
        elif any_bits and kind in BLOCKS:
            data = draw.integers(0, 256, (shape[0], shape[1] // 32 * BLOCKS[kind]), dtype=np.uint8)
            out.add_tensor(name, data, raw_dtype=kind)
        else:
            out.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def separated(values, heads):
    """Of rotary pairs beside each other, as llama.cpp has them."""
    return values.reshape(heads, -1, 2, values.shape[-1]).swapaxes(1, 2).reshape(values.shape)


def expected(path):
    read = gguf.GGUFReader(path)
    number = {name: int(read.fields[f"llama.attention.{name}"].contents()) for name in ("head_count", "head_count_kv")
              if f"llama.attention.{name}" in read.fields}
    found = {}
    for tensor in read.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if tensor.name in WHOLE:
            found[WHOLE[tensor.name]] = values
            continue
        _, layer, name, end = tensor.name.split(".")
        heads = {"attn_q": "head_count", "attn_k": "head_count_kv"}.get(name)
        found[f"model.layers.{layer}.{NAMES[name]}.{end}"] = separated(values, number[heads]) if heads and number else values
    return found


class Folder(unittest.TestCase):
    def converted(self, scratch, *words, **asked):
        source, made = os.path.join(scratch, "m.gguf"), os.path.join(scratch, "m")
        write(source, **asked)
        subprocess.run([COSHARD, "ckpt", "convert", source, made, "--overwrite", *words], check=True, capture_output=True)
        return source, made

    def compare(self, source, made):
        ours, theirs = load_file(os.path.join(made, "model.safetensors")), expected(source)
        self.assertEqual(ours.keys(), theirs.keys())
        for name, values in theirs.items():
            self.assertEqual((ours[name].dtype, ours[name].shape), (np.float32, values.shape), name)
            nan = np.isnan(values)
            self.assertTrue(np.array_equal(np.isnan(ours[name]), nan), name)
            self.assertTrue(np.array_equal(ours[name].view(np.uint32)[~nan], values.astype(np.float32).view(np.uint32)[~nan]), name)

    def test_s58_values_are_those_of_dequantize(self):
        for arch in "llama", "qwen2":
            for kind in Type.F32, Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0, Type.Q4_1:
                for any_bits in False, True:
                    with self.subTest(arch, kind=kind, any_bits=any_bits), tempfile.TemporaryDirectory() as scratch:
                        self.compare(*self.converted(scratch, arch=arch, kind=kind, any_bits=any_bits, tied=not any_bits))

    def test_s58_transformers_opens_the_folder(self):
        for arch in "llama", "qwen2":
            for tied in False, True:
                with self.subTest(arch, tied=tied), tempfile.TemporaryDirectory() as scratch:
                    _, made = self.converted(scratch, arch=arch, kind=Type.F32, tied=tied)
                    model, told = transformers.AutoModelForCausalLM.from_pretrained(made, output_loading_info=True)
                    self.assertFalse(any(told.values()), told)
                    config = model.config
                    self.assertEqual((config.model_type, config.num_key_value_heads, config.tie_word_embeddings, config.rms_norm_eps),
                                     (arch, KEYS, tied, 1e-6))
                    self.assertEqual(model.generation_config.eos_token_id, len(vocabulary()[0]) - 1)
                    self.assertTrue(torch.isfinite(model(torch.arange(8)[None]).logits).all())

    def test_s58_dtype_rounds_to_nearest(self):
        with tempfile.TemporaryDirectory() as scratch:
            source, made = self.converted(scratch, "--dtype", "bf16", arch="llama", kind=Type.Q4_1)
            model = transformers.AutoModelForCausalLM.from_pretrained(made, dtype="auto")
            self.assertEqual(model.dtype, torch.bfloat16)
            for name, values in expected(source).items():
                self.assertTrue(torch.equal(model.state_dict()[name], torch.from_numpy(values.copy()).bfloat16()), name)

    def test_the_tokenizer_is_what_pre_says(self):
        for pre, bos in ("gpt-2", False), ("smollm", False), ("qwen2", False), ("llama-bpe", True):
            with self.subTest(pre), tempfile.TemporaryDirectory() as scratch:
                _, made = self.converted(scratch, arch="llama", kind=Type.F16, pre=pre)
                tokenizer = transformers.AutoTokenizer.from_pretrained(made)
                text = "the quick  fox's 123</s>\n"
                ids = tokenizer(text).input_ids
                self.assertEqual(ids, Tokenizer.from_file(os.path.join(made, "tokenizer.json")).encode(text).ids)
                self.assertEqual(ids[0] == tokenizer.bos_token_id, bos)
                self.assertIn(tokenizer.eos_token_id, ids)
                self.assertEqual(tokenizer.decode(ids[1:] if bos else ids), text)
                self.assertEqual(tokenizer.apply_chat_template([{"role": "user", "content": "x"}], tokenize=False), "x")

    def test_s58_a_file_from_elsewhere(self):
        source = os.environ.get("COSHARD_GGUF")
        if not source:
            self.skipTest("COSHARD_GGUF names no file")
        with tempfile.TemporaryDirectory() as scratch:
            made = os.path.join(scratch, "m")
            subprocess.run([COSHARD, "ckpt", "convert", source, made], check=True)
            self.compare(source, made)
            _, told = transformers.AutoModelForCausalLM.from_pretrained(made, output_loading_info=True)
            self.assertFalse(any(told.values()), told)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
