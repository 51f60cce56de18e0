#pragma once
// What a branch is cancelled with when its deadline has passed (with_deadline).
#include <exception>

#include <coshard/runtime/error.h>

namespace coshard {

class DeadlinePassed final : public Error {
 public:
  using Error::Error;
};

inline bool is_past_a_deadline(const std::exception_ptr& cause) {
  try {
    if (cause) std::rethrow_exception(cause);
  } catch (const DeadlinePassed&) {
    return true;
  } catch (...) {
  }
  return false;
}

}  // namespace coshard
