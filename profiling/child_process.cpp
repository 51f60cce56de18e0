#include "profiling/child_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>

namespace coshard {
namespace {

struct Close {
  void operator()(std::FILE* file) const { (void)std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Close>;

// A file in memory, read from its beginning: unlike a pipe, it needs nobody who writes while the
// output is read, and raises no SIGPIPE if the program ends before it has read all.
File file_of(std::string_view bytes) {
  File file(::fdopen(::memfd_create("input", MFD_CLOEXEC), "w+"));
  if (file == nullptr) return nullptr;
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), file.get()) == bytes.size();
  const bool at_begin = std::fseek(file.get(), 0, SEEK_SET) == 0;  // flushes
  return written && at_begin ? std::move(file) : nullptr;
}

// The process; 0 if it was not started.
::pid_t start(const std::vector<std::string>& command, int in, int out) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t streams;
  ::posix_spawn_file_actions_init(&streams);
  ::posix_spawn_file_actions_adddup2(&streams, in, STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&streams, out, STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(&streams, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  ::pid_t child = 0;
  const int failed =
      ::posix_spawnp(&child, words.front(), &streams, nullptr, words.data(), environ);
  ::posix_spawn_file_actions_destroy(&streams);
  return failed == 0 ? child : 0;
}

bool ends_well(::pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return false;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

std::optional<std::string> output_of(const std::vector<std::string>& command,
                                     std::string_view input) {
  const File in = file_of(input);
  std::array<int, 2> ends;
  if (in == nullptr || ::pipe2(ends.data(), O_CLOEXEC) != 0) return std::nullopt;
  const File out(::fdopen(ends[0], "r"));
  const ::pid_t child = start(command, ::fileno(in.get()), ends[1]);
  ::close(ends[1]);
  if (child == 0) return std::nullopt;
  std::string text;
  std::array<char, 4096> part;
  while (const std::size_t count = std::fread(part.data(), 1, part.size(), out.get()))
    text.append(part.data(), count);
  if (!ends_well(child)) return std::nullopt;
  return text;
}

}  // namespace coshard
