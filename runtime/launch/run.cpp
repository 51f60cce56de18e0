// run(): its output when the world fails, its exit code, and its end when ranks do not end.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <new>
#include <optional>
#include <string_view>

#include <coshard/runtime/error.h>
#include <coshard/runtime/launch/world.h>
#include "runtime/control/failure_record.h"
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

// Where nothing may be thrown, memory that runs out ends the process as a failure does: in one
// line, and with code 1. For as long as this lives.
class OutOfMemory {
 public:
  OutOfMemory() {
    told_ = false;
    before_ = std::set_terminate(end);
    handler_before_ = std::set_new_handler(ran_out);
  }
  ~OutOfMemory() {
    std::set_new_handler(handler_before_);
    std::set_terminate(before_);
  }
  OutOfMemory(const OutOfMemory&) = delete;
  OutOfMemory& operator=(const OutOfMemory&) = delete;
  static void told() { told_ = true; }

 private:
  [[noreturn]] static void end() {
    try {
      if (const std::exception_ptr error = std::current_exception()) std::rethrow_exception(error);
      // Where a noexcept function has clean-ups, g++ gets here without catching.
      if (ran_out_here_ && std::uncaught_exceptions() > 0) tell_and_exit();
    } catch (const std::bad_alloc&) {
      tell_and_exit();
    } catch (...) {
    }
    if (before_ != nullptr) before_();
    std::abort();
  }
  [[noreturn]] static void tell_and_exit() {
    constexpr std::string_view kLine =
        "error: no memory is left; raise ulimit -v, or run fewer ranks\n";
    if (!told_.exchange(true)) {
      report_out_of_memory();
      static_cast<void>(!::write(STDERR_FILENO, kLine.data(), kLine.size()));
    }
    std::_Exit(1);
  }
  static void ran_out() {
    ran_out_here_ = true;
    if (handler_before_ == nullptr) throw std::bad_alloc();
    handler_before_();
  }
  inline static std::atomic<bool> told_{false};
  inline static thread_local bool ran_out_here_ = false;
  inline static std::terminate_handler before_ = nullptr;
  inline static std::new_handler handler_before_ = nullptr;
};

}  // namespace

int run(WorldOptions options, const Program& program) {
  const OutOfMemory out_of_memory;
  std::optional<std::string> told;
  options.on_failure = [&told, also = options.on_failure](const Failure& failure) {
    told = failure.text;
    if (!failure.elsewhere) print(str_cat("error: ", failure.line()));
    OutOfMemory::told();
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
