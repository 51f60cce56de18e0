#pragma once
// Send and recv inside a group: the n-th send from a to b meets the n-th recv of b from a. Neither
// blocks at issue; both complete when the data are copied. Owned by the group; any thread.
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

// Half: one side is posted. Matched: both are, and agree. Taken: one thread is copying. Moving: in
// transfer to or from another process. Over: done, or given up.
enum class MessageState : std::uint8_t { Half, Matched, Taken, Moving, Over };

struct Message {
  Collective send, recv;  // written under the mailbox's mutex before Matched
  int source = 0, target = 0;
  std::uint64_t number = 0;          // of the pair (source, target)
  Passage passage;                   // with links; set before Matched
  std::shared_ptr<DeviceOp> device;  // null on the cpu; sides: source, target
  // Null: both sides are here. Otherwise starts the transfer, into `memory` on the receiving side;
  // moved() is called at its end. Set before Matched.
  std::function<void()> carry;
  int tag = 0;                    // with carry: drawn by the sender
  std::vector<std::byte> memory;  // with carry: received data
  // Half -> Matched (release: both sides readable) -> Taken (compare-exchange) -> Over (release:
  // data received), or back to Matched while the send buffer is not filled. With carry: Taken ->
  // Moving -> Taken -> Over. Half, Matched or Moving -> Over when a failing rank gives it up.
  std::atomic<MessageState> state{MessageState::Half};
  // A thread found it Taken and may sleep. Sequentially consistent, with `state`.
  std::atomic<bool> wanted{false};
  std::atomic<bool> has_dependents{false};  // as in CollectiveOp
  std::atomic<bool> timed{false};
  std::atomic<std::int64_t> over_ns{0};

  bool over() const { return state.load() == MessageState::Over; }
  bool matched() const {  // and not over
    const MessageState now = state.load();
    return now == MessageState::Matched || now == MessageState::Taken;
  }
  // Copies if matched and the send buffer is filled, or advances what fills it; true if it did
  // either. `failure`: why the buffer will never be filled; the caller then poisons the group.
  bool help(std::string& failure);
  // Returns when no thread touches the buffers any more; a send to another process keeps its
  // buffer.
  void abandon();
  // The data have left this process, or arrived in it.
  void moved();

 private:
  void end();
  Poll poll_before(std::string& failure);  // by the thread that has taken it
};

std::size_t bytes_of(const Message& message);

class Mailbox {
 public:
  // Posts one side; `tag`: the sender's. `both` is true if the other side was already posted; the
  // caller then compares the two and releases the message with match().
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
