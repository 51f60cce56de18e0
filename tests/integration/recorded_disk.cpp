#include "tests/integration/recorded_disk.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

// Calls are told apart by path: a file that is open by "/proc/self/fd".
namespace {

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

std::string setting(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string path_of(int fd) {
  char path[4096];
  const ssize_t size =
      ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path);
  return size < 0 ? "" : std::string(path, static_cast<std::size_t>(size));
}

std::string path_at(int folder, const char* path) {
  if (path[0] == '/') return path;
  if (folder != AT_FDCWD) return path_of(folder) + "/" + path;
  char* const here = ::getcwd(nullptr, 0);
  const std::string whole = std::string(here) + "/" + path;
  std::free(here);
  return whole;
}

class Disk {
 public:
  static Disk& get() {
    static Disk disk;
    return disk;
  }
  bool has(const std::string& path) const {
    return !folder_.empty() && (path + "/").compare(0, folder_.size(), folder_) == 0;
  }
  // Before the call is made: false if it is to fail, with errno.
  bool begins(const std::string& call) {
    if (++calls_ == kill_at_) ::kill(::getpid(), SIGKILL);
    if (call != failing_ || ++failing_calls_ != fail_at_) return true;
    errno = error_;
    return false;
  }
  void tell(const std::string& line) {
    if (record_ == nullptr) return;
    std::fprintf(record_, "%s\n", line.c_str());
    std::fflush(record_);
  }
  std::recursive_mutex mutex;  // calls have one order; fopen() opens a file

 private:
  Disk() : folder_(setting("DISK_FOLDER")) {
    if (folder_.empty()) return;
    folder_ += "/";
    if (const std::string to = setting("DISK_RECORD"); !to.empty())
      record_ = std::fopen(to.c_str(), "w");
    kill_at_ = std::atoi(setting("DISK_KILL").c_str());
    const std::string fail = setting("DISK_FAIL");
    if (const std::size_t at = fail.find(':'); at != std::string::npos) {
      failing_ = fail.substr(0, at);
      std::sscanf(fail.c_str() + at, ":%d:%d", &fail_at_, &error_);
    }
  }
  std::string folder_, failing_;
  std::FILE* record_ = nullptr;
  int calls_ = 0, kill_at_ = 0, failing_calls_ = 0, fail_at_ = 0, error_ = 0;
};

// Makes the call; what `line` says of it is told if it succeeds.
template <class Call, class Line>
auto recorded(const std::string& path, const char* name, Call&& call, Line&& line)
    -> decltype(call()) {
  Disk& disk = Disk::get();
  if (!disk.has(path)) return call();
  const std::lock_guard lock(disk.mutex);
  if (!disk.begins(name)) return -1;
  const auto result = call();
  const int error = errno;
  if (result >= 0) disk.tell(std::string(name) + " " + line(result));
  errno = error;
  return result;
}

std::string hex(const void* data, std::size_t size) {
  std::string text;
  char two[3];
  for (std::size_t i = 0; i < size; ++i) {
    std::snprintf(two, sizeof two, "%02x", static_cast<const unsigned char*>(data)[i]);
    text += two;
  }
  return text.empty() ? "-" : text;
}

int open_file(const char* function, const char* path, int flags, mode_t mode) {
  using Open = int (*)(const char*, int, ...);
  const auto call = [&] { return next<Open>(function)(path, flags, mode); };
  if ((flags & O_CREAT) == 0) return call();
  const std::string whole = path_at(AT_FDCWD, path);
  struct stat known = {};
  if (::stat(path, &known) == 0) return call();
  return recorded(whole, "create", call, [&](int) { return whole; });
}

ssize_t write_file(const char* function, int fd, const void* data, size_t size, off_t at) {
  using Write = ssize_t (*)(int, const void*, size_t, off_t);
  const std::string path = path_of(fd);
  return recorded(
      path, "write", [&] { return next<Write>(function)(fd, data, size, at); },
      [&](ssize_t done) {
        return path + " " + std::to_string(at) + " " + hex(data, static_cast<std::size_t>(done));
      });
}

int size_file(const char* function, int fd, off_t size) {
  using Truncate = int (*)(int, off_t);
  const std::string path = path_of(fd);
  return recorded(
      path, "size", [&] { return next<Truncate>(function)(fd, size); },
      [&](int) { return path + " " + std::to_string(size); });
}

int allocate_file(const char* function, int fd, int mode, off_t at, off_t size) {
  using Allocate = int (*)(int, int, off_t, off_t);
  const std::string path = path_of(fd);
  return recorded(
      path, "allocate", [&] { return next<Allocate>(function)(fd, mode, at, size); },
      [&](int) { return path + " " + std::to_string(at + size); });
}

int sync_file(const char* function, int fd) {
  using Sync = int (*)(int);
  const std::string path = path_of(fd);
  return recorded(
      path, "sync", [&] { return next<Sync>(function)(fd); }, [&](int) { return path; });
}

int remove_name(int folder, const char* path, bool is_folder, int (*call)(int, const char*, bool)) {
  const std::string whole = path_at(folder, path);
  return recorded(
      whole, is_folder ? "rmdir" : "unlink", [&] { return call(folder, path, is_folder); },
      [&](int) { return whole; });
}
int next_unlinkat(int folder, const char* path, bool is_folder) {
  using Unlink = int (*)(int, const char*, int);
  return next<Unlink>("unlinkat")(folder, path, is_folder ? AT_REMOVEDIR : 0);
}

}  // namespace

