#pragma once
// A small training run for tests, in this process. The text is made here, so that no file outside
// is needed.
#include <cstdio>
#include <fstream>
#include <string>

#define main static __attribute__((unused)) train_main  // the parts of the program are tested
#include "examples/train.cpp"
#undef main
#include "tests/support/device.h"
#include "tests/support/json.h"
#include "tests/support/spread.h"

namespace coshard::testing {

// A file of `bytes` bytes of made-up sentences; removed at the end.
class TextFile {
 public:
  explicit TextFile(std::size_t bytes = 100'000) : path_(temporary_path("text.txt")) {
    const char* const words[] = {"and ",   "the ",   "earth ", "was ", "without ",
                                 "form, ", "void; ", "light ", "be\n"};
    std::string text;
    for (std::uint32_t state = 1; text.size() < bytes; state = state * 1664525U + 1013904223U)
      text += words[(state >> 20) % 9];
    text.resize(bytes);
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~TextFile() { std::remove(path_.c_str()); }
  TextFile(const TextFile&) = delete;
  TextFile& operator=(const TextFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Heads for 4 ranks; an MLP and a sequence that do not divide evenly.
inline train::Options small_options(const TextFile& text) {
  train::Options options;
  options.ranks = 1;
  options.threads = 1;
  options.layers = 2;
  options.dim = 32;
  options.heads = 4;
  options.ffn = 50;
  options.seq = 30;
  options.batch = 2;
  options.steps = 50;
  options.warmup = 10;
  options.text = text.path();
  options.sample = 0;
  options.eval_blocks = 0;
  options.log_every = 1000;
  return options;
}

inline WorldOptions world_of(const train::Options& options) {
  WorldOptions world = test_options(options.ranks);
  world.threads = options.threads;
  world.link = options.link;
  world.progress_threads = options.progress_threads;
  return world;
}

inline train::Outcome run_training(const train::Options& options, const WorldOptions& world) {
  const train::Text text(options.text, options.seq);
  train::Outcome outcome;
  const Program program = [&](World& world) {
    return train::train_rank(world, options, text, outcome);
  };
  run_ranks(world, program);
  if (over_mpi() && outcome.loss.empty()) {  // rank 0, which has them, is in another process
    const InThreads threads;
    run_ranks(world, program);
  }
  return outcome;
}
inline train::Outcome run_training(const train::Options& options) {
  return run_training(options, world_of(options));
}

}  // namespace coshard::testing
