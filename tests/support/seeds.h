#pragma once
// The seeds of random programs, and their number.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include <coshard/runtime/error.h>

namespace coshard::testing {

// splitmix64
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }
  int below(int n) { return static_cast<int>(next() % static_cast<std::uint64_t>(n)); }
  bool one_in(int n) { return below(n) == 0; }

 private:
  std::uint64_t state_;
};

// "--option N" or "--option=N" of the command line, else the environment variable.
inline std::uint64_t number_of(const std::string& option, const char* variable,
                               std::uint64_t otherwise) {
  const std::vector<std::string> words = ::testing::internal::GetArgvs();
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == option && i + 1 < words.size()) return std::stoull(words[i + 1]);
    if (words[i].starts_with(option + "=")) return std::stoull(words[i].substr(option.size() + 1));
  }
  const char* text = std::getenv(variable);
  return text != nullptr && *text != 0 ? std::stoull(text) : otherwise;
}

// From --seeds N and --first-seed N, or COSHARD_SEEDS and COSHARD_FIRST_SEED.
inline std::uint64_t seeds() { return number_of("--seeds", "COSHARD_SEEDS", 2000); }
inline std::uint64_t first_seed() { return number_of("--first-seed", "COSHARD_FIRST_SEED", 0); }

inline std::string how_to_replay(std::uint64_t seed) {
  return str_cat("seed ", seed, "; COSHARD_FIRST_SEED=", seed, " COSHARD_SEEDS=1 replays it");
}

}  // namespace coshard::testing