void note_on_disk(std::string_view text) {
  Disk& disk = Disk::get();
  const std::lock_guard lock(disk.mutex);
  disk.tell("note " + std::string(text));
}

extern "C" {

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = va_arg(rest, mode_t);
  va_end(rest);
  return open_file("open", path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = va_arg(rest, mode_t);
  va_end(rest);
  return open_file("open64", path, flags, mode);
}
ssize_t pwrite64(int fd, const void* data, size_t size, off_t at) {
  return write_file("pwrite64", fd, data, size, at);
}
int ftruncate64(int fd, off_t size) { return size_file("ftruncate64", fd, size); }
int fallocate64(int fd, int mode, off_t at, off_t size) {
  return allocate_file("fallocate64", fd, mode, at, size);
}
int fsync(int fd) { return sync_file("fsync", fd); }
int fdatasync(int fd) { return sync_file("fdatasync", fd); }
int mkdir(const char* path, mode_t mode) noexcept {
  using Make = int (*)(const char*, mode_t);
  const std::string whole = path_at(AT_FDCWD, path);
  return recorded(
      whole, "mkdir", [&] { return next<Make>("mkdir")(path, mode); }, [&](int) { return whole; });
}
int rename(const char* from, const char* to) noexcept {
  using Rename = int (*)(const char*, const char*);
  const std::string a = path_at(AT_FDCWD, from), b = path_at(AT_FDCWD, to);
  return recorded(
      a, "rename", [&] { return next<Rename>("rename")(from, to); },
      [&](int) { return a + " " + b; });
}
int unlink(const char* path) noexcept { return remove_name(AT_FDCWD, path, false, next_unlinkat); }
int rmdir(const char* path) noexcept { return remove_name(AT_FDCWD, path, true, next_unlinkat); }
int unlinkat(int folder, const char* path, int flags) noexcept {
  return remove_name(folder, path, (flags & AT_REMOVEDIR) != 0, next_unlinkat);
}
int remove(const char* path) noexcept {
  struct stat known = {};
  const bool is_folder = ::lstat(path, &known) == 0 && S_ISDIR(known.st_mode);
  return remove_name(AT_FDCWD, path, is_folder, next_unlinkat);
}

}  // extern "C"
