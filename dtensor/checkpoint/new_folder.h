#pragma once
// A folder that is there whole or not at all: it is made beside its place, as "out.part", and moved
// there at the end. One process makes it; others may write into its files. Folders above it are not
// made.
#include <cstdint>
#include <string>
#include <string_view>

namespace coshard {

class NewFolder {
 public:
  // Makes `path`.part, in place of one that a save that died has left. `path` is resolved().
  // Error{BadInput}: a `path`.part that no save has made; `path` is there and not empty, unless
  // `replaces`, where it has no model or other folders than training/, or is no folder; another process
  // is making it; it cannot be made. `option`: what errors call `replaces`; static text.
  NewFolder(std::string path, bool replaces, std::string_view option = "`overwrite`");
  ~NewFolder();  // removes `path`.part unless commit() has moved it
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  static std::string part_of(const std::string& path) { return path + ".part"; }
  // The path without what can be left out of it, links followed. Error{BadInput}: it names no folder
  // that could be moved, such as ".".
  static std::string resolved(const std::string& path);
  std::string at(std::string_view name) const { return part_ + "/" + std::string(name); }
  void make_folder(std::string_view name) const;
  // A whole file, on the disk.
  void write(std::string_view name, std::string_view text) const;
  // All files are on the disk: the folder gets its name. What it replaces is removed afterwards.
  // Error{BadInput}: something is there by now, and nothing is to be replaced.
  void commit();

 private:
  void remove();
  std::string path_, part_;
  std::string_view option_;
  bool replaces_;
  int lock_ = -1;  // on the part, while it is being made
};

}  // namespace coshard
