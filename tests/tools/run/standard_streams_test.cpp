#include "tools/run/standard_streams.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <vector>

namespace coshard::job {
namespace {

// In a process of its own.
bool holds(const std::function<bool()>& f) {
  const pid_t process = ::fork();
  if (process == 0) ::_exit(f() ? 0 : 1);
  int status = -1;
  ::waitpid(process, &status, 0);
  return status == 0;
}

bool is_null(int fd) {
  struct stat file {
  }, null{};
  return ::fstat(fd, &file) == 0 && ::stat("/dev/null", &null) == 0 &&
         file.st_rdev == null.st_rdev && S_ISCHR(file.st_mode);
}

TEST(StandardStreams, ThatAreClosedBecomeNull) {
  for (const std::vector<int>& closed : {std::vector{0}, {1}, {2}, {0, 1, 2}})
    EXPECT_TRUE(holds([&] {
      for (const int fd : closed) ::close(fd);
      open_standard_streams();
      for (const int fd : closed)
        if (!is_null(fd)) return false;
      return ::dup(0) > 2;
    }));
}

TEST(StandardStreams, ThatAreOpenStay) {
  EXPECT_TRUE(holds([] {
    int ends[2];
    if (::pipe(ends) != 0) return false;
    for (const int fd : {0, 1, 2}) ::dup2(ends[1], fd);
    open_standard_streams();
    return !is_null(0) && !is_null(1) && !is_null(2);
  }));
}

TEST(StandardStreams, AWriteToWhatNobodyReadsIsAnError) {
  EXPECT_TRUE(holds([] {
    int ends[2];
    if (::pipe(ends) != 0) return false;
    ::close(ends[0]);
    ignore_sigpipe();
    return ::write(ends[1], "a", 1) < 0 && errno == EPIPE;
  }));
}

}  // namespace
}  // namespace coshard::job
