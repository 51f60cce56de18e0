#pragma once
// training/coshard.json: what a checkpoint consists of, and hashes of its bytes. Written last, so a
// folder that has it is whole. Holds no time, host or number of ranks: equal states, equal bytes.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace coshard {

// XXH3, 64 bits (https://xxhash.com), of a chunk (bands.h).
std::uint64_t hash_of_chunk(std::span<const std::byte> bytes);

class Manifest {
 public:
  static constexpr std::string_view kPath = "training/coshard.json";  // in the folder
  struct File {
    std::int64_t bytes = 0;
    std::vector<std::uint64_t> chunks;  // hash of each
    bool operator==(const File&) const = default;
  };

  // Of a folder, or of the path of a file; none: it has none. Error{BadInput}: one that is not as
  // text() wrote it, or of another version of the format.
  static std::optional<Manifest> of(const std::string& path);
  static std::string text_of(const std::string& path);  // "": it has none
  static std::string path_in(const std::string& folder);
  static Manifest of_text(std::string_view text, const std::string& path);
  std::string text() const;

  void add(std::string name, File file) { files_[std::move(name)] = std::move(file); }
  // A file of which all bytes are here.
  void add(std::string name, std::string_view bytes);
  const std::map<std::string, File>& files() const { return files_; }  // by path in the folder
  // Error{BadInput}: the file, which the folder has, is not among them.
  const File& file(const std::string& folder, const std::string& name) const;

  // Error{BadInput}: `text`, read from the file of this name, is not what was written. It may be none
  // of the checkpoint's.
  void require_text(const std::string& folder, const std::string& name,
                    std::string_view text) const;

  // What bytes [begin, end) of a file hold, for an error.
  using Holds = std::function<std::string(std::int64_t begin, std::int64_t end)>;
  // Error{BadInput}: these bytes of the file, which begin a chunk, are not those that were written.
  static void require_same(const File& file, const std::string& path, std::int64_t at,
                           std::span<const std::byte> bytes, const Holds& holds);
  // Error{BadInput}: the file is missing, has another size, or other bytes. Reads it.
  void require_whole(const std::string& folder, const std::string& name, const Holds& holds) const;

  std::optional<std::int64_t> step;  // of the training

 private:
  std::map<std::string, File> files_;
};

}  // namespace coshard
