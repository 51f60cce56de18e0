#pragma once
// The switch of tools/mutate, included before everything in its build. COSHARD_MUTANT=7 chooses the seventh mutation. COSHARD_MUTANTS_REACHED
// names a folder that gets a file for each mutation that is reached, with the cases of GoogleTest that reached it (or empty lines).
#include <fcntl.h>
#include <unistd.h>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

inline bool coshard_mutants_seen[100'000] = {};

inline bool coshard_mutant(int id) noexcept {
  static const int chosen =
      std::getenv("COSHARD_MUTANT") ? std::atoi(std::getenv("COSHARD_MUTANT")) : 0;
  static const char* const folder = std::getenv("COSHARD_MUTANTS_REACHED");
  if (folder && !coshard_mutants_seen[id]) {
    coshard_mutants_seen[id] = true;
    const int kept = errno;
    const char* name = std::getenv("COSHARD_MUTANT_CASE");
    char text[1000];
    std::snprintf(text, sizeof text, "%s/%d", folder, id);
    const int file = ::open(text, O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0666);
    std::snprintf(text, sizeof text, "%s\n", name ? name : "");
    if (::write(file, text, std::strlen(text)) < 0) std::perror("coshard_mutant");
    ::close(file);
    errno = kept;
  }
  return id == chosen;
}
