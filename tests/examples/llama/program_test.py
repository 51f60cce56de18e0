#!/usr/bin/env python3
"""The program llama from end to end, with small models that this test writes: what it prints and saves, what it refuses, and how.

usage: program_test.py LLAMA TOKENIZER_JSON [COSHARD]"""
import array
import json
import math
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

LLAMA, TOKENIZER = (os.path.abspath(path) for path in sys.argv[1:3])
COSHARD = os.path.abspath(sys.argv[3]) if len(sys.argv) > 3 else None
VOCAB, DIM, FFN, HEADS, POSITIONS = 340, 16, 24, 2, 64
CONFIGS = {
    "llama": {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCAB, "hidden_size": DIM,
              "intermediate_size": FFN, "num_hidden_layers": 1, "num_attention_heads": HEADS, "hidden_act": "silu",
              "max_position_embeddings": POSITIONS, "rms_norm_eps": 1e-6, "dtype": "float32", "tie_word_embeddings": False},
    "gpt2": {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": VOCAB, "n_embd": DIM, "n_layer": 1,
             "n_head": HEADS, "n_positions": POSITIONS, "activation_function": "gelu_new", "dtype": "float32"},
}
LAYER = "model.layers.0."
SHAPES = {
    "llama": {"model.embed_tokens.weight": [VOCAB, DIM], "lm_head.weight": [VOCAB, DIM], "model.norm.weight": [DIM],
              **{f"{LAYER}self_attn.{x}_proj.weight": [DIM, DIM] for x in "qkvo"},
              **{f"{LAYER}mlp.{x}_proj.weight": [FFN, DIM] for x in ("gate", "up")}, f"{LAYER}mlp.down_proj.weight": [DIM, FFN],
              **{f"{LAYER}{x}_layernorm.weight": [DIM] for x in ("input", "post_attention")}},
    "gpt2": {"transformer.wte.weight": [VOCAB, DIM], "transformer.wpe.weight": [POSITIONS, DIM],
             **{f"transformer.{x}.{w}": [DIM] for x in ("ln_f", "h.0.ln_1", "h.0.ln_2") for w in ("weight", "bias")},
             **{f"transformer.h.0.{x}.{w}": [n] if w == "bias" else [m, n] for w in ("weight", "bias")
                for x, m, n in (("attn.c_attn", DIM, 3 * DIM), ("attn.c_proj", DIM, DIM), ("mlp.c_fc", DIM, 4 * DIM),
                                ("mlp.c_proj", 4 * DIM, DIM))}},
}


def write_safetensors(path, shapes):
    draw = random.Random(1)
    header, data = {}, array.array("f")
    for name, shape in shapes.items():
        begin = 4 * len(data)
        count = math.prod(shape)
        data.extend([1.0] * count if len(shape) == 1 else (draw.gauss(0, 0.3) for _ in range(count)))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, 4 * len(data)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data.tobytes())


def write_model(folder, family, **changes):
    os.makedirs(folder)
    config = {**CONFIGS[family], **changes}
    shapes = {name: shape for name, shape in SHAPES[family].items() if name != "lm_head.weight" or not config["tie_word_embeddings"]}
    write_safetensors(os.path.join(folder, "model.safetensors"), shapes)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    shutil.copy(TOKENIZER, os.path.join(folder, "tokenizer.json"))


def byte_ids(text):
    """Of a text without merges: of printable bytes, then of space, with <|begin|> and <|end|> around."""
    return [320, *(220 if letter == " " else ord(letter) - 33 for letter in text), 321]


