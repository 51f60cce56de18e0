#include "examples/train/options.h"

#include <unistd.h>

#include <filesystem>
#include <limits>

#include <coshard/runtime/launch/command_line.h>
#include "profiling/input_file.h"
#include "runtime/launch/rank_world.h"
#include "tools/training_options.h"

namespace coshard::train {
namespace {

constexpr const char* kAbout =
    "Trains a Llama-shaped byte-level language model with tensor or data parallelism; ranks are "
    "threads of this process, or of those that mpirun or srun has started.";
constexpr const char* kExample =
    "Example: the King James Bible on two ranks with sequence parallelism, and a trace for "
    "ui.perfetto.dev (about four minutes on two cores)\n"
    "  bible -f \"gen1:1-rev22:21\" > data/kjv.txt\n"
    "  build/examples/train --text data/kjv.txt --ranks 2 --plan tp-sp --steps 1200 --trace "
    "run.trace.json\n"
    "Ctrl-C or SIGTERM stops after the current step and still writes the checkpoint, the score, "
    "the "
    "report and all files; a second one stops at once.\n";

constexpr int kMost = 1'000'000'000;

void add_options(CLI::App& app, Options& o) {
  const auto add = [&app](const char* name, auto& value, int lowest, int highest,
                          const char* help) {
    tools::add_number(app, name, value, lowest, highest, help);
  };
  const auto add_text = [&app](const char* name, std::string& value, const char* help) {
    app.add_option(name, value, help)->capture_default_str();
  };
  tools::add_number(app, "--ranks", o.ranks, 1, 256,
                    "number of ranks; must divide --heads, or --batch for dp and fsdp")
      ->default_str("one per process, or 2");
  add("--threads", o.threads, 0, kMostThreads, "compute threads per rank; 0 means cores / ranks");
  tools::add_place(app, o.device, o.communicator);
  add_text("--link", o.link, "emulate a link of this latency and bandwidth: 20us,1GB/s");
  add("--progress-threads", o.progress_threads, 0, kMostProgressThreads,
      "threads that move data while the ranks compute");
  add("--rank-threads", o.rank_threads, 1, kMostRanks,
      "run all ranks on this many threads; default one thread each");
  cli::add_seconds(app, "--timeout", o.timeout, "deadline of every wait for a peer; 0: none");
  cli::add_seconds(app, "--grace", o.grace, "how long ranks may take to end after a failure");
  tools::add_shape(app, o, o.dtype_name);
  tools::add_word(app, "--plan", o.plan, {"tp", "tp-sp", "dp", "fsdp"},
                  "tensor parallelism, tp-sp: with sequence parallelism as well, dp: data "
                  "parallelism, or fsdp: with parameters sharded over the ranks as well");
  tools::add_word(
      app, "--overlap", o.overlap, {"off", "auto", "always"},
      "whether layers compute while collectives are in flight; auto: linear layers "
      "where the links are known (--link, --measure-links) and it is faster, dp and fsdp "
      "always; off: in backward, gradients of weights are still computed meanwhile");
  app.add_flag("--measure-links", o.measure_links,
               "measure links and GEMM times first, or use the figures of an earlier run");
  add("--weave", o.weave, 1, kMost,
      "interleaved parts of a rank's sequences: one computes while another's collectives are in "
      "flight");
  add("--steps", o.steps, 0, kMost, "optimizer steps");
  tools::add_number(app, "--lr", o.lr, 1e-12, 1e6, "peak learning rate; cosine decay to a tenth");
  add("--warmup", o.warmup, 0, kMost, "linear warm-up steps");
  tools::add_number(app, "--seed", o.seed, std::uint64_t{0},
                    std::numeric_limits<std::uint64_t>::max(),
                    "seed for weights, batches and sampling");
  add_text("--text", o.text, "training text; every twentieth 4 KiB block is held out");
  add_text("--save", o.save, "keep checkpoints in this folder: at the end, and when it is stopped");
  add("--every", o.every, 1, kMost, "save after every so many steps as well");
  add("--keep", o.keep, 1, kMost, "how many checkpoints stay, the newest ones");
  app.add_flag("--resume", o.resume,
               "go on from the newest checkpoint of --save, on any plan and number of ranks; from "
               "the start if there is none");
  add_text("--trace", o.trace, "write a Chrome trace to this file");
  add("--trace-steps", o.trace_steps, 1, kMost,
      "number of steps to trace, starting with the second");
  add_text("--json", o.json, "write the results as JSON to this file");
  add_text("--prompt", o.prompt, "prompt for the sample");
  add("--sample", o.sample, 0, kMost, "bytes to generate at the end; 0 for none");
  tools::add_number(app, "--temperature", o.temperature, 1e-6, 1e6, "sampling temperature");
  add("--eval-blocks", o.eval_blocks, 0, kMost, "maximum number of held-out blocks to score");
  add("--log-every", o.log_every, 1, kMost,
      "steps between log lines when stdout is not a terminal");
}

// Constraints between options.
void check(const Options& o) {
  if (!o.link.empty()) (void)parse_link(o.link);
  CS_REQUIRE((o.link.empty() && o.progress_threads == 0) ||
                 (o.communicator == "local" && o.device == "cpu"),
             "--link and --progress-threads are for --device cpu and --communicator local, got ",
             o.device, " and ", o.communicator);
  tools::check_shape(o, o.dtype(), parse_device_kind(o.device));
  const int sequences = o.data_parallel() ? o.batch / o.ranks : o.batch;
  CS_REQUIRE(o.weave <= sequences, "--weave ", o.weave, " is more than the ", sequences,
             " sequences of a rank (--batch ", o.batch, ')');
}

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
  options.timeout = timeout;
  options.grace = grace;
  return options;
}

std::optional<Options> parse_options(int argc, char** argv) {
  Options options;
  CLI::App app(kAbout, "train");
  app.footer(kExample);
  // tools/demo passes some, and its caller may repeat them.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  add_options(app, options);
  if (!tools::parse(app, argc, argv)) return std::nullopt;
  CS_REQUIRE(app.count("--trace-steps") == 0 || !options.trace.empty(), "--trace-steps ",
             options.trace_steps, " needs --trace");
  for (const char* name : {"--every", "--keep", "--resume"})
    CS_REQUIRE(app.count(name) == 0 || !options.save.empty(), name, " needs --save");
  if (options.ranks == 0) options.ranks = settled(options.world()).ranks;
  check(options);
  return options;
}

void require_writable(const Options& options) {
  namespace fs = std::filesystem;
  for (const auto& [flag, name] : {std::pair{"--trace", options.trace}, {"--json", options.json}}) {
    if (name.empty()) continue;
    std::error_code ignored;
    CS_REQUIRE(!fs::is_directory(name, ignored), flag, " ", name, ": is a directory");
    CS_REQUIRE(!is_same_file(name, options.text), flag, " ", name,
               ": is the --text, which it would overwrite");
    const fs::path folder =
        fs::path(name).has_parent_path() ? fs::path(name).parent_path() : fs::path(".");
    CS_REQUIRE(fs::is_directory(folder, ignored), flag, " ", name, ": there is no folder ",
               folder.string());
    const std::string must_be_writable = fs::exists(name, ignored) ? name : folder.string();
    CS_REQUIRE(::access(must_be_writable.c_str(), W_OK) == 0, flag, " ", name,
               ": cannot be written");
  }
  const auto place = [](const std::string& name) {
    return fs::weakly_canonical(fs::absolute(name));
  };
  CS_REQUIRE(
      options.trace.empty() || options.json.empty() || place(options.trace) != place(options.json),
      "--trace and --json are both ", options.trace);
}

}  // namespace coshard::train
