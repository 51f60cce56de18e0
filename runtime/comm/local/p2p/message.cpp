#include "runtime/comm/local/p2p/message.h"

#include <cstring>

#include "runtime/comm/collective.h"
#include "runtime/comm/local/let_others_run.h"
#include "runtime/comm/local/take.h"

namespace coshard {

std::size_t bytes_of(const Message& message) {
  if (message.send.control_only) return 0;
  return static_cast<std::size_t>(send_elements(message.send, 2, 0)) * size_of(message.send.dtype);
}

Poll Message::poll_before(std::string& failure) {
  if (send.after == nullptr) return Poll::Done;
  try {
    const Poll polled = send.after->poll(Poller::AnyThread);
    if (polled != Poll::Done) return polled;
    failure = send.after->failure();
  } catch (const std::exception& error) {
    failure = error.what();
  }
  if (!failure.empty()) return Poll::Pending;
  send.after.reset();
  return Poll::Done;
}

bool Message::help(std::string& failure) {
  if (!take(state, MessageState::Matched, MessageState::Taken, wanted)) return false;
  if (const Poll before = poll_before(failure); before != Poll::Done) {
    state.store(MessageState::Matched);
    return before == Poll::Progressed;
  }
  if (carry) {
    state.store(MessageState::Moving);
    carry();
    return true;
  }
  if (const std::size_t bytes = bytes_of(*this); bytes > 0)
    std::memcpy(recv.recv, send.send, bytes);
  end();
  return true;
}

void Message::moved() {
  MessageState expected = MessageState::Moving;
  if (!state.compare_exchange_strong(expected, MessageState::Taken)) return;  // given up meanwhile
  if (!memory.empty()) std::memcpy(recv.recv, memory.data(), memory.size());
  end();
}

void Message::end() {
  send.keep_send.reset();
  recv.keep_recv.reset();
  if (timed.load(std::memory_order_relaxed))
    over_ns.store(rank_now_ns(), std::memory_order_relaxed);
  state.store(MessageState::Over);
}

void Message::abandon() {
  for (MessageState seen = state.load(); seen != MessageState::Over; seen = state.load()) {
    if (seen == MessageState::Taken) {
      let_others_run();
    } else {
      state.compare_exchange_strong(seen, MessageState::Over);
    }
  }
}

std::shared_ptr<Message> Mailbox::post(const Collective& args, int rank, int tag, bool& both) {
  const bool sends = args.kind == CollectiveKind::Send;
  const auto key = sends ? std::pair(rank, args.root) : std::pair(args.root, rank);
  const std::scoped_lock lock(mutex_);
  Channel& channel = channels_[key];
  std::uint64_t& mine = sends ? channel.sends : channel.recvs;
  both = mine < (sends ? channel.recvs : channel.sends);
  std::shared_ptr<Message> message;
  if (both) {
    message = std::move(channel.half.front());
    channel.half.pop_front();
  } else {
    message = std::make_shared<Message>();
    message->source = key.first;
    message->target = key.second;
    message->number = mine;
    channel.half.push_back(message);
  }
  (sends ? message->send : message->recv) = args;
  if (sends) message->tag = tag;
  ++mine;
  return message;
}

void Mailbox::match(Message& message) {
  MessageState expected = MessageState::Half;
  message.state.compare_exchange_strong(expected, MessageState::Matched);
}

}  // namespace coshard
