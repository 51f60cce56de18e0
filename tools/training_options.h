#pragma once
// Options shared by examples/train and `coshard bench train`: the shape of the model and of a step.
// `o` of the functions below is the Options of either. For main.
#include <fmt/format.h>

#include <coshard/runtime/dtype.h>
#include "tools/options.h"

namespace coshard::tools {

constexpr int kMostOfAShape = 1'000'000'000, kMostLayers = 1000;

// Whether the plan splits the batch over the ranks.
inline bool cuts_batch(const std::string& plan) { return plan == "dp" || plan == "fsdp"; }

template <class Options>
void add_shape(CLI::App& app, Options& o, std::string& dtype) {
  const auto add = [&app](const char* name, int& value, int most, const char* help) {
    add_number(app, name, value, 1, most, help);
  };
  add("--layers", o.layers, kMostLayers, "transformer blocks");
  add("--dim", o.dim, kMostOfAShape, "model width; a multiple of 2 x heads");
  add("--heads", o.heads, kMostOfAShape, "attention heads");
  add("--ffn", o.ffn, kMostOfAShape, "hidden width of the MLP");
  add("--seq", o.seq, kMostOfAShape, "sequence length in bytes (one token per byte)");
  add("--batch", o.batch, kMostOfAShape, "global batch: sequences per step");
  add_word(app, "--dtype", dtype, {"f32", "bf16", "f64"}, "parameter dtype: f32, bf16 or f64");
}

// A lower bound for the memory of all ranks together: weights, gradients and two moments per
// replica; four activations of a block, two of its MLP; the logits.
template <class Options>
double bytes_at_least(const Options& o, DType dtype) {
  const double dim = o.dim, ffn = o.ffn, classes = 256;
  const double block = 4 * dim * dim + 3 * dim * ffn, ends = 2 * dim * classes;
  const double parameters = o.layers * block + ends;
  const double of_a_token = o.layers * (4 * dim + 2 * ffn) + classes;
  const double tokens = static_cast<double>(o.batch) * o.seq;
  const double replicas = o.plan == "dp" ? o.ranks : 1;
  const double elements = 4 * parameters * replicas + tokens * of_a_token;
  return elements * static_cast<double>(size_of(dtype));
}

// Error{BadInput}: heads without a whole, even number of dimensions.
template <class Options>
void check_heads(const Options& o) {
  CS_REQUIRE(o.dim % o.heads == 0, "--dim ", o.dim, " is not divisible by --heads ", o.heads);
  CS_REQUIRE((o.dim / o.heads) % 2 == 0, "--dim ", o.dim, " / --heads ", o.heads, " = ",
             o.dim / o.heads, " is odd: rotary embedding pairs the dimensions of a head");
}

// Error{BadInput}: numbers that do not divide, or more than the devices of this machine can hold.
template <class Options>
void check_shape(const Options& o, DType dtype, DeviceKind device) {
  check_heads(o);
  if (cuts_batch(o.plan))
    CS_REQUIRE(o.batch % o.ranks == 0, "--batch ", o.batch, " is not divisible by --ranks ",
               o.ranks);
  else
    CS_REQUIRE(o.heads % o.ranks == 0, "--heads ", o.heads, " is not divisible by --ranks ",
               o.ranks);
  double memory = 0;
  for (const DeviceDescription& one : describe_backend(device).devices)
    memory += static_cast<double>(one.memory);
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  const double needed = bytes_at_least(o, dtype);
  CS_REQUIRE(memory == 0 || needed <= memory, "--layers ", o.layers, " --dim ", o.dim, " --ffn ",
             o.ffn, " --seq ", o.seq, " --batch ", o.batch, " --ranks ", o.ranks,
             fmt::format(" take at least {:.1f} GiB; this machine has {:.1f}", needed / kGiB,
                         memory / kGiB));
}

}  // namespace coshard::tools
