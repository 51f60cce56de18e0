#pragma once
// Control messages between processes, and their serialization. All processes run the same build on
// the same kind of machine. Values; any thread.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <coshard/runtime/comm/communicator.h>
#include "runtime/comm/local/announcement.h"
#include "runtime/comm/local/host/collective_op.h"

namespace coshard {

// A rank has issued a collective; what peers need of its buffer follows in blocks with this tag.
struct IssuedNotice {
  std::uint64_t group = 0, sequence = 0;
  int rank = 0;  // in the group
  int tag = 0;
  Print print;
  Collective args;    // without buffers and callbacks; texts are interned
  bool told = false;  // no blocks follow, these are all the data:
  std::vector<std::byte> data;
};
// A group of this run was poisoned; 0: the whole run.
struct PoisonNotice {
  std::uint64_t run = 0, group = 0;
  std::string cause;
};
// The program of a world rank has ended.
struct LeftNotice {
  std::uint64_t run = 0;
  int rank = 0;
};
// A process begins a run; the same number in all processes.
struct RunNotice {
  std::uint64_t run = 0;
  int ranks = 0;
};
// A process introduces itself to process 0.
struct HelloNotice {
  std::int64_t pid = 0;
  std::string host_name, host;  // `host`: see host_id(); names are not unique
  std::string pid_space;        // see pid_space_id()
};
// Process 0's reply: all processes, and the address where it listens.
struct WelcomeNotice {
  std::vector<HelloNotice> processes;
  std::vector<std::string> addresses;
  std::uint16_t port = 0;
  std::string secret;
};
using Notice = std::variant<IssuedNotice, PoisonNotice, LeftNotice, RunNotice, HelloNotice,
                            WelcomeNotice, Announced, Acknowledged, Asked, Answered>;

std::vector<std::byte> to_bytes(const Notice& notice);
std::vector<std::byte> to_bytes(const Announcement& said);
// With `args` instead of the notice's.
std::vector<std::byte> to_bytes(const IssuedNotice& notice, const Collective& args);
// Error{CommFailed}: not a notice.
Notice notice_of(std::span<const std::byte> bytes);

}  // namespace coshard
