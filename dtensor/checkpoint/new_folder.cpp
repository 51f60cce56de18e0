#include "dtensor/checkpoint/new_folder.h"

#include <fcntl.h>
#include <stdio.h>  // NOLINT: renameat2
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <utility>

#include <coshard/runtime/error.h>
#include "dtensor/checkpoint/file.h"
#include "dtensor/checkpoint/local_parts.h"
#include "dtensor/checkpoint/strict_json.h"

namespace coshard {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLinks = 40;                        // as the system follows
constexpr mode_t kFolderMode = 0777;                  // but for the umask
constexpr std::string_view kMark = ".saving";         // in a folder that is being made
constexpr std::string_view kReplaced = "replaced\n";  // in the mark of one that is being replaced

std::string parent_of(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

bool is_empty_folder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error) && fs::is_empty(path, error);
}

[[noreturn]] void fail_to(const std::string& path, std::string_view what) {
  const int error = errno;
  fail(ErrorKind::BadInput, str_cat(path, ": cannot be ", what, ": ", std::strerror(error)));
}

// Opens a folder and locks it; -1: another process has.
int locked(const std::string& path) {
  const int folder = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) fail_to(path, "opened");
  // Some file systems have no locks: then nobody can tell.
  if (::flock(folder, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return folder;
  ::close(folder);
  return -1;
}

// The mark last, so that what is left after a death is known as a save's.
std::error_code remove_marked(const std::string& path) {
  std::error_code error;
  for (fs::directory_iterator entry(path, error); !error && entry != fs::directory_iterator();
       entry.increment(error))
    if (entry->path().filename() != kMark) fs::remove_all(entry->path(), error);
  if (!error) fs::remove_all(path, error);
  return error;
}

// Whether the open folder still has this path: another process may have taken it for one left.
bool is_at(int folder, const std::string& path) {
  struct stat open = {}, named = {};
  return ::fstat(folder, &open) == 0 && ::stat(path.c_str(), &named) == 0 &&
         open.st_ino == named.st_ino && open.st_dev == named.st_dev;
}

// Error{BadInput}: a folder with more than a model in it, or with none.
void require_model(const std::string& path, std::string_view option) {
  bool has_model = false;
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    const std::string name = entry.path().filename().string();
    CS_REQUIRE(!entry.is_directory() || name == "training", path, ": has the folder '",
               shortened(name), "', which is no part of a model; ", option, " would remove it");
    has_model = has_model || name == "model.safetensors" ||
                name == "model.safetensors.index.json" || name == "adapter_model.safetensors";
  }
  CS_REQUIRE(has_model || is_empty_folder(path), path, ": has no model, so ", option,
             " does not replace it; give another folder");
}

void unmark(const std::string& folder) { ::unlink((fs::path(folder) / kMark).c_str()); }

// What is to be replaced says so in its mark, and is removed by the next save if this one dies.
void mark_replaced(const std::string& folder) {
  const std::string place = (fs::path(folder) / kMark).string();
  constexpr mode_t kWritableByAll = 0666;  // but for the umask
  const int file = ::open(place.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kWritableByAll);
  if (file < 0) fail_to(place, "made");
  const bool written =
      ::write(file, kReplaced.data(), kReplaced.size()) == static_cast<ssize_t>(kReplaced.size());
  const int why = errno;
  ::close(file);
  if (written) return;
  unmark(folder);
  errno = why;
  fail_to(place, "written");
}
bool is_replaced(const std::string& folder) {
  std::error_code error;
  if (fs::is_symlink(folder, error)) return false;
  std::ifstream in(fs::path(folder) / kMark, std::ios::binary);
  return std::string{std::istreambuf_iterator<char>(in), {}} == kReplaced;
}

std::string old_of(const std::string& path) { return path + ".old"; }

// Puts back, or removes, what replace() had moved away when it died.
void settle_old(const std::string& path) {
  std::error_code error;
  const std::string old = old_of(path);
  if (!is_replaced(old)) return;
  if (fs::exists(fs::symlink_status(path, error)))
    remove_marked(old);
  else if (::rename(old.c_str(), path.c_str()) == 0)
    unmark(path);
}

// Gives `path` what `by` is; what it was is marked, at `by` or, where the file system cannot exchange
// two names and there is none for a moment, at `path`.old.
void replace(const std::string& path, const std::string& by, std::string_view option) {
  require_model(path, option);
  mark_replaced(path);
  if (::renameat2(AT_FDCWD, by.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) == 0) return;
  const std::string old = old_of(path);
  const bool can_exchange = errno != EINVAL && errno != ENOSYS;
  const bool moved = !can_exchange && ::rename(path.c_str(), old.c_str()) == 0;
  if (moved && ::rename(by.c_str(), path.c_str()) == 0) return;
  const int why = errno;
  if (moved) ::rename(old.c_str(), path.c_str());
  unmark(path);
  errno = why;
  fail_to(by, str_cat("put in place of ", path));
}

}  // namespace

