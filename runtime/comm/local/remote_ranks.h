#pragma once
// The ranks of a thread group that live in other processes, as its communicators see them. A
// collective of ranks here and elsewhere is one op in each process: the entry of a rank elsewhere
// is filled from what its process sends, and whatever this process has to reduce or copy for its
// own ranks is done here, in rank order, as if all ranks were threads. Thread-safe.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace coshard {

class LocalGroup;
struct Collective;
struct CollectiveOp;
struct Message;
struct RemoteState;

class RemoteRanks {
 public:
  virtual ~RemoteRanks() = default;
  // Whether a world rank is a thread of this process.
  virtual bool here(int world_rank) const = 0;
  // From now on what other processes send for this group reaches it. Without locks held.
  virtual void made(const std::shared_ptr<LocalGroup>& group) = 0;
  // For a new op of the group; `last`: of an earlier one, or null. With the group's lock held.
  virtual std::shared_ptr<RemoteState> new_state(const LocalGroup& group,
                                                 const RemoteState* last) = 0;
  // `rank`, which is here, has written its entry: its peers are told.
  virtual void issued(LocalGroup& group, CollectiveOp& op, int rank) = 0;
  // Its send buffer may be read: what others need of it is sent.
  virtual void arrived(LocalGroup& group, CollectiveOp& op, int rank) = 0;
  // Its entry is complete and it may receive: receives what has been announced so far.
  virtual void receive(LocalGroup& group, CollectiveOp& op) = 0;
  // All ranks have arrived. True: the ranks here do a part of the op, after which summed() is
  // called, and the op has one gate more (cut_to() has been called).
  virtual bool armed(LocalGroup& group, CollectiveOp& op) = 0;
  virtual void summed(LocalGroup& group, CollectiveOp& op) = 0;
  // `rank`, which is here, posts a send to or a recv from a rank elsewhere, which is told. The tag of
  // what it sends.
  virtual int posted(LocalGroup& group, const Collective& args, int rank) = 0;
  // What moves it, called once; it refers to the message without owning it.
  virtual std::function<void()> carrier(LocalGroup& group,
                                        const std::shared_ptr<Message>& message) = 0;
  // Tells the other processes of the group (its first poison).
  virtual void poisoned(const LocalGroup& group, const std::string& cause) = 0;
  // A rank here unwinds after the poison of `group`: when this has returned no memory of its own is
  // read any more.
  virtual void abandon(const LocalGroup& group) = 0;
  // Whether data, which travel in pieces or with the news that a rank there has issued something,
  // have come from its process or gone there within the last `ns`.
  virtual bool data_move(int world_rank, std::int64_t ns) const = 0;
  // Whether its process lives, and something in the job moves over a slow link, or it moves data
  // itself without a pause: it may wait for that.
  virtual bool lately_may_wait(int world_rank) const = 0;
  // Makes progress; whether anything has moved.
  virtual bool drive() = 0;
  // The same for a rank that waits: true also if something may move soon.
  virtual bool drive_while_waiting() = 0;
  virtual bool in_flight() const = 0;
};

}  // namespace coshard
