#include "dtensor/checkpoint/file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include <coshard/runtime/error.h>
#include "dtensor/checkpoint/aligned_bytes.h"
#include "runtime/comm/collective.h"

namespace coshard {

bool is_there(const std::string& path) {
  std::error_code error;
  const bool found = std::filesystem::exists(path, error);
  CS_REQUIRE(!error, path, ": cannot be reached: ", error.message());
  return found;
}

std::string read_text(const std::string& path, std::uint64_t most) {
  const InputFile file(path);
  CS_REQUIRE(file.size() <= most, path, ": has ", file.size(), " bytes; at most ", most);
  std::string text(file.size(), ' ');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

// Without O_NONBLOCK, a pipe without a writer would block here.
InputFile::InputFile(std::string path)
    : path_(std::move(path)), fd_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  CS_REQUIRE(fd_ >= 0, path_, ": cannot be opened: ", std::strerror(errno));
  struct stat found = {};
  const bool known = ::fstat(fd_, &found) == 0;
  if (known && S_ISREG(found.st_mode)) {
    size_ = static_cast<std::uint64_t>(found.st_size);
    for (const auto part : {size_, static_cast<std::uint64_t>(found.st_mtim.tv_sec),
                            static_cast<std::uint64_t>(found.st_mtim.tv_nsec)})
      identity_ = mix(identity_, part);
    return;
  }
  const int error = errno;
  ::close(fd_);
  fail(ErrorKind::BadInput,
       str_cat(path_, known ? ": is no regular file" : ": ", known ? "" : std::strerror(error)));
}

InputFile::~InputFile() {
  ::close(fd_);
  if (direct_ >= 0) ::close(direct_);
}

void InputFile::read_direct(std::uint64_t at, std::span<std::byte> to) const {
  if (direct_ == kUnknown) {
    direct_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (direct_ < 0) direct_ = kNone;
  }
  while (direct_ >= 0 && !to.empty()) {
    // What is cached is copied; RWF_NOWAIT reads nothing else.
    iovec begin{to.data(), std::min(to.size(), static_cast<std::size_t>(kBlock))};
    if (::preadv2(fd_, &begin, 1, static_cast<off_t>(at), RWF_NOWAIT) > 0) break;
    const auto whole = static_cast<std::size_t>(in_blocks(static_cast<std::int64_t>(to.size())));
    const ssize_t got = ::pread(direct_, to.data(), whole, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    const auto read = static_cast<std::size_t>(std::max<ssize_t>(got, 0));
    if (got <= 0 || (read < to.size() && read % kBlock != 0)) break;  // the plain read says why
    at += std::min(read, to.size());
    to = to.subspan(std::min(read, to.size()));
  }
  read(at, to);
}

void InputFile::read(std::uint64_t at, std::span<std::byte> to) const {
  while (!to.empty()) {
    const ssize_t got = ::pread(fd_, to.data(), to.size(), static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      fail(ErrorKind::DeviceFailed,
           str_cat(path_, ": cannot read byte ", at, ": ", std::strerror(errno)));
    if (got == 0)
      fail(ErrorKind::DeviceFailed,
           str_cat(path_, ": ends at byte ", at, "; it was cut while it was read"));
    at += static_cast<std::uint64_t>(got);
    to = to.subspan(static_cast<std::size_t>(got));
  }
}

namespace {

[[noreturn]] void fail_on(const std::string& path, std::string_view what) {
  const int error = errno;
  fail(ErrorKind::DeviceFailed, str_cat(path, ": ", what, ": ", std::strerror(error)));
}

// A file beyond the process's limit (ulimit -f) is an error of the call, and does not end the process.
class LimitAsError {
 public:
  LimitAsError() {
    ::sigemptyset(&signal_);
    ::sigaddset(&signal_, SIGXFSZ);
    ::pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~LimitAsError() {
    const int error = errno;
    constexpr timespec kNow{};
    while (::sigtimedwait(&signal_, nullptr, &kNow) > 0) {
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }
  LimitAsError(const LimitAsError&) = delete;
  LimitAsError& operator=(const LimitAsError&) = delete;

 private:
  sigset_t signal_, before_;
};

// For files of this many bytes in all.
[[noreturn]] void fail_without_room(const std::string& path, std::int64_t bytes) {
  struct statvfs disk = {};
  const bool known = ::statvfs(path.c_str(), &disk) == 0;
  const std::string has =
      known ? str_cat(", the disk has ", disk.f_bavail * disk.f_frsize) : std::string();
  fail(ErrorKind::DeviceFailed, str_cat(path, ": needs ", bytes, " bytes", has));
}

}  // namespace

OutputFile::OutputFile(std::string path, std::optional<std::int64_t> direct_bytes)
    : path_(std::move(path)), fd_(-1), bytes_(direct_bytes) {
  if (bytes_) fd_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC | O_DIRECT);
  is_direct_ = fd_ >= 0;
  if (fd_ < 0) fd_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd_ < 0) fail_on(path_, "cannot be opened to write");
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
}

void OutputFile::make(const std::string& path, std::int64_t bytes) {
  constexpr mode_t kReadableByAll = 0666;  // but for the umask
  OutputFile file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kReadableByAll),
                  path);
  if (file.fd_ < 0)
    fail(ErrorKind::BadInput, str_cat(path, ": cannot be made: ", std::strerror(errno)));
  if (bytes == 0) return;
  const LimitAsError limit;
  // Not posix_fallocate, which writes each block where the file system knows no other way.
  if (::fallocate(file.fd_, 0, 0, bytes) != 0) {
    if (errno == ENOSPC || errno == EDQUOT) fail_without_room(path, bytes);
    if (errno != EOPNOTSUPP && errno != ENOSYS) fail_on(path, "cannot be given its size");
    if (::ftruncate(file.fd_, bytes) != 0) fail_on(path, "cannot be given its size");
  }
  file.close();
}

void OutputFile::write(std::int64_t at, std::span<const std::byte> from) {
  const LimitAsError limit;
  while (!from.empty()) {
    const auto left = static_cast<std::int64_t>(from.size());
    const auto size = static_cast<std::size_t>(is_direct_ ? in_blocks(left) : left);
    const ssize_t done = ::pwrite(fd_, from.data(), size, at);
    if (done < 0 && errno == EINTR) continue;
    if (is_direct_ && (done < 0 ? errno == EINVAL : done < left && done % kBlock != 0)) {
      is_direct_ = false;  // what follows goes through the page cache
      ::fcntl(fd_, F_SETFL, ::fcntl(fd_, F_GETFL) & ~O_DIRECT);
      continue;
    }
    if (done < 0) fail_on(path_, str_cat("cannot write byte ", at));
    is_longer_ = is_longer_ || done > left;
    at += std::min<std::int64_t>(done, left);
    from = from.subspan(static_cast<std::size_t>(std::min<std::int64_t>(done, left)));
  }
}

void OutputFile::sync() {
  if (is_longer_ && ::ftruncate(fd_, *bytes_) != 0) fail_on(path_, "cannot be given its size");
  is_longer_ = false;
  if (::fdatasync(fd_) != 0) fail_on(path_, "cannot be put on the disk");
  if (bytes_) ::posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED);  // a hint
}

void OutputFile::close() {
  if (::close(std::exchange(fd_, -1)) != 0) fail_on(path_, "cannot be closed");
}

void sync_folder(const std::string& path) {
  const int folder = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) fail_on(path, "cannot be opened");
  const bool done = ::fsync(folder) == 0 || errno == EINVAL;  // which some file systems answer
  const int error = errno;
  ::close(folder);
  errno = error;
  if (!done) fail_on(path, "cannot be put on the disk");
}

}  // namespace coshard
