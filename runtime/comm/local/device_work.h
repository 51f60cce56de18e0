#pragma once
// The work handles of collectives on devices that queue their work. Waiting orders the compute
// stream after the collective and does not block the host; a wait of the host that comes to it
// later is looked after by a watch. Works are used on their rank's thread.
#include <memory>
#include <string>

#include "runtime/comm/awaited.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/local/device_job.h"
#include "runtime/comm/local/local_communicator.h"

namespace coshard {

// What a collective on devices is to a rank: a job of the group, or a message between two. Holds a
// reference to the job; does not keep the group.
class DeviceWatch final : public Watched {
 public:
  // `job` and `message`: one of them, or none when the communicator was poisoned before the issue.
  DeviceWatch(const LocalCommunicator& communicator, const Collective& collective,
              std::uint64_t number, Marks marks, Job* job, const std::shared_ptr<Message>& message);
  ~DeviceWatch() override;
  bool over() override;
  void check(std::int64_t waited_ns) override;

  const Marks& marks() const { return marks_; }
  const Awaited& awaited() const { return awaited_; }

 private:
  std::string missing_text(const LocalGroup& group) const;
  int lost(LocalGroup& group) const;

  std::weak_ptr<LocalGroup> group_;
  Awaited awaited_;
  Marks marks_;
  Job* job_;
  std::weak_ptr<Message> message_;  // which holds lanes, and they the device that holds this
  int peer_;
  std::int64_t timeout_ns_;
};

// Observers are told that it is ready when it is waited for, since nobody sees when the device is
// done: wait_begin, done and now are the same.
class DeviceWork final : public WorkState {
 public:
  // `work`: null when the communicator was poisoned before the issue; `side`: of this rank in it;
  // `kept`: its buffers.
  DeviceWork(std::shared_ptr<LocalCommunicator> communicator, std::shared_ptr<Lane> lane,
             std::shared_ptr<DeviceWatch> watch, std::shared_ptr<Message> message, DeviceJob* work,
             std::size_t side, Kept kept);
  // Buffers that the compute stream is not ordered after stay until the job is over.
  ~DeviceWork() override;
  bool ready() override;
  void wait() override;
  int parts() const override;
  bool part_ready(int part) override;
  void wait_part(int part) override;
  void check(std::int64_t waited_ns) override;
  Look look(int) override { return Look::Over; }  // waiting does not block the host
  void given_up() override;
  void watch(const CommEvent& event) { event_ = event; }
  const CommEvent& event() const { return event_; }

 private:
  std::uint32_t mark_of(int part) const;
  bool passed(std::uint32_t mark) const;
  void order_after(std::uint32_t mark);

  std::shared_ptr<LocalCommunicator> communicator_;
  std::shared_ptr<Lane> lane_;
  std::shared_ptr<DeviceWatch> watch_;  // keeps a job
  std::shared_ptr<Message> message_;    // null for a job
  DeviceJob* work_;
  std::size_t side_;
  Kept kept_;
  CommEvent event_;  // id 0: nobody watched the issue
  bool watched_ = false, waited_ = false;
};

}  // namespace coshard
