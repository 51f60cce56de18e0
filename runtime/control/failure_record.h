#pragma once
// What ended a rank, or a process of a job, as data. The library writes it once; the guard of the
// process passes it to `coshard run`, which reports the first failure of the job. Without a guard
// nothing is written.
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <coshard/runtime/launch/failure.h>

namespace coshard {

struct FailureRecord {
  std::string kind;          // "bad input", as to_string(ErrorKind), or "exception"
  int rank = -1;             // of the world; -1: the process, or all ranks together
  std::string text;          // the message of what was thrown
  std::string module;        // path of the innermost module that it left; "": none
  std::string place;         // "train.cpp:31", the user's line; "": unknown, or in the text
  std::vector<int> missing;  // ranks of the world that the rank was waiting for
  bool of_peer = false;      // it only reports that another rank or process has failed

  bool operator==(const FailureRecord&) const = default;
  std::string line() const;  // as Failure::line()
};
FailureRecord record_of(const Failure& failure, const std::exception_ptr& error);

// At most 8 KiB; long texts are cut.
std::string to_bytes(const FailureRecord& record);
// None: not such bytes.
std::optional<FailureRecord> record_of(std::string_view bytes);

// The variable that names the socket of this process's guard: a datagram socket in the abstract
// namespace (unix(7)), on which it accepts records of its own user.
constexpr const char* kFailureVariable = "COSHARD_FAILURE_SOCKET";

// These do nothing without a guard, never throw, and block for at most a second. Any thread.
void report_failure(const FailureRecord& record) noexcept;
// Where memory has run out: allocates nothing.
void report_out_of_memory() noexcept;
// This process goes on after the failure that it has reported: that is not why it will end.
void report_recovery() noexcept;

// Calls `work`; what it throws is reported as a failure of the process.
template <class Work>
auto reporting_failure(const Work& work) {
  try {
    return work();
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    report_failure(record_of(failure_of(-1, error), error));
    throw;
  }
}

}  // namespace coshard
