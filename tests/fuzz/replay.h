#pragma once
// Replays the corpus of a fuzzer, and what a seeded generator makes of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace coshard::testing {

struct FuzzedFormat {
  const char* corpus;  // folder of its inputs
  bool (*read)(std::string_view bytes);
};

inline std::vector<std::string> corpus_of(const char* folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    paths.push_back(entry.path());
  std::ranges::sort(paths);
  std::vector<std::string> corpus;
  for (const auto& path : paths) {
    std::ifstream in(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return corpus;
}

// One change of `text`: a byte, a cut, a copy of a part, or a piece of the grammar.
inline void change(std::string& text, std::mt19937_64& draw) {
  constexpr std::string_view kPieces[] = {"\"",         "{",      "}",       "[",
                                          "]",          ",",      ":",       "\\u0061",
                                          "0",          "-1",     "1e400",   "18446744073709551616",
                                          "null",       "\"a\":", "\xff",    "__metadata__",
                                          "weight_map", "../",    "\xc3\xa4"};
  const std::size_t at = draw() % (text.size() + 1), length = draw() % 16;
  switch (draw() % 5) {
    case 0:
      if (at < text.size()) text[at] = static_cast<char>(draw());
      return;
    case 1: text.erase(at, length); return;
    case 2: text.insert(draw() % (text.size() + 1), text.substr(at, length)); return;
    case 3: text.insert(at, kPieces[draw() % std::size(kPieces)]); return;
    default: text.resize(at); return;
  }
}

inline void expect_that_the_corpus_is_read_or_refused(const FuzzedFormat& format) {
  const std::vector<std::string> corpus = corpus_of(format.corpus);
  const auto taken = std::ranges::count_if(corpus, format.read);
  EXPECT_GE(taken, 2) << format.corpus;
  EXPECT_GE(std::ssize(corpus), taken + 2) << format.corpus;
}

inline void expect_that_changed_inputs_are_read_or_refused(const FuzzedFormat& format) {
  constexpr int kInputs = 4'000;
  const std::vector<std::string> corpus = corpus_of(format.corpus);
  std::mt19937_64 draw(11);
  int taken = 0;
  for (int i = 0; i < kInputs; ++i) {
    std::string text = corpus[draw() % corpus.size()];
    for (auto n = 1 + draw() % 3; n > 0; --n) change(text, draw);
    taken += format.read(text) ? 1 : 0;
  }
  EXPECT_GT(taken, 0) << format.corpus;
  EXPECT_LT(taken, kInputs) << format.corpus;
}

}  // namespace coshard::testing
