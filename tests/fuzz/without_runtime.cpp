// What readers of files need of the runtime, so that a fuzzer is instrumented whole and links no more.
#include <coshard/runtime/error.h>
#include "runtime/comm/collective.h"

namespace coshard {

// Without the site of a rank's program.
Error::Error(ErrorKind kind, const std::string& message)
    : std::runtime_error(message), kind_(kind) {}

void fail(ErrorKind kind, const std::string& message) { throw Error(kind, message); }

std::uint64_t mix(std::uint64_t a, std::uint64_t b) { return (a ^ b) * 0x100000001b3; }

}  // namespace coshard
