// The messages of a group: posting, matching, moving.
#include "runtime/comm/collective.h"
#include "runtime/comm/local/group.h"

namespace coshard {

std::shared_ptr<Message> LocalGroup::post(const Collective& args, int rank, bool& both) {
  const bool leaves = !is_here(args.root);
  const int tag = leaves ? remote_->posted(*this, args, rank) : 0;
  auto message = mailbox_.post(args, rank, tag, both);
  if (leaves) offer(message);  // the peer may post and wait while all ranks here compute
  return message;
}

void LocalGroup::post_elsewhere(const Collective& args, int rank, int tag) {
  bool both = false;
  const std::shared_ptr<Message> message = mailbox_.post(args, rank, tag, both);
  if (both && agree(*message)) transfer(message);
}

bool LocalGroup::agree(const Message& message) {
  const Collective& send = message.send;
  const Collective& recv = message.recv;
  const bool shaped = send.shape != nullptr && recv.shape != nullptr;
  if (send.dtype == recv.dtype &&
      send_elements(send, size(), 0) == recv_elements(recv, size(), 0) &&
      (!shaped || *send.shape == *recv.shape))
    return true;
  const auto world = [this](int r) { return members_[static_cast<std::size_t>(r)]; };
  poison(str_cat("ranks disagree on message #", message.number, " of ", title(), ": rank ",
                 world(message.source), " calls ", describe(send, size()), location_text(send),
                 ", rank ", world(message.target), " calls ", describe(recv, size()),
                 location_text(recv)));
  return false;
}

void LocalGroup::transfer(const std::shared_ptr<Message>& message) {
  const std::size_t bytes = bytes_of(*message);
  if (link_ != nullptr)
    message->passage = link_->pass_message(message->source, static_cast<std::int64_t>(bytes));
  if (!is_here(message->source) || !is_here(message->target))
    message->carry = remote_->carrier(*this, message);
  Mailbox::match(*message);
  constexpr std::size_t kAtOnce = 64 * 1024;  // above: left to a waiter
  if (does_at_once() && !poisoned() && bytes <= kAtOnce) help(*message);
  if (!message->carry && !message->over()) offer(message);
  ring(message->has_dependents);
}

bool LocalGroup::help(Message& message) {
  if (!message.matched() || !may_go_on()) return false;
  std::string failure;
  const bool moved = message.help(failure);
  if (message.wanted.exchange(false) || moved) ring(message.has_dependents);
  if (!failure.empty())
    poison(str_cat("message #", message.number, " of ", title(), location_text(message.send),
                   ": computing what it sends failed: ", failure));
  return moved;
}

}  // namespace coshard
