#include <utility>

#include "runtime/comm/make_communicator.h"

namespace coshard {
namespace {

class RelayWork final : public WorkState {
 public:
  explicit RelayWork(Work inner) : WorkState(inner.state()), relayed_(std::move(inner)) {}
  std::string describe() const override { return "relayed: " + WorkState::describe(); }

 private:
  Work relayed_;
};

class RelayCommunicator final : public Communicator {
 public:
  explicit RelayCommunicator(std::shared_ptr<Communicator> inner) : inner_(std::move(inner)) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string_view name() const override { return inner_->name(); }
  std::shared_ptr<Communicator> subgroup(std::span<const int> ranks, std::string name) override {
    return std::make_shared<RelayCommunicator>(inner_->subgroup(ranks, std::move(name)));
  }
  void poison(const std::string& cause) override { inner_->poison(cause); }
  std::uint64_t issued() const override { return inner_->issued(); }
  std::uint64_t order_hash() const override { return inner_->order_hash(); }
  void set_timeout(std::int64_t ns) override { inner_->set_timeout(ns); }
  void observe(ObserverSlot slot) override { inner_->observe(std::move(slot)); }

 private:
  std::shared_ptr<WorkState> start(Collective collective) override {
    return std::make_shared<RelayWork>(inner_->issue(std::move(collective)));
  }

  std::shared_ptr<Communicator> inner_;
};

}  // namespace

extern const CommunicatorBackend relay_communicator_backend;
const CommunicatorBackend relay_communicator_backend = {
    "relay", [](std::shared_ptr<Communicator> control, const std::shared_ptr<Device>&) {
      return std::shared_ptr<Communicator>(std::make_shared<RelayCommunicator>(std::move(control)));
    }};

}  // namespace coshard
