#pragma once
// Thrown by waits on ranks that only learn of a failure: the communicator was poisoned, or a peer
// has left. The text includes the first cause. Launchers prefer the error of the rank that failed
// first.
#include <string>

#include <coshard/runtime/error.h>

namespace coshard {

class PeerFailure : public Error {
 public:
  explicit PeerFailure(const std::string& message) : Error(ErrorKind::CommFailed, message) {}
};

}  // namespace coshard
