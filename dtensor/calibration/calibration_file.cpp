#include "dtensor/calibration/calibration_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <coshard/runtime/error.h>

namespace coshard {
namespace {

struct Closed {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Closed>;

// A cache folder is an absolute path (XDG Base Directory Specification).
std::string cache_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return str_cat(cache, "/coshard");
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home == '/') return str_cat(home, "/.cache/coshard");
  return "";
}

std::string unnamed_path(const std::string& about) {
  const std::string folder = cache_folder();
  return folder.empty() ? folder : str_cat(folder, "/calibration-", text_hash(about));
}

// nullopt, with errno set, if it cannot be read.
std::optional<std::string> content(const std::string& path) {
  const File file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr) return std::nullopt;
  std::string text(1 << 16, '\0');  // a calibration is never larger
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  return std::ferror(file.get()) != 0 ? std::nullopt : std::optional(std::move(text));
}

}  // namespace

CalibrationFile::CalibrationFile(std::string named, const std::string& about)
    : named_(!named.empty()), path_(named_ ? std::move(named) : unnamed_path(about)) {}

std::optional<Calibration> CalibrationFile::read(const std::string& about) const {
  if (path_.empty()) return std::nullopt;
  const std::optional<std::string> text = content(path_);
  CS_REQUIRE(text || !named_ || errno == ENOENT, "calibrate: cannot read ", path_, ": ",
             std::strerror(errno));
  if (!text) return std::nullopt;
  std::optional<Calibration> kept = Calibration::parse(*text);
  CS_REQUIRE(kept || !named_, "calibrate: ", path_,
             " is damaged, or is not a calibration of this version; remove it to measure anew");
  return kept && kept->about == about ? kept : std::nullopt;
}

void CalibrationFile::write(const Calibration& measured) const {
  if (path_.empty() || written(measured)) return;
  CS_REQUIRE(!named_, "calibrate: cannot write ", path_, ": ", std::strerror(errno));
}

bool CalibrationFile::written(const Calibration& measured) const {
  if (!named_) {
    std::error_code ignored;  // opening the file then fails, too
    std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), ignored);
  }
  const std::string text = measured.text();
  const std::string fresh = str_cat(path_, ".", ::getpid());
  File file(std::fopen(fresh.c_str(), "wb"));
  if (file == nullptr) return false;
  const bool all = std::fwrite(text.data(), 1, text.size(), file.get()) == text.size();
  if (std::fclose(file.release()) == 0 && all && std::rename(fresh.c_str(), path_.c_str()) == 0)
    return true;
  const int error = errno;
  std::remove(fresh.c_str());
  errno = error;
  return false;
}

}  // namespace coshard
