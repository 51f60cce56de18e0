// The corpora of the fuzzers, and what a seeded generator makes of them, through the same readers.
#include "tests/fuzz/formats.h"

#include <gtest/gtest.h>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

namespace coshard::testing {
namespace {

struct FuzzedFormat {
  const char* name;
  bool (*read)(std::string_view bytes);
};
constexpr FuzzedFormat kFuzzedFormats[] = {
    {"header", read_header}, {"index", read_index}, {"manifest", read_manifest}};

std::vector<std::string> corpus_of(const std::string& format) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(COSHARD_CORPUS "/" + format))
    paths.push_back(entry.path());
  std::ranges::sort(paths);
  std::vector<std::string> corpus;
  for (const auto& path : paths) {
    std::ifstream in(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return corpus;
}

TEST(Fuzz, CorporaAreReadOrRefused) {
  for (const FuzzedFormat& format : kFuzzedFormats) {
    const std::vector<std::string> corpus = corpus_of(format.name);
    const auto taken = std::ranges::count_if(corpus, format.read);
    EXPECT_GE(taken, 2) << format.name;
    EXPECT_GE(std::ssize(corpus), taken + 2) << format.name;
  }
}

// One change of `text`: a byte, a cut, a copy of a part, or a piece of the grammar.
void change(std::string& text, std::mt19937_64& draw) {
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

TEST(Fuzz, ChangedInputsAreReadOrRefused) {
  constexpr int kInputs = 4'000;
  for (const FuzzedFormat& format : kFuzzedFormats) {
    const std::vector<std::string> corpus = corpus_of(format.name);
    std::mt19937_64 draw(11);
    int taken = 0;
    for (int i = 0; i < kInputs; ++i) {
      std::string text = corpus[draw() % corpus.size()];
      for (auto n = 1 + draw() % 3; n > 0; --n) change(text, draw);
      taken += format.read(text) ? 1 : 0;
    }
    EXPECT_GT(taken, 0) << format.name;
    EXPECT_LT(taken, kInputs) << format.name;
  }
}

}  // namespace
}  // namespace coshard::testing
