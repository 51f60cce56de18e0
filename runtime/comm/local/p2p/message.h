#pragma once
// Send and recv inside a group: the n-th send from a to b meets the n-th recv of b from a. Neither
// blocks at issue; both are over when the data is copied. Owned by the group; any thread.
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <coshard/runtime/comm/communicator.h>
#include "runtime/comm/local/device/device_op.h"
#include "runtime/comm/local/link_queue.h"

namespace coshard {

// Half: one side is posted. Matched: both are, and agree. Taken: one thread copies. Moving: to or
// from another process. Over: done, or given up.
enum class MessageState : std::uint8_t { Half, Matched, Taken, Moving, Over };

struct Message {
  Collective send, recv;  // written under the mailbox's mutex before Matched
  int source = 0, target = 0;
  std::uint64_t number = 0;          // of the pair (source, target)
  Passage passage;                   // with links; set before Matched
  std::shared_ptr<DeviceOp> device;  // null on the cpu; sides: source, target
  // Null: both sides are here. Else starts to move the data, into memory of its own where they
  // arrive; then moved() is called. Set before Matched.
  std::function<void()> carry;
  int tag = 0;                    // with carry: of the sender
  std::vector<std::byte> memory;  // with carry: what has arrived
  // Half -> Matched (release: both sides readable) -> Taken (compare-exchange) -> Over (release:
  // data there), or back to Matched while what is sent is not there. With carry Taken -> Moving ->
  // Taken -> Over. Half, Matched or Moving -> Over when a failing rank gives it up.
  std::atomic<MessageState> state{MessageState::Half};
  // Somebody found it Taken, and may sleep. Sequentially consistent, with `state`.
  std::atomic<bool> wanted{false};
  std::atomic<bool> has_dependents{false};  // as of an op
  std::atomic<bool> timed{false};
  std::atomic<std::int64_t> over_ns{0};

  bool over() const { return state.load() == MessageState::Over; }
  bool matched() const {  // and not over
    const MessageState now = state.load();
    return now == MessageState::Matched || now == MessageState::Taken;
  }
  // Copies if that is to be done now and what is sent is there, or does a share of what makes it
  // so; true when it did. `failure`: why it never will be; the caller poisons the group.
  bool help(std::string& failure);
  // Returns when nobody touches the buffers any more; what is being sent to another process keeps
  // its buffer.
  void abandon();
  // The data have left this process, or arrived in it.
  void moved();

 private:
  void end();
  Look push_before(std::string& failure);  // by who has taken it
};

std::size_t bytes_of(const Message& message);

class Mailbox {
 public:
  // Posts one side; `tag`: what a sender has drawn for it. `both` is true when the other side was there already; then the caller compares
  // them and lets the message go with match().
  std::shared_ptr<Message> post(const Collective& args, int rank, int tag, bool& both);
  static void match(Message& message);

 private:
  struct Channel {
    std::deque<std::shared_ptr<Message>> half;  // all of the same side
    std::uint64_t sends = 0, recvs = 0;
  };
  std::mutex mutex_;
  std::map<std::pair<int, int>, Channel> channels_;
};

}  // namespace coshard
