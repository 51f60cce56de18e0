// run(): its output when the world fails, its exit code, and its end when ranks do not end.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <optional>

#include <coshard/runtime/error.h>
#include <coshard/runtime/launch/world.h>
#include "runtime/printable.h"

namespace coshard {
namespace {

int exit_code_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    return known.kind() == ErrorKind::BadInput ? 2 : 1;
  } catch (...) {
    return 1;
  }
}

// In one write, so that output of ranks is not interleaved; on one line, whatever was thrown.
void print(const std::string& line) { std::cerr << printable(line) + '\n' << std::flush; }

std::string seconds_text(std::chrono::milliseconds time) {
  return str_cat(static_cast<double>(time.count() / 100) / 10, " s");
}

// A thread that holds the stream's lock is stuck in it: skip the flush then.
void flush(std::FILE* stream) {
  if (::ftrylockfile(stream) != 0) return;
  std::fflush(stream);
  ::funlockfile(stream);
}

void tell_of(const StillRunning& news) {
  if (!news.out_of_grace)
    return print(
        str_cat("waiting for ", news.text, ", ", seconds_text(news.since), " after the failure"));
  print(str_cat("ending the process: ", news.text, " still running ", seconds_text(news.since),
                " after the failure"));
  flush(stdout);
  std::_Exit(1);
}

}  // namespace

int run(WorldOptions options, const Program& program) {
  std::optional<std::string> told;
  options.on_failure = [&told, also = options.on_failure](const Failure& failure) {
    told = failure.text;
    if (!failure.elsewhere) print(str_cat("error: ", failure.line()));
    if (also) also(failure);
  };
  options.on_still_running = [also = options.on_still_running](const StillRunning& news) {
    if (also) also(news);
    tell_of(news);
  };
  try {
    run_ranks(options, program);
    return 0;
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    if (told != message_of(error)) print(str_cat("error: ", text_of(error)));
    return exit_code_of(error);
  }
}

}  // namespace coshard
