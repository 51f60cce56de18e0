"""Chat templates of examples/llama beside transformers' apply_chat_template. The templates here say what those of the families say,
in other words, and are asked for by name; that of SmolLM2 comes from a folder.
usage: chat_template_test.py LLAMA_TEXT      exit code 77: there is no Python with transformers"""
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import unittest

import torch_python

torch_python.require("tokenizers", "transformers")
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

LLAMA_TEXT, = sys.argv[1:]
CONVERSATIONS = 20
TURNS = "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles') }}{% endif %}"
FAMILIES = {  # name: template, bos_token, eos_token, whether there is a system message
    "chatml": ("{% for m in messages %}<|im_start|>{{ m.role + '\n' + m.content }}<|im_end|>{{ '\n' }}{% endfor %}"
               "{% if add_generation_prompt %}<|im_start|>assistant{{ '\n' }}{% endif %}", "<|endoftext|>", "<|im_end|>", True),
    "llama3": ("{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>{{ '\n\n' + m.content.strip() }}"
               "<|eot_id|>{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>{{ '\n\n' }}{% endif %}",
               "<|begin_of_text|>", "<|eot_id|>", True),
    "mistral": ("{{ bos_token }}{% for m in messages %}" + TURNS + "{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]{% else %}"
                "{{ m.content }}{{ eos_token }}{% endif %}{% endfor %}", "<s>", "</s>", False),
    "gemma": ("{{ bos_token }}{% for m in messages %}" + TURNS + "<start_of_turn>{{ 'user' if m.role == 'user' else 'model' }}{{ '\n' }}"
              "{{ m.content | trim }}<end_of_turn>{{ '\n' }}{% endfor %}{% if add_generation_prompt %}<start_of_turn>model{{ '\n' }}"
              "{% endif %}", "<bos>", "<eos>", False),
}


def conversations(with_system):
    draw = random.Random(7)
    pieces = ["Hi", " ", "\n", "\u00e9", "\u3000", "\x1c", "{{ bos_token }}", "<|im_end|>", "What is 2 + 2?", "\U0001f600", "'", "\\n", "  "]

    def text():
        return "".join(draw.choices(pieces, k=draw.randrange(8)))
    made = []
    for i in range(CONVERSATIONS):
        messages = [{"role": "system", "content": text()}] if with_system and i % 2 else []
        for turn in range(draw.randrange(1, 6)):
            messages.append({"role": "assistant" if turn % 2 else "user", "content": text()})
        made.append(messages)
    return made


def packed(text):
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def ours(folder, name, asked):
    with tempfile.TemporaryDirectory() as scratch:
        source, out = os.path.join(scratch, "in"), os.path.join(scratch, "out")
        with open(source, "wb") as file:
            for messages in asked:
                file.write(struct.pack("<Q", len(messages)) + b"".join(packed(m["role"]) + packed(m["content"]) for m in messages))
        subprocess.run([LLAMA_TEXT, "chat", folder, name, source, out], check=True)
        with open(out, "rb") as file:
            data = file.read()
    at, found = 0, []
    while at < len(data):
        size, = struct.unpack_from("<Q", data, at)
        found.append(data[at + 8:at + 8 + size].decode())
        at += 8 + size
    return found


class Prompts(unittest.TestCase):
    def compare(self, tokenizer, folder, name, with_system):
        asked = conversations(with_system)
        theirs = [tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True) for messages in asked]
        self.assertEqual(ours(folder, name, asked), theirs)

    def test_families_by_name(self):
        for name, (template, bos, eos, with_system) in FAMILIES.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                made = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), bos_token=bos, eos_token=eos,
                                               chat_template=template)
                self.compare(made, folder, name, with_system)  # by the family's own tokens
                made = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), bos_token="<b>", eos_token="<e>",
                                               chat_template=template)
                made.save_pretrained(folder)
                self.compare(made, folder, name, with_system)

    def test_smollm2_of_a_folder(self):
        folder = os.environ.get("COSHARD_LLAMA_FOLDER")
        if not folder:
            self.skipTest("COSHARD_LLAMA_FOLDER names no folder of a model")
        self.compare(PreTrainedTokenizerFast.from_pretrained(folder), folder, "", True)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
