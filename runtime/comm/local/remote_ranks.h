#pragma once
// The ranks of a thread group that are in other processes ("elsewhere"), as its communicators see
// them. A collective of ranks here and elsewhere is one op in each process: the entry of a rank
// elsewhere is filled from what its process sends, and this process reduces and copies for its own
// ranks, in rank order, as if all ranks were threads. Thread-safe.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <coshard/runtime/comm/communicator.h>
#include "runtime/comm/local/announcement.h"

namespace coshard {

class LocalGroup;
struct CollectiveOp;
struct Message;
struct RemoteState;

class RemoteRanks {
 public:
  virtual ~RemoteRanks() = default;
  // Whether a world rank is a thread of this process.
  virtual bool here(int world_rank) const = 0;
  // Whether two world ranks are in one process.
  virtual bool together(int one, int other) const = 0;
  // From now on, messages of other processes for this group reach it. Without locks held.
  virtual void made(const std::shared_ptr<LocalGroup>& group) = 0;
  // For a new op of the group; `last`: the state of an earlier one, or null. With the group's lock
  // held.
  virtual std::shared_ptr<RemoteState> new_state(const LocalGroup& group,
                                                 const RemoteState* last) = 0;
  // `rank`, which is here, has written its entry: notifies its peers.
  virtual void issued(LocalGroup& group, CollectiveOp& op, int rank) = 0;
  // The rank's send buffer may be read: sends what other processes need of it.
  virtual void arrived(LocalGroup& group, CollectiveOp& op, int rank) = 0;
  // A rank here has written its entry: posts receives for what has been announced so far.
  virtual void receive(LocalGroup& group, CollectiveOp& op) = 0;
  // All ranks have arrived. True: the ranks here do only a part of the op (cut_to() has been
  // called), after which summed() is called; the op gets one more gate.
  virtual bool armed(LocalGroup& group, CollectiveOp& op) = 0;
  virtual void summed(LocalGroup& group, CollectiveOp& op) = 0;
  // `rank`, which is here, posts a send to or a recv from a rank elsewhere, which is notified.
  // Returns the tag of a send.
  virtual int posted(LocalGroup& group, const Collective& args, int rank) = 0;
  // Sends it to the process of the group's rank `to`.
  virtual void tell(const LocalGroup& group, int to, const Announcement& said) = 0;
  // A function that starts the message's transfer, called once; holds no ownership of the message.
  virtual std::function<void()> carrier(LocalGroup& group,
                                        const std::shared_ptr<Message>& message) = 0;
  // Notifies the other processes of the group (its first poison).
  virtual void poisoned(const LocalGroup& group, const std::string& cause) = 0;
  // A rank here unwinds after the poison of `group`: once this has returned, the rank's memory is
  // no longer accessed.
  virtual void abandon(const LocalGroup& group) = 0;
  // Whether data, in blocks or in an issue notice, have been received from or sent to its process
  // within the last `ns`.
  virtual bool data_move(int world_rank, std::int64_t ns) const = 0;
  // Whether its process was recently reported alive while data move slowly in some process or
  // steadily in that one, so that it may be waiting for these data.
  virtual bool lately_may_wait(int world_rank) const = 0;
  // Makes progress; returns whether anything has moved.
  virtual bool drive() = 0;
  // The same for a waiting rank: also true if something may move soon.
  virtual bool drive_while_waiting() = 0;
  virtual bool in_flight() const = 0;
};

}  // namespace coshard
