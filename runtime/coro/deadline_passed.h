#pragma once
// What a branch is cancelled with when its deadline has passed (with_deadline).
#include <coshard/runtime/error.h>

namespace coshard {

class DeadlinePassed final : public Error {
 public:
  using Error::Error;
};

}  // namespace coshard
