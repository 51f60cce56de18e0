#pragma once
// What reads bytes that anyone may have written, for fuzzers and for the tests that replay their
// corpora. Each takes any bytes; it aborts where a refusal is no Error{BadInput} of one line that
// names the file, or where what was taken breaks its promises. Any thread.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include <coshard/runtime/error.h>
#include "dtensor/checkpoint/manifest.h"
#include "dtensor/checkpoint/safetensors.h"
#include "dtensor/checkpoint/weight_map.h"

namespace coshard::testing {

inline void require_of_format(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what.c_str());
  std::abort();
}

// Whether `read` takes its bytes; Error{BadInput} is a no.
template <class F>
bool is_taken(F&& read) {
  constexpr std::size_t kLongest = 4096;
  try {
    read();
    return true;
  } catch (const Error& error) {
    const std::string_view text = error.message();
    require_of_format(error.kind() == ErrorKind::BadInput && text.starts_with("f: ") &&
                          text.find('\n') == std::string_view::npos && text.size() < kLongest,
                      error.what());
    return false;
  }
}

// Eight bytes that say how many bytes of data there are, then the header.
inline bool read_header(std::string_view bytes) {
  constexpr std::size_t kLength = 8;
  if (bytes.size() < kLength) return false;
  std::uint64_t data = 0;
  for (std::size_t i = kLength; i > 0; --i)
    data = data << 8 | static_cast<unsigned char>(bytes[i - 1]);
  return is_taken([&] {
    const SafetensorsHeader header(bytes.substr(kLength), data, "f");
    std::uint64_t at = 0;
    for (std::size_t i = 0; i < header.size(); ++i) {
      const StoredTensor t = header[i];
      require_of_format(t.begin == at && header.find(t.name) == i, "places");
      require_of_format(
          (t.end - t.begin) * 8 == t.elements() * static_cast<std::uint64_t>(bits_of(t.type)),
          "bytes");
      at = t.end;
    }
    require_of_format(at == data, "all bytes");
    header.names_in(0, static_cast<std::int64_t>(header.file_bytes()));
  });
}

inline bool read_index(std::string_view bytes) {
  return is_taken([&] {
    const WeightMap map(bytes, "f");
    for (const auto& [file, tensors] : map.files())
      require_of_format(!tensors.empty() && file.find('/') == std::string::npos, "index");
  });
}

// coshard.json but for its last line, the hash, which is added.
inline bool read_manifest(std::string_view bytes) {
  constexpr std::size_t kDigits = 17;
  char digits[kDigits];
  std::snprintf(digits, sizeof digits, "%016llx",
                static_cast<unsigned long long>(hash_of_chunk(std::as_bytes(std::span(bytes)))));
  return is_taken([&] {
    const Manifest read = Manifest::of_text(str_cat(bytes, "\n\"xxh3\": \"", digits, "\"}\n"), "f");
    const Manifest again = Manifest::of_text(read.text(), "f");
    require_of_format(again.files() == read.files() && again.step == read.step, "manifest");
  });
}

}  // namespace coshard::testing
