#pragma once
// The tickets of a LocalCommunicator: waiting helps with the transfer, spins briefly, then sleeps.
// Owned by the Ticket handles of one rank, used on its thread.
#include <memory>
#include <string>

#include "runtime/comm/communicator.h"
#include "runtime/comm/local/awaited.h"
#include "runtime/comm/local/local_communicator.h"

namespace coshard {

class LocalTicket : public TicketState {
 public:
  bool ready() final;
  void wait() final;
  int parts() const override { return 1; }
  bool part_ready(int part) override;
  void wait_part(int part) override;
  void check(std::int64_t waited_ns) final;

  void watch(const CommEvent& event) { event_ = event; }
  const CommEvent& event() const { return event_; }

 protected:
  LocalTicket(std::shared_ptr<LocalCommunicator> communicator, const Collective& collective,
              std::uint64_t number);

  virtual bool complete() const = 0;
  virtual bool help() = 0;       // does a share of the transfer; false: nothing to do now
  virtual int lost() const = 0;  // a rank this waits for that has left; -1: none
  virtual std::string missing_text() const = 0;  // "arrived: 0; missing: 1 (...)"
  virtual std::int64_t over_ns() const = 0;

  template <class Done, class Help>
  void block(const Done& done, const Help& help, bool for_part);
  void check_part(int part) const;
  void settle(std::int64_t begin_ns);

  std::shared_ptr<LocalCommunicator> communicator_;
  Awaited awaited_;

 private:
  [[noreturn]] void fail_poisoned();
  [[noreturn]] void fail_timeout(std::int64_t begin_ns);
  void fail_if_lost();

  CommEvent event_;  // id 0: nobody watched the issue
  bool settled_ = false;
};

class JobTicket final : public LocalTicket {
 public:
  // job: null when the communicator was poisoned before the issue.
  JobTicket(std::shared_ptr<LocalCommunicator> communicator, const Collective& collective,
            std::uint64_t number, Job* job);
  ~JobTicket() override;
  int parts() const override;
  bool part_ready(int part) override;
  void wait_part(int part) override;

 private:
  bool complete() const override { return job_ != nullptr && job_->over.load(); }
  bool help() override;
  int lost() const override { return communicator_->group().lost(*job_); }
  std::string missing_text() const override;
  std::int64_t over_ns() const override { return job_->over_ns.load(std::memory_order_relaxed); }
  bool part_complete(int part) const;
  bool help_part(int part);

  Job* job_;
  bool early_;  // an all_gather that is large enough to start before all are there
};

class MessageTicket final : public LocalTicket {
 public:
  MessageTicket(std::shared_ptr<LocalCommunicator> communicator, const Collective& collective,
                std::shared_ptr<Message> message);

 private:
  bool complete() const override { return message_->over(); }
  bool help() override;
  int lost() const override;
  std::string missing_text() const override;
  std::int64_t over_ns() const override {
    return message_->over_ns.load(std::memory_order_relaxed);
  }

  std::shared_ptr<Message> message_;
  int peer_;
};

}  // namespace coshard
