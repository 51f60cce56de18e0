#include "dtensor/checkpoint/step_folders.h"

#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <climits>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <coshard/runtime/error.h>
#include "dtensor/checkpoint/file.h"
#include "dtensor/checkpoint/manifest.h"
#include "dtensor/checkpoint/strict_json.h"
#include "runtime/warn.h"

namespace coshard {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kLock = ".lock", kStep = "step-";

// N of "step-N", followed by `end`.
std::optional<std::int64_t> step_of(std::string_view name, std::string_view end) {
  if (!name.starts_with(kStep) || !name.ends_with(end)) return std::nullopt;
  name.remove_prefix(kStep.size());
  name.remove_suffix(std::min(end.size(), name.size()));
  std::int64_t step = 0;
  const auto [rest, error] = std::from_chars(name.begin(), name.end(), step);
  const bool whole = error == std::errc() && rest == name.end() && step >= 0;
  return whole && std::to_string(step) == name ? std::optional(step) : std::nullopt;
}

// "step-007": digits that name no step, which would be passed over.
bool is_mistaken(std::string_view name) {
  if (!name.starts_with(kStep) || step_of(name, "")) return false;
  name.remove_prefix(kStep.size());
  return !name.empty() && std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
}

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// "process 71 on host a, boot …": no two that run have the same one.
std::string own_mark() {
  char host[HOST_NAME_MAX + 1] = {};
  ::gethostname(host, sizeof host - 1);
  std::string boot = text_of("/proc/sys/kernel/random/boot_id");
  boot.resize(std::min(boot.find('\n'), boot.size()));
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  return str_cat("process ", ::getpid(), " on host ", host, ", boot ", boot, ", lock ", now, '\n');
}

// Takes the lock of an open file; false: another process has it. Some file systems have none: then
// nobody can tell.
bool takes_lock(int file) {
  struct flock whole = {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  return ::fcntl(file, F_OFD_SETLK, &whole) == 0 || (errno != EAGAIN && errno != EACCES);
}

// Makes the folder and those above it, on the disk.
void make_durable(const fs::path& folder) {
  std::error_code error;
  if (fs::is_directory(folder, error)) return;
  const fs::path above = folder.has_parent_path() ? folder.parent_path() : fs::path(".");
  if (above != folder) make_durable(above);
  fs::create_directory(folder, error);
  const std::error_code why = error;
  CS_REQUIRE(
      fs::is_directory(folder, error), folder.string(), ": ",
      fs::exists(folder, error) ? "is there and is no folder" : "cannot be made: " + why.message(),
      "; give another folder");
  sync_folder(above.string());
}

// Folders that only the holder of the lock makes and removes. What cannot be removed is not in the way.
void remove_all(const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    std::error_code error;
    fs::remove_all(folder, error);
    if (error)
      warn_once(str_cat(folder, ": cannot be removed, and is tried again: ", error.message()));
  }
}

// Paths of steps that were being made or removed.
std::vector<std::string> left_in(const std::string& folder,
                                 std::initializer_list<std::string_view> ends) {
  std::vector<std::string> left;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    for (const std::string_view end : ends)
      if (step_of(entry.path().filename().string(), end)) left.push_back(entry.path().string());
  return left;
}

// Whoever names a checkpoint means the folder that has it.
void require_no_checkpoint(const std::string& folder) {
  std::error_code error;
  const fs::path given = folder, above = given.parent_path();
  const bool is_one = fs::exists(Manifest::path_in(folder), error);
  const bool is_step = step_of(given.filename().string(), "").has_value();
  CS_REQUIRE(!is_one, folder, ": is a checkpoint, and no folder of checkpoints; give ",
             !is_step        ? "another folder"
             : above.empty() ? "."
                             : above.string());
}

// Else it would be passed over, or taken for one.
void require_step(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  CS_REQUIRE(!is_mistaken(name), entry.path().string(),
             ": is not how a step is named, such as step-7; rename it, or move it elsewhere");
  std::error_code error;
  CS_REQUIRE(!step_of(name, "") || entry.is_directory(error), entry.path().string(),
             ": is no folder, as a checkpoint is; move it elsewhere");
}

}  // namespace

StepFolders::StepFolders(std::string folder) : folder_(std::move(folder)), mark_(own_mark()) {
  require_no_checkpoint(folder_);
  make_durable(folder_);
  const std::string place = str_cat(folder_, "/", kLock);
  constexpr mode_t kWritableByAll = 0666;  // but for the umask
  lock_ = ::open(place.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kWritableByAll);
  CS_REQUIRE(lock_ >= 0, place, ": cannot be written: ", std::strerror(errno));
  try {
    const std::string holder = text_of(place);
    CS_REQUIRE(takes_lock(lock_), folder_, ": ", shortened(holder.substr(0, holder.find(", boot"))),
               " saves there; give another folder, or end that one");
    const bool written =
        ::ftruncate(lock_, 0) == 0 &&
        ::pwrite(lock_, mark_.data(), mark_.size(), 0) == static_cast<ssize_t>(mark_.size());
    CS_REQUIRE(written, place, ": cannot be written: ", std::strerror(errno));
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) require_step(entry);
    remove_all(left_in(folder_, {".part", ".old"}));
  } catch (...) {
    ::close(lock_);
    throw;
  }
}

StepFolders::~StepFolders() { ::close(lock_); }

std::string StepFolders::path(const std::string& folder, std::int64_t step) {
  return str_cat(folder, "/", kStep, step);
}

std::vector<std::int64_t> StepFolders::steps_in(const std::string& folder) {
  std::vector<std::int64_t> steps;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (const auto step = step_of(entry.path().filename().string(), "")) steps.push_back(*step);
  std::ranges::sort(steps);
  return steps;
}

void StepFolders::keep_newest(int count) const {
  const std::vector<std::int64_t> steps = steps_in(folder_);
  const std::size_t kept = std::min(steps.size(), static_cast<std::size_t>(count));
  // Renamed first, so that no reader takes what is half removed for a checkpoint.
  for (const std::int64_t step : std::span(steps).first(steps.size() - kept)) {
    const std::string place = path(folder_, step), old = place + ".old";
    if (::rename(place.c_str(), old.c_str()) != 0)
      warn_once(str_cat(place, ": cannot be renamed, and stays: ", std::strerror(errno)));
  }
  remove_all(left_in(folder_, {".old"}));
}

void StepFolders::require_held() const {
  CS_REQUIRE(text_of(str_cat(folder_, "/", kLock)) == mark_, folder_,
             ": was moved, or its .lock removed, while this training saved there; put it back, or "
             "start again");
}

bool StepFolders::sees_mark(const std::string& folder, const std::string& mark) {
  constexpr std::chrono::milliseconds kPause(100);
  constexpr int kLooks = 600;  // a minute: file systems of networks show new files late
  for (int look = 0; text_of(str_cat(folder, "/", kLock)) != mark; ++look) {
    if (look == kLooks) return false;
    std::this_thread::sleep_for(kPause);
  }
  return true;
}

}  // namespace coshard