class Program(unittest.TestCase):
    """Each test has a folder of its own, with both models, which is its working directory."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name
        for family in CONFIGS:
            write_model(self.at(family), family)

    def at(self, *parts):
        return os.path.join(self.folder, *parts)

    def run_llama(self, *words, stdin=""):
        words = [LLAMA, *(str(word) for word in words)]
        stdin = stdin if isinstance(stdin, bytes) else stdin.encode()
        done = subprocess.run(words, input=stdin, capture_output=True, cwd=self.folder, timeout=120)
        done.stdout, done.stderr = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
        return done

    def succeeds(self, *words, **how):
        done = self.run_llama(*words, **how)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def is_refused(self, words, *told):
        """In one line, which `told` is in."""
        done = self.run_llama(*words)
        self.assertEqual(done.returncode, 2, (words, done.stderr))
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        for text in told:
            self.assertIn(text, done.stderr)


class Generate(Program):
    MODEL = ("generate", "llama", "--ranks", "1", "--tokens", "3", "--greedy")

    def ids_of(self, *words):
        self.succeeds(*self.MODEL, "--raw", "--json", "o.json", *words)
        with open(self.at("o.json"), encoding="utf-8") as file:
            return json.load(file)

    def test_prompts_are_taken_as_they_are(self):
        both = self.ids_of("--prompt", "[a, b]", "[]")
        self.assertEqual(both["prompt_ids"], [byte_ids(text) for text in ("[a, b]", "[]")])
        self.assertEqual([len(ids) for ids in both["ids"]], [3, 3])

    def test_a_value_of_another_type_is_refused(self):
        for option, value in (("--tokens", "2.5"), ("--tokens", "1e3"), ("--tokens", "0"), ("--temperature", "abc"), ("--seed", "-1"),
                              ("--seed", "99999999999999999999"), ("--dtype", "i32"), ("--top-p", "0"), ("--top-k", "-1")):
            self.is_refused(("generate", "llama", "--prompt", "a", option, value), f"{option} {value}: ")
        self.is_refused(("generate", "llama", "--prompt", "a", "--raw=x"), "--raw x: takes no value")

    def test_options_without_effect_are_refused(self):
        for option in ("--system", "--template"):
            self.is_refused((*self.MODEL, "--prompt", "a", "--raw", option, "foo"), f"--raw with {option} foo; leave one out")

    def test_an_answer_that_is_cut_is_told(self):
        for prompts in (("a",), ("a", "b")):
            done = self.succeeds(*self.MODEL, "--raw", "--prompt", *prompts)
            self.assertEqual(done.stderr.count("llama: stopped at --tokens 3\n"), 1)
            done = self.succeeds(*self.MODEL, "--raw", "--ignore-eos", "--prompt", *prompts)
            self.assertNotIn("stopped", done.stderr)
        first = self.ids_of("--prompt", "a")["ids"][0][0]
        with open(self.at("llama", "generation_config.json"), "w", encoding="utf-8") as file:
            json.dump({"eos_token_id": first}, file)
        self.assertNotIn("stopped", self.succeeds(*self.MODEL[:-2], "1", "--greedy", "--raw", "--prompt", "a").stderr)

    def test_a_file_that_cannot_be_written_is_told_first(self):
        self.is_refused((*self.MODEL, "--prompt", "a", "--json", "none/x.json"), "--json none/x.json: there is no folder")
        self.is_refused((*self.MODEL, "--prompt", "a", "--json", "llama/config.json"), "which it would overwrite")


class Chat(Program):
    HOW = ("--template", "none", "--greedy", "--ignore-eos", "--tokens", "2")

    def test_ranks_wait_for_a_line_beyond_their_timeout(self):
        words = [LLAMA, "chat", "llama", "--ranks", "2", "--timeout", "1", *self.HOW]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.folder) as chat:
            for _ in range(2):
                time.sleep(3)
                chat.stdin.write(b"hi\n")
                chat.stdin.flush()
            out, error = chat.communicate(timeout=60)
        self.assertEqual((chat.returncode, out.count(b"> ")), (0, 3), error)

    def test_a_line_that_is_refused_is_left_out(self):
        for ranks in ("1", "2"):
            plain = self.succeeds("chat", "llama", "--ranks", ranks, *self.HOW, stdin="hi\nagain\n")
            done = self.succeeds("chat", "llama", "--ranks", ranks, *self.HOW, stdin=b"hi\n\xff\nagain\n")
            self.assertEqual(done.stdout.replace("> > ", "> "), plain.stdout)
            self.assertIn("is not UTF-8 at byte 0; this message is left out\n", done.stderr)

    def test_a_conversation_without_room_goes_on(self):
        done = self.succeeds("chat", "gpt2", "--ranks", "1", *self.HOW, stdin="hi\n" + "x" * POSITIONS + "\nhi\n")
        self.assertIn(f"the {POSITIONS} positions of the model; give a shorter message, or begin a new chat; this message", done.stderr)
        self.assertEqual([bool(answer) for answer in done.stdout.split("> ")], [False, True, False, True, False])
        self.is_refused(("generate", "gpt2", "--prompt", "hi", "--raw", "--tokens", POSITIONS), f"--tokens {POSITIONS} take", "--tokens 61 or less")

    def test_what_holds_for_all_lines_is_told_first(self):
        self.is_refused(("chat", "llama"), "--template")
        self.is_refused(("chat", "llama", "--template", "foo"), "--template foo")


class Finetune(Program):
    def setUp(self):
        super().setUp()
        with open(self.at("text"), "w", encoding="utf-8") as file:
            file.write("what follows from a letter is the next letter. " * 20)

    def words(self, *words, model="llama"):
        return ("finetune", model, "--text", "text", "--ranks", "1", "--steps", "2", "--batch", "2", "--seq", "8", *words)

    def test_adapters_are_trained_merged_and_used(self):
        self.is_refused(self.words("--lora", "2", "--save", "a/b/"), "--save a/b/: ", "`mkdir -p ")
        os.mkdir(self.at("a"))
        done = self.succeeds(*self.words("--lora", "2", "--lr", "0.5", "--save", "a/b/"))
        self.assertIn("the adapters are in a/b/\n", done.stdout)
        self.assertEqual(sorted(os.listdir(self.at("a"))), ["b"])
        self.is_refused(("generate", "a/b", "--prompt", "hi"), "`coshard ckpt merge BASE a/b OUT`")
        self.is_refused(("finetune", "a/b", "--text", "text", "--save", "x"), "`coshard ckpt merge BASE a/b OUT`")
        if COSHARD is None:
            self.skipTest("no coshard")
        subprocess.run([COSHARD, "ckpt", "merge", "llama", "a/b", "merged"], cwd=self.folder, check=True, capture_output=True, timeout=60)
        said = ("--prompt", "hi", "--raw", "--greedy", "--tokens", "8", "--ranks", "2")
        merged = self.succeeds("generate", "merged", *said).stdout
        self.assertEqual(self.succeeds("generate", "llama", "--adapter", "a/b", *said).stdout, merged)
        self.assertNotEqual(self.succeeds("generate", "llama", *said).stdout, merged)

    def test_a_signal_saves_what_is_trained(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            for every in ((), ("--every", "100000000")):
                words = self.words("--lora", "2", "--steps", "100000000", "--log-every", "1", "--save", f"s{number}{len(every)}", *every)
                with subprocess.Popen([LLAMA, *words], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
                    while not running.stdout.readline().startswith("step "):
                        self.assertIsNone(running.poll())
                    running.send_signal(number)
                    told = running.communicate(timeout=60)[0]
                self.assertEqual(running.returncode, 0)
                self.assertIn("stopped after step ", told)
                self.assertEqual(os.path.exists(self.at(f"s{number}{len(every)}", "adapter_config.json")), not every)
                if every:
                    step = told.split("stopped after step ")[1].split()[0]
                    again = [str(int(step) + 1) if word == "100000000" else word for word in words[:words.index("--every")]]
                    self.assertIn(f"step-{step}", self.succeeds(*again, "--every", "5", "--resume").stdout)

    def test_options_without_effect_are_refused(self):
        for words in (("--alpha", "99"), ("--dropout", "0.5"), ("--targets", "nonsense.*")):
            self.is_refused(self.words(*words), words[0], "--lora")
        self.is_refused(("finetune", "llama", "--text", ".", "--save", "x"), "--text .: Is a directory")
        self.is_refused(self.words("--lora", "2"), "--save")

    def test_what_is_no_models_folder_is_refused(self):
        with open(self.at("x.gguf"), "wb") as file:
            file.write(b"GGUF\3")
        self.succeeds(*self.words("--lora", "2", "--every", "2", "--save", "a"))
        for name, told in (("none", "none: there is no such folder"), ("x.gguf", "coshard ckpt convert x.gguf FOLDER"),
                           ("text", "text: is a file, not a model's folder"), ("a.steps/step-2", "is a checkpoint of LoRA training")):
            self.is_refused(("generate", name, "--prompt", "hi"), told)
            self.is_refused(("finetune", name, "--text", "text", "--save", "x"), told)

        for name, told in (("none", "none: there is no such folder"), ("a.steps/step-2", "step-2: has no adapter_config.json")):
            self.is_refused(("generate", "llama", "--prompt", "hi", "--adapter", name), told)

    def test_a_text_that_is_too_short_is_refused(self):
        self.is_refused(self.words("--save", "a", "--seq", "10000"), "seq 10000 + 1", "smaller seq")

    def test_an_adapter_of_a_tied_layer_is_refused(self):
        write_model(self.at("tied"), "llama", tie_word_embeddings=True)
        self.is_refused(self.words("--lora", "2", "--targets", "lm_head", "--save", "a", model="tied"), "--targets lm_head: ",
                        "leave lm_head out")
        self.succeeds(*self.words("--lora", "2", "--targets", "lm_head", "--save", "a"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
