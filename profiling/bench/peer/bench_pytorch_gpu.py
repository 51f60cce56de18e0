"""PyTorch on the work of `coshard bench gpu`, under the same names, with whatever PyTorch this machine has.

usage: bench_pytorch_gpu.py [--device cuda|cpu] [sizes...]; prints one JSON object. Times are medians of 7 rounds.
"""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

ROUNDS, BURST = 7, 100


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    sizes = {"hidden": 4096, "ffn": 14336, "heads": 32, "kv-heads": 8, "tokens": 4096, "vocab": 128256, "matmul": 8192,
             "copied": 1 << 30, "parameters": 1 << 28, "calls": 1000, "steps": 10}
    for name, size in sizes.items():
        parser.add_argument("--" + name, type=int, default=size)
    return parser.parse_args()


class Llama(nn.Module):
    """One decoder layer, bf16: RMSNorm, grouped-query attention with rotary positions, SwiGLU."""

    def __init__(self, o):
        super().__init__()
        self.head = o.hidden // o.heads
        kv = self.head * o.kv_heads
        linear = lambda i, k: nn.Linear(i, k, bias=False)
        self.norm1, self.norm2 = nn.RMSNorm(o.hidden, eps=1e-6), nn.RMSNorm(o.hidden, eps=1e-6)
        self.q, self.k, self.v, self.o = linear(o.hidden, o.hidden), linear(o.hidden, kv), linear(o.hidden, kv), linear(o.hidden, o.hidden)
        self.gate, self.up, self.down = linear(o.hidden, o.ffn), linear(o.hidden, o.ffn), linear(o.ffn, o.hidden)
        angle = torch.outer(torch.arange(o.tokens).float(), 1 / 10000 ** (torch.arange(0, self.head, 2) / self.head))
        angle = torch.cat((angle, angle), -1)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def rotate(self, x):
        a, b = x.chunk(2, -1)
        return x * self.cos + torch.cat((-b, a), -1) * self.sin

    def forward(self, x):
        b, t, _ = x.shape
        h = self.norm1(x)
        q, k, v = (w(h).view(b, t, -1, self.head).transpose(1, 2) for w in (self.q, self.k, self.v))
        attended = F.scaled_dot_product_attention(self.rotate(q), self.rotate(k), v, is_causal=True, enable_gqa=True)
        x = x + self.o(attended.transpose(1, 2).reshape(b, t, -1))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Bench:
    def __init__(self, o):
        self.o, self.device = o, torch.device(o.device)
        self.found = {"peer": "torch " + torch.__version__}

    def wait(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def timed(self, call, calls):
        """Microseconds per call of calls that are queued and then waited for."""
        for _ in range(3):
            call()
        rounds = []
        for _ in range(ROUNDS):
            self.wait()
            begin = time.perf_counter()
            for _ in range(calls):
                call()
            self.wait()
            rounds.append((time.perf_counter() - begin) / calls * 1e6)
        return statistics.median(rounds)

    def timed_on_host(self, call):
        for _ in range(BURST):
            call()
        rounds = []
        for _ in range(ROUNDS):
            seconds = done = 0
            while done < self.o.calls:
                self.wait()
                begin = time.perf_counter()
                for _ in range(BURST):
                    call()
                seconds += time.perf_counter() - begin
                done += BURST
            rounds.append(seconds / done * 1e6)
        return statistics.median(rounds)

    def rate(self, name, moved, call):
        """GB/s of a call that moves so many bytes."""
        self.found[name] = moved / self.timed(call, self.o.steps) / 1e3

    def host(self):
        a, b = (torch.randn(64, 64, device=self.device) for _ in range(2))
        with torch.no_grad():
            self.found["host_add"] = self.timed_on_host(lambda: a + b)
            self.found["host_linear"] = self.timed_on_host(lambda: F.linear(a, b))
            self.found["host_rms_norm"] = self.timed_on_host(lambda: F.rms_norm(a, (64,)))

    def matmul(self):
        n = self.o.matmul
        a, b = (torch.randn(n, n, device=self.device, dtype=torch.bfloat16) for _ in range(2))
        with torch.no_grad():
            self.found["matmul"] = 2 * n ** 3 / self.timed(lambda: a @ b, self.o.steps) / 1e6

    def attention(self):
        o, head = self.o, self.o.hidden // self.o.heads

        def heads(batch, count, tokens):
            return torch.randn(batch, count, tokens, head, device=self.device, dtype=torch.bfloat16)

        def attend(q, k, v, causal):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
        q, k, v = heads(1, o.heads, o.tokens), heads(1, o.kv_heads, o.tokens), heads(1, o.kv_heads, o.tokens)
        product = o.tokens ** 2 * o.hidden
        with torch.no_grad():
            us = self.timed(lambda: attend(q, k, v, True), o.steps)
            self.found["attention_forward"] = 2 * product / us / 1e6
            one, keys, values = heads(8, o.heads, 1), heads(8, o.kv_heads, o.tokens), heads(8, o.kv_heads, o.tokens)
            us = self.timed(lambda: attend(one, keys, values, False), o.steps)
            self.found["attention_decode"] = 2 * (keys.numel() + values.numel()) / us / 1e3
        inputs = [x.requires_grad_() for x in (q, k, v)]
        out = attend(*inputs, True)
        gradient = torch.randn_like(out)
        us = self.timed(lambda: torch.autograd.grad(out, inputs, gradient, retain_graph=True), o.steps)
        self.found["attention_backward"] = 5 * product / us / 1e6

    def copy(self):
        a, b = (torch.zeros(self.o.copied, device=self.device, dtype=torch.bfloat16) for _ in range(2))
        self.rate("copy", 4 * self.o.copied, lambda: b.copy_(a))

    def norms(self):
        shape = (4 * self.o.tokens, self.o.hidden)
        x = torch.randn(shape, device=self.device, dtype=torch.bfloat16)
        weight = torch.ones(self.o.hidden, device=self.device, dtype=torch.bfloat16)
        bias = torch.zeros_like(weight)
        with torch.no_grad():
            self.rate("rms_norm", 4 * x.numel(), lambda: F.rms_norm(x, shape[1:], weight, 1e-6))
            self.rate("layer_norm", 4 * x.numel(), lambda: F.layer_norm(x, shape[1:], weight, bias))
        x.requires_grad_()
        weight.requires_grad_()
        gradient = torch.ones_like(x)

        def both():
            F.rms_norm(x, shape[1:], weight, 1e-6).backward(gradient)
            x.grad = weight.grad = None
        self.rate("rms_norm_forward_backward", 10 * x.numel(), both)

    def losses(self):
        logits = torch.randn(self.o.tokens, self.o.vocab, device=self.device, dtype=torch.bfloat16, requires_grad=True)
        targets = torch.zeros(self.o.tokens, device=self.device, dtype=torch.int64)

        def both():
            F.cross_entropy(logits, targets).backward()
            logits.grad = None
        self.rate("cross_entropy", 6 * logits.numel(), both)

    def adamw(self):
        parameters = [torch.zeros(self.o.parameters // 16, device=self.device, requires_grad=True) for _ in range(16)]
        for p in parameters:
            p.grad = torch.ones_like(p)
        optimizer = torch.optim.AdamW(parameters, fused=True)
        self.rate("adamw", 28 * self.o.parameters, optimizer.step)

    def block(self):
        torch.manual_seed(0)
        model = Llama(self.o).to(self.device, torch.bfloat16)
        x = torch.randn(1, self.o.tokens, self.o.hidden, device=self.device, dtype=torch.bfloat16, requires_grad=True)
        gradient = torch.ones_like(x)
        for name, forward in (("block_eager", model), ("block_compiled", torch.compile(model))):
            def step():
                forward(x).backward(gradient)
                model.zero_grad()
                x.grad = None
            self.part(name, lambda: self.found.__setitem__(name, self.timed(step, self.o.steps) / 1e3))

    def part(self, name, run):
        """A part that this PyTorch cannot do is left out, and told of."""
        try:
            run()
        except Exception as error:
            self.found[name + "_failed"] = (str(error) or type(error).__name__).splitlines()[0].replace('"', "'")

    def run(self):
        for part in (self.host, self.matmul, self.attention, self.copy, self.norms, self.losses, self.adamw, self.block):
            self.part(part.__name__, part)
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
        return self.found


if __name__ == "__main__":
    print(json.dumps(Bench(options()).run()))
