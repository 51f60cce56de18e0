#pragma once
// How each rank of a program ended: a rank's error is kept for the test, and ends only that rank.
#include <chrono>
#include <exception>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <coshard/runtime/error.h>
#include <coshard/runtime/launch/world.h>

namespace coshard::testing {

struct End {
  bool failed = false;
  bool typed = false;  // an Error of this kind
  ErrorKind kind{};
  std::string text;

  bool is(ErrorKind wanted) const { return failed && typed && kind == wanted; }
  bool names(const std::string& what) const { return text.find(what) != std::string::npos; }
};

inline std::ostream& operator<<(std::ostream& out, const End& end) {
  if (!end.failed) return out << "ended well";
  return out << (end.typed ? to_string(end.kind) : "another exception") << ": " << end.text;
}

inline End end_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    return {true, true, known.kind(), known.what()};
  } catch (const std::exception& other) {
    return {true, false, {}, other.what()};
  } catch (...) {
    return {true, false, {}, "no std::exception"};
  }
}

// Records how `task` ends, and succeeds itself.
inline Task<void> keep_end(Task<void> task, End& end) {
  try {
    co_await std::move(task);
  } catch (...) {
    end = end_of(std::current_exception());
  }
}
// Records how `task` ends, and rethrows its error.
inline Task<void> note_end(Task<void> task, End& end) {
  try {
    co_await std::move(task);
  } catch (...) {
    end = end_of(std::current_exception());
    throw;
  }
}

// Ranks on the CPU in this process, with a short deadline, so that a hang becomes a failure.
inline WorldOptions quick_options(int ranks) {
  WorldOptions options;
  options.ranks = ranks;
  options.threads = 1;
  options.timeout = std::chrono::milliseconds(1500);
  return options;
}

// The ends of all ranks of `program`, whatever error the world itself reports.
inline std::vector<End> ends_of(const WorldOptions& options, const Program& program) {
  std::vector<End> ends(static_cast<std::size_t>(options.ranks));
  try {
    run_ranks(options, [&](World& world) {
      return keep_end(program(world), ends[static_cast<std::size_t>(world.rank())]);
    });
  } catch (...) {  // each rank has recorded its own
  }
  return ends;
}

}  // namespace coshard::testing
