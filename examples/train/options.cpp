#include "examples/train/options.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>

#include "runtime/comm/make_communicator.h"
#include "runtime/device/make_device.h"
#include "runtime/error.h"

namespace coshard::train {
namespace {

constexpr const char* kAbout =
    "Trains a Llama-shaped byte-level language model with tensor parallelism; every rank is a "
    "thread of this process.";
constexpr const char* kExample =
    "Example: four minutes on the King James Bible, two ranks, sequence parallel, with a trace for "
    "ui.perfetto.dev\n"
    "  bible -f \"gen1:1-rev22:21\" > data/kjv.txt\n"
    "  build/examples/train --text data/kjv.txt --ranks 2 --plan tp-sp --steps 1200 --trace "
    "run.trace.json\n"
    "Ctrl-C or SIGTERM ends a run after its step, with score, report and files; a second one at "
    "once.\n";

void add_options(CLI::App& app, Options& o) {
  const auto add = [&app](const char* name, auto& value, const char* help) {
    app.add_option(name, value, help)->capture_default_str();
  };
  add("--ranks", o.ranks, "ranks; must divide --heads");
  add("--threads", o.threads, "threads per rank; 0: cores / ranks");
  add("--device", o.device, "cpu or cuda; of several GPUs rank r gets number r modulo their count");
  add("--communicator", o.communicator, "local, or nccl between GPUs");
  add("--link", o.link, "emulate a link of this latency and rate: 20us,1GB/s");
  add("--progress-threads", o.progress_threads, "threads that move data while ranks compute");
  app.add_option("--rank-threads", o.rank_threads, "ranks share so many threads; else one each");
  add("--layers", o.layers, "transformer blocks");
  add("--dim", o.dim, "width of the model; a multiple of 2 x heads");
  add("--heads", o.heads, "attention heads");
  add("--ffn", o.ffn, "width of the MLP");
  add("--seq", o.seq, "bytes per sequence");
  add("--batch", o.batch, "sequences per step");
  add("--steps", o.steps, "steps of AdamW");
  add("--lr", o.lr, "highest learning rate; falls to a tenth as a cosine");
  add("--warmup", o.warmup, "steps of linear warm-up");
  add("--dtype", o.dtype_name, "f32, bf16 or f64");
  add("--seed", o.seed, "of the weights, the batches and the sample");
  add("--text", o.text, "file to learn from; every twentieth block of 4 KiB is held out");
  add("--plan", o.plan, "tp, or tp-sp: with sequence parallelism");
  add("--trace", o.trace, "write a Chrome trace to this file");
  add("--trace-steps", o.trace_steps, "steps in the trace, from the second on");
  add("--json", o.json, "write the figures to this file");
  add("--prompt", o.prompt, "what the sample continues");
  add("--sample", o.sample, "bytes to sample at the end");
  add("--temperature", o.temperature, "of the sample");
  add("--eval-blocks", o.eval_blocks, "held-out blocks to score at most");
  add("--log-every", o.log_every, "steps between two lines of a log");
}

void check_place(const Options& o) {
  CS_REQUIRE(o.device == "cpu" || o.device == "cuda", "--device ", o.device,
             ": known are cpu and cuda");
  CS_REQUIRE(has_backend(parse_device_kind(o.device)), "--device ", o.device,
             ": this build has no such back end (meson setup -D", o.device, "=enabled)");
  CS_REQUIRE(has_communicator(o.communicator), "--communicator ", o.communicator,
             ": this build has ", communicator_names());
  if (o.link.empty() && o.progress_threads == 0) return;
  if (!o.link.empty()) (void)parse_link(o.link);
  CS_REQUIRE(o.communicator == "local" && o.device == "cpu",
             "--link and --progress-threads are for --device cpu and --communicator local, got ",
             o.device, " and ", o.communicator);
}

void check(const Options& o) {
  check_place(o);
  CS_REQUIRE(o.ranks >= 1, "--ranks ", o.ranks, ": at least 1 is needed");
  CS_REQUIRE(o.ranks <= 256, "--ranks ", o.ranks, ": at most 256 threads can be ranks");
  CS_REQUIRE(o.threads >= 0 && o.threads <= 1024, "--threads ", o.threads,
             ": must be from 0 to 1024");
  CS_REQUIRE(!o.rank_threads || *o.rank_threads >= 1, "--rank-threads ", o.rank_threads.value_or(0),
             ": at least 1 is needed");
  CS_REQUIRE(o.progress_threads <= 64, "--progress-threads ", o.progress_threads,
             ": must be at most 64");
  const struct {
    const char* name;
    int value;
  } positive[] = {{"--layers", o.layers},
                  {"--dim", o.dim},
                  {"--heads", o.heads},
                  {"--ffn", o.ffn},
                  {"--seq", o.seq},
                  {"--batch", o.batch},
                  {"--steps", o.steps},
                  {"--log-every", o.log_every},
                  {"--trace-steps", o.trace_steps}};
  for (const auto& [name, value] : positive)
    CS_REQUIRE(value >= 1, name, " ", value, ": at least 1 is needed");
  const struct {
    const char* name;
    int value;
  } not_negative[] = {{"--warmup", o.warmup},
                      {"--sample", o.sample},
                      {"--eval-blocks", o.eval_blocks},
                      {"--progress-threads", o.progress_threads}};
  for (const auto& [name, value] : not_negative)
    CS_REQUIRE(value >= 0, name, " ", value, ": must not be negative");
  CS_REQUIRE(o.dim % o.heads == 0, "--dim ", o.dim, " is not divisible by --heads ", o.heads);
  CS_REQUIRE((o.dim / o.heads) % 2 == 0, "--dim ", o.dim, " / --heads ", o.heads, " = ",
             o.dim / o.heads, " is odd: rotary embedding pairs the dimensions of a head");
  CS_REQUIRE(o.heads % o.ranks == 0, "--heads ", o.heads, " is not divisible by --ranks ", o.ranks);
  CS_REQUIRE(o.lr > 0 && o.lr < 1e6, "--lr ", o.lr, ": must be above 0 and below 1e6");
  CS_REQUIRE(o.temperature > 0, "--temperature ", o.temperature, ": must be positive");
  CS_REQUIRE(!o.prompt.empty() || o.sample == 0, "--prompt is empty: at least one byte is needed");
  CS_REQUIRE(o.plan == "tp" || o.plan == "tp-sp", "--plan ", o.plan, ": known are tp and tp-sp");
  CS_REQUIRE(o.dtype_name == "f32" || o.dtype_name == "bf16" || o.dtype_name == "f64", "--dtype ",
             o.dtype_name, ": known are f32, bf16 and f64");
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

WorldOptions Options::world() const {
  WorldOptions options;
  options.ranks = ranks;
  options.threads = threads;
  options.device = parse_device_kind(device);
  options.communicator = communicator;
  if (!link.empty()) options.link = parse_link(link);
  options.progress_threads = progress_threads;
  options.rank_threads = rank_threads.value_or(0);
  return options;
}

std::optional<Options> parse_options(int argc, char** argv) {
  Options options;
  CLI::App app(kAbout, "train");
  app.footer(kExample);
  add_options(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    fail(ErrorKind::BadInput, first_line(error.what()));
  }
  check(options);
  return options;
}

void require_writable(const Options& options) {
  namespace fs = std::filesystem;
  for (const auto& [flag, name] : {std::pair{"--trace", options.trace}, {"--json", options.json}}) {
    if (name.empty()) continue;
    std::error_code ignored;
    CS_REQUIRE(!fs::is_directory(name, ignored), flag, " ", name, ": is a directory");
    const fs::path folder =
        fs::path(name).has_parent_path() ? fs::path(name).parent_path() : fs::path(".");
    CS_REQUIRE(fs::is_directory(folder, ignored), flag, " ", name, ": there is no folder ",
               folder.string());
    const std::string must_be_writable = fs::exists(name, ignored) ? name : folder.string();
    CS_REQUIRE(::access(must_be_writable.c_str(), W_OK) == 0, flag, " ", name,
               ": cannot be written");
  }
}

}  // namespace coshard::train
