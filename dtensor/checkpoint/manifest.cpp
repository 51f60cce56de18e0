#include "dtensor/checkpoint/manifest.h"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include <coshard/runtime/error.h>
#include "dtensor/checkpoint/bands.h"
#include "dtensor/checkpoint/file.h"
#include "dtensor/checkpoint/strict_json.h"

namespace coshard {
namespace {

constexpr std::uint64_t kVersion = 1, kMaxManifest = 1'000'000'000, kMaxNumber = 1ULL << 62;
constexpr std::size_t kMaxFiles = 65'536;
constexpr std::size_t kDigits = 16;                      // of a hash
constexpr std::string_view kOwnHash = "\n\"xxh3\": \"";  // begins the last line

std::optional<std::uint64_t> hash_in(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  const bool whole = text.size() == kDigits && error == std::errc() && end == text.end();
  return whole ? std::optional(value) : std::nullopt;
}

std::string hash_text(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

std::uint64_t hash_of_text(std::string_view text) {
  return hash_of_chunk(std::as_bytes(std::span(text)));
}

// {"format": 1, "step": …, "files": {"name": {"bytes": …, "chunks": "…"}}, "xxh3": "…"}
class ManifestReader final : public JsonEvents {
 public:
  explicit ManifestReader(const std::string& path) : path_(path) {}

  void begin_object() override {
    ++depth_;
    require(depth_ <= 3 && (depth_ < 2 || outer_ == "files"), "an object");
    if (depth_ != 3) return;
    CS_REQUIRE(made_.files().size() < kMaxFiles, path_, ": has more than ", kMaxFiles, " files");
    file_ = {};
    known_of_file_.clear();
  }
  void end_object() override {
    if (depth_-- == 3) end_file();
  }
  void begin_array() override { require(false, "an array"); }
  void end_array() override {}
  void key(std::string_view name) override {
    key_ = name;
    if (depth_ == 1) outer_ = name;
    if (depth_ == 2) name_ = name;
    const bool is_new = depth_ == 2 ? !made_.files().contains(name_)
                                    : (depth_ == 1 ? known_ : known_of_file_).insert(key_).second;
    CS_REQUIRE(is_new, path_, ": has '", shortened(name), "' twice");
  }
  void text(std::string_view value) override {
    if (depth_ == 1 && key_ == "xxh3") return;
    require(depth_ == 3 && key_ == "chunks", "a text");
    for (std::size_t at = 0; at < value.size(); at += kDigits) {
      const std::optional<std::uint64_t> hash = hash_in(value.substr(at, kDigits));
      CS_REQUIRE(hash, path_, ": '", shortened(name_), "' has a hash that is none");
      file_.chunks.push_back(*hash);
    }
  }
  void count(std::uint64_t value) override {
    require(value <= kMaxNumber, std::to_string(value));
    if (depth_ == 1 && key_ == "format") {
      CS_REQUIRE(value == kVersion, path_, ": is of format ", value, "; this coshard reads format ",
                 kVersion);
      has_format_ = true;
    } else if (depth_ == 1 && key_ == "step") {
      made_.step = static_cast<std::int64_t>(value);
    } else {
      require(depth_ == 3 && key_ == "bytes", "a number");
      file_.bytes = static_cast<std::int64_t>(value);
    }
  }
  void other(std::string_view value) override { require(false, value); }

  Manifest manifest() && {
    CS_REQUIRE(has_format_, path_, ": has no 'format'");
    return std::move(made_);
  }

 private:
  void end_file() {
    const auto chunks = static_cast<std::int64_t>(file_.chunks.size());
    CS_REQUIRE(chunks == chunks_of(file_.bytes), path_, ": '", shortened(name_), "' has ", chunks,
               " hashes for ", file_.bytes, " bytes");
    const std::filesystem::path place(name_);
    const bool is_inside = !place.empty() && place.is_relative() &&
                           std::ranges::find(place, "..") == place.end() &&
                           name_.find('\0') == std::string::npos;
    CS_REQUIRE(is_inside, path_, ": has '", shortened(name_), "', which is no path in the folder");
    made_.add(name_, std::move(file_));
  }
  void require(bool holds, std::string_view got) const {
    CS_REQUIRE(holds, path_, ": has ", shortened(got), " at '", shortened(key_),
               "', where this format has none");
  }

  const std::string& path_;
  int depth_ = 0;
  std::string outer_, name_, key_;
  std::set<std::string> known_, known_of_file_;
  bool has_format_ = false;
  Manifest made_;
  Manifest::File file_;
};

}  // namespace

std::uint64_t hash_of_chunk(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::string Manifest::text() const {
  std::string text = fmt::format("{{\"format\": {},\n", kVersion);
  if (step) text += fmt::format("\"step\": {},\n", *step);
  text += "\"files\": {";
  for (const char* separator = "\n"; const auto& [name, file] : files_) {
    text += fmt::format("{}{}: {{\"bytes\": {}, \"chunks\": \"", std::exchange(separator, ",\n"),
                        nlohmann::json(name).dump(), file.bytes);
    for (const std::uint64_t hash : file.chunks) text += hash_text(hash);
    text += "\"}";
  }
  text += "},";
  const std::uint64_t hash = hash_of_text(text);
  return fmt::format("{}{}{}\"}}\n", text, kOwnHash, hash_text(hash));
}

Manifest Manifest::of_text(std::string_view text, const std::string& path) {
  const std::size_t last = text.rfind(kOwnHash);
  CS_REQUIRE(last != std::string_view::npos, path,
             ": is damaged: it does not end with its hash; was its copy cut short?");
  const std::string_view end = text.substr(last + kOwnHash.size());
  const std::optional<std::uint64_t> hash = hash_in(end.substr(0, kDigits));
  CS_REQUIRE(hash == hash_of_text(text.substr(0, last)) && end.substr(kDigits) == "\"}\n", path,
             ": is damaged: its text does not have the hash that ends it");
  ManifestReader reader(path);
  read_json(text, path, reader);
  return std::move(reader).manifest();
}

std::string Manifest::path_in(const std::string& folder) {
  return (std::filesystem::path(folder) / kPath).string();
}

std::string Manifest::text_of(const std::string& path) {
  const std::string place = path_in(path);
  if (!is_there(place)) return "";
  std::string text = read_text(place, kMaxManifest);
  CS_REQUIRE(!text.empty(), place, ": is damaged: it is empty");
  return text;
}

std::optional<Manifest> Manifest::of(const std::string& path) {
  const std::string text = text_of(path);
  return text.empty() ? std::nullopt : std::optional(of_text(text, path_in(path)));
}

void Manifest::add(std::string name, std::string_view bytes) {
  File file{static_cast<std::int64_t>(bytes.size()), {}};
  constexpr auto kEach = static_cast<std::size_t>(kChunk);
  for (std::size_t at = 0; at < bytes.size(); at += kEach)
    file.chunks.push_back(hash_of_text(bytes.substr(at, kEach)));
  add(std::move(name), std::move(file));
}

const Manifest::File& Manifest::file(const std::string& folder, const std::string& name) const {
  const auto found = files_.find(name);
  CS_REQUIRE(found != files_.end(), folder, ": ", kPath, " does not know ", name,
             ", which was put there later");
  return found->second;
}

void Manifest::require_text(const std::string& folder, const std::string& name,
                            std::string_view text) const {
  const auto known = files_.find(name);
  Manifest read;
  read.add(name, text);
  CS_REQUIRE(known == files_.end() || known->second == read.files_.at(name),
             (std::filesystem::path(folder) / name).string(), ": is damaged, or was changed: its ",
             text.size(),
             " bytes are not those that were written; to use it as it is, remove training/");
}

void Manifest::require_same(const File& file, const std::string& path, std::int64_t at,
                            std::span<const std::byte> bytes, const Holds& holds) {
  while (!bytes.empty()) {
    const std::size_t each = std::min(bytes.size(), static_cast<std::size_t>(kChunk));
    const std::int64_t end = at + static_cast<std::int64_t>(each);
    const auto chunk = static_cast<std::size_t>(at / kChunk);
    const bool same =
        chunk < file.chunks.size() && file.chunks[chunk] == hash_of_chunk(bytes.first(each));
    CS_REQUIRE(same, path, ": is damaged: bytes ", at, " to ", end - 1,
               " are not those that were written; they hold ", holds(at, end));
    at = end;
    bytes = bytes.subspan(each);
  }
}

void Manifest::require_whole(const std::string& folder, const std::string& name,
                             const Holds& holds) const {
  const File& known = file(folder, name);
  const InputFile there((std::filesystem::path(folder) / name).string());
  CS_REQUIRE(there.size() == static_cast<std::uint64_t>(known.bytes), there.path(), ": has ",
             there.size(), " bytes, but ", known.bytes, " were written");
  std::vector<std::byte> bytes(static_cast<std::size_t>(std::min(known.bytes, 16 * kChunk)));
  for (std::int64_t at = 0; at < known.bytes;) {
    const auto left = static_cast<std::size_t>(known.bytes - at);
    const std::span<std::byte> part = std::span(bytes).first(std::min(left, bytes.size()));
    there.read(static_cast<std::uint64_t>(at), part);
    require_same(known, there.path(), at, part, holds);
    at += static_cast<std::int64_t>(part.size());
  }
}

}  // namespace coshard
