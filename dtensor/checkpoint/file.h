#pragma once
// Regular files, read and written by place. Any thread.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace coshard {

// Whether there is anything at the path. Error{BadInput}: that cannot be told, with the reason.
bool is_there(const std::string& path);

// A whole file. Error{BadInput}: as InputFile; it has more than `most` bytes.
std::string read_text(const std::string& path, std::uint64_t most);

class InputFile {
 public:
  // Error{BadInput}: it cannot be opened, with the reason, or is no regular file.
  explicit InputFile(std::string path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }  // when it was opened
  // Of its size and of when it was last written to, which all hosts see alike; another file in its
  // place has another.
  std::uint64_t identity() const { return identity_; }
  // The same past the page cache, unless it has this part: `at` and the memory begin at blocks, and
  // the memory has room for whole ones (aligned_bytes.h).
  void read_direct(std::uint64_t at, std::span<std::byte> to) const;
  // Fills `to` from byte `at` on. Error{DeviceFailed}: the system's error; Error{BadInput}: it ends
  // before that.
  void read(std::uint64_t at, std::span<std::byte> to) const;

 private:
  std::string path_;
  int fd_;
  mutable int direct_ = kUnknown;  // opened past the page cache; kNone: the file system cannot
  static constexpr int kUnknown = -1, kNone = -2;
  std::uint64_t size_ = 0, identity_ = 0;
};

class OutputFile {
 public:
  // Opens a file that is there, of `bytes` bytes in the end, to be written past the page cache where
  // the file system can. Error{DeviceFailed}: the system's error.
  explicit OutputFile(std::string path, std::optional<std::int64_t> direct_bytes = std::nullopt);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // Makes one of `bytes`, all of which the disk then has room for, where it can tell.
  // Error{BadInput}: it cannot be made. Error{DeviceFailed}: no room, with the bytes needed and free.
  static void make(const std::string& path, std::int64_t bytes);

  // Error{DeviceFailed}: the system's error. Past the page cache `at` and `from` begin at blocks, and
  // the memory has room for whole ones.
  void write(std::int64_t at, std::span<const std::byte> from);
  // Returns when all that was written is on the disk.
  void sync();
  void close();

 private:
  OutputFile(int fd, std::string path) : path_(std::move(path)), fd_(fd) {}
  std::string path_;
  int fd_;  // -1: closed
  bool is_direct_ = false;
  std::optional<std::int64_t> bytes_;  // of the file: what is written in whole blocks is cut off
  bool is_longer_ = false;
};

// Puts what a folder lists on the disk: names of files made, renamed or removed in it.
void sync_folder(const std::string& path);

}  // namespace coshard
