// training/coshard.json: what it says, and that nothing else is taken for it.
#include "dtensor/checkpoint/manifest.h"

#include <gtest/gtest.h>

#include "dtensor/checkpoint/bands.h"
#include "tests/dtensor/checkpoint/stored_files.h"

namespace coshard::testing {
namespace {

Manifest small() {
  Manifest made;
  made.step = 40;
  made.add("model.safetensors", {kChunk + 5, {1, 0xfedcba9876543210}});
  made.add("config.json", "{}");
  made.add("empty", "");
  return made;
}

TEST(Manifest, IsReadAsItWasWritten) {
  const Manifest made = small();
  const std::string text = made.text();
  const Manifest read = Manifest::of_text(text, "m");
  EXPECT_EQ(read.step, 40);
  EXPECT_EQ(read.files(), made.files());
  EXPECT_EQ(read.text(), text);
  // XXH3_64bits("{}") by python-xxhash.
  EXPECT_EQ(read.file("m", "config.json").chunks, std::vector<std::uint64_t>{0x1349cde127705c16});
  Manifest none;
  EXPECT_FALSE(Manifest::of_text(none.text(), "m").step.has_value());
}

TEST(Manifest, NoByteCanBeChangedOrLeftOut) {
  const std::string text = small().text();
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string other = text;
    other[i] = static_cast<char>(other[i] ^ 1);
    EXPECT_CONTAINS(message_of([&] { Manifest::of_text(other, "m.json"); }), "m.json: ");
    EXPECT_CONTAINS(message_of([&] { Manifest::of_text(text.substr(0, i), "m.json"); }), "m.json");
  }
}

// With a right hash of its own.
std::string signed_text(std::string text) {
  const std::uint64_t hash = hash_of_chunk(std::as_bytes(std::span(text)));
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return text + "\n\"xxh3\": \"" + digits + "\"}\n";
}

TEST(Manifest, RefusesWhatItsFormatLacks) {
  const auto refusal = [](const std::string& text) {
    return message_of([&] { Manifest::of_text(signed_text(text), "m.json"); });
  };
  EXPECT_EQ(refusal(R"({"format": 1, "files": {}, "step": 3,)"), "");
  EXPECT_CONTAINS(refusal(R"({"format": 2, "files": {},)"), "format 2");
  EXPECT_CONTAINS(refusal(R"({"files": {},)"), "no 'format'");
  EXPECT_CONTAINS(refusal(R"({"format": 1, "format": 1,)"), "'format' twice");
  EXPECT_CONTAINS(refusal(R"({"format": 1, "host": "a",)"), "'host'");
  EXPECT_CONTAINS(refusal(R"({"format": 1, "step": 1.5,)"), "1.5");
  EXPECT_CONTAINS(refusal(R"({"format": 1, "step": -1,)"), "-1");
  EXPECT_CONTAINS(refusal(R"({"format": 1, "files": [],)"), "array");
  EXPECT_CONTAINS(refusal(R"({"format": 1, "files": {"a": {"bytes": 1, "chunks": "12"}},)"),
                  "none");
  EXPECT_CONTAINS(refusal(R"({"format": 1, "files": {"a": {"bytes": 1, "chunks": ""}},)"),
                  "0 hashes");
  EXPECT_CONTAINS(refusal(R"({"format": 1, "files": {"a": {"bytes": {}}},)"), "object");
  EXPECT_CONTAINS(refusal(R"({"format": 1, "step": 9223372036854775807,)"), "9223372036854775807");
  EXPECT_CONTAINS(refusal(R"({"format": 1, "files": {"a": {"bytes": 9223372036854775807}},)"),
                  "9223372036854775807");
  for (const char* name : {"", "/a", "../a", "b/../../a", "a\\u0000b"})
    EXPECT_CONTAINS(refusal(str_cat(R"({"format": 1, "files": {")", name, R"(": {"bytes": 0}},)")),
                    "no path in the folder");
  for (const char* twice : {R"("a": {"bytes": 0}, "\u0061": {"bytes": 0})",
                            R"("b": {"bytes": 0}, "a": {"bytes": 0, "bytes": 0})"})
    EXPECT_CONTAINS(refusal(str_cat(R"({"format": 1, "files": {)", twice, "},")), "twice");
}

TEST(Manifest, ComparesChunks) {
  const ScratchFolder scratch;
  std::string bytes(static_cast<std::size_t>(3 * kChunk + 7), 'x');
  const std::string path = scratch.write("f", bytes);
  Manifest made;
  made.add("f", bytes);
  const auto holds = [](std::int64_t begin, std::int64_t) { return str_cat("from ", begin); };
  made.require_whole(scratch.path(""), "f", holds);
  bytes[static_cast<std::size_t>(2 * kChunk)] = 'y';
  scratch.write("f", bytes);
  const std::string changed = message_of([&] { made.require_whole(scratch.path(""), "f", holds); });
  EXPECT_CONTAINS(changed, str_cat("bytes ", 2 * kChunk, " to ", 3 * kChunk - 1));
  EXPECT_CONTAINS(changed, str_cat("from ", 2 * kChunk));
  scratch.write("f", bytes.substr(0, 9));
  EXPECT_CONTAINS(message_of([&] { made.require_whole(scratch.path(""), "f", holds); }),
                  "has 9 bytes");
  EXPECT_CONTAINS(message_of([&] { made.require_whole(scratch.path(""), "g", holds); }), "g");
}

}  // namespace
}  // namespace coshard::testing