std::string NewFolder::resolved(const std::string& path) {
  fs::path whole = path;
  while (whole.has_relative_path() && !whole.has_filename()) whole = whole.parent_path();
  std::error_code error;
  // Also of a link to what is not there; one that goes round cannot be reached.
  for (int links = 0; links < kMostLinks && fs::is_symlink(whole, error); ++links)
    whole = whole.parent_path() / fs::read_symlink(whole, error);
  while (whole.has_relative_path() && !whole.has_filename()) whole = whole.parent_path();
  const fs::path name = whole.filename();
  CS_REQUIRE(!name.empty() && name != "." && name != "..", "'", path,
             "' is no name for a new folder; give one below it");
  CS_REQUIRE(!fs::is_symlink(whole, error), path, ": cannot be reached: links that go round");
  if (!whole.has_parent_path()) return whole.string();
  const fs::path parent = fs::weakly_canonical(whole.parent_path(), error);
  CS_REQUIRE(!error, path, ": cannot be reached: ", error.message());
  return (parent / name).string();
}

NewFolder::NewFolder(std::string path, bool replaces, std::string_view option)
    : path_(std::move(path)), part_(part_of(path_)), option_(option), replaces_(replaces) {
  settle_old(path_);
  std::error_code error;
  const bool there = fs::exists(fs::symlink_status(path_, error));
  CS_REQUIRE(!there || fs::is_directory(path_, error), path_, ": is there and is no folder");
  CS_REQUIRE(!there || replaces || is_empty_folder(path_), path_,
             ": is there and is not empty; give another folder, or say ", option_);
  if (there && replaces) require_model(path_, option_);
  while (::mkdir(part_.c_str(), kFolderMode) != 0) {
    CS_REQUIRE(errno != ENOENT, part_, ": cannot be made: there is no folder ", parent_of(path_),
               "; `mkdir -p ", parent_of(path_), "` makes it");
    if (errno != EEXIST) fail_to(part_, "made");
    CS_REQUIRE(fs::exists(at(kMark), error) || is_empty_folder(part_), part_,
               ": is there, and no save has made it; move it away");
    const int left = locked(part_);
    CS_REQUIRE(left >= 0, part_, ": another save is writing it");
    error = remove_marked(part_);
    ::close(left);
    CS_REQUIRE(!error, part_,
               ": what a save that died has left cannot be removed: ", error.message());
  }
  lock_ = locked(part_);
  const std::exception_ptr failed = failure_of([this] {
    CS_REQUIRE(lock_ >= 0 && is_at(lock_, part_), part_, ": another save is writing it");
    write(kMark, "");
  });
  if (there && !failed) unmark(path_);  // of a save that died as it ended
  if (!failed) return;
  remove();
  std::rethrow_exception(failed);
}

NewFolder::~NewFolder() { remove(); }

void NewFolder::remove() {
  if (lock_ < 0) return;
  if (is_at(lock_, part_)) remove_marked(part_);
  ::close(std::exchange(lock_, -1));
}

void NewFolder::make_folder(std::string_view name) const {
  if (::mkdir(at(name).c_str(), kFolderMode) != 0) fail_to(at(name), "made");
}

void NewFolder::write(std::string_view name, std::string_view text) const {
  OutputFile::make(at(name), 0);
  OutputFile file(at(name));
  file.write(0, std::as_bytes(std::span(text)));
  file.sync();
  file.close();
}

void NewFolder::commit() {
  for (const fs::directory_entry& entry : fs::directory_iterator(part_))
    if (entry.is_directory()) sync_folder(entry.path().string());
  sync_folder(part_);
  // Over what is there and empty, or in exchange for what is there.
  bool replaced = false;
  if (::rename(part_.c_str(), path_.c_str()) != 0) {
    if (errno != ENOTEMPTY && errno != EEXIST) fail_to(part_, "renamed");
    CS_REQUIRE(replaces_, path_,
               ": was made by another while it was saved; give another folder, or say ", option_);
    replace(path_, part_, option_);
    replaced = true;
  }
  unmark(path_);
  ::close(std::exchange(lock_, -1));
  sync_folder(path_);
  sync_folder(parent_of(path_));
  for (const std::string& left : {part_, old_of(path_)})
    if (replaced && is_replaced(left)) remove_marked(left);
}

}  // namespace coshard
