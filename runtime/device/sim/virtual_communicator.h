#pragma once
// The communicator of the only rank of a world that runs (representative.h): its peers are assumed
// to be at the same point, so a collective begins when it is issued and ends when its link model
// says. Moves no data. One thread.
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <coshard/runtime/comm/communicator.h>
#include "runtime/device/sim/virtual_device.h"

namespace coshard {

// The link of a communicator, by its name and its members (ranks of the world).
using LinkOf = std::function<LinkModel(const std::string& name, const std::vector<int>& members)>;

// State shared by all communicators of a rank. Outlives them.
struct VirtualNetwork {
  LinkOf link_of;
  std::shared_ptr<VirtualDevice> device = {};
  bool gathers_by_shards = true;
  std::map<std::string, std::shared_ptr<SharedLink>> links = {};  // by the name of the model
  std::uint64_t events = 0;
};

class VirtualCommunicator final : public Communicator,
                                  public std::enable_shared_from_this<VirtualCommunicator> {
 public:
  VirtualCommunicator(std::shared_ptr<VirtualNetwork> network, std::vector<int> members, int rank,
                      std::string name);
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  std::string_view name() const override { return name_; }
  bool gathers_by_shards() const override { return network_->gathers_by_shards; }
  std::shared_ptr<Communicator> subgroup(std::span<const int> ranks, std::string name) override;
  void poison(const std::string& cause) override { poisoned_ = cause; }
  std::uint64_t issued() const override { return issued_; }
  std::uint64_t order_hash() const override { return order_hash_; }
  void set_timeout(std::int64_t) override {}
  void observe(ObserverSlot slot) override { slot_ = std::move(slot); }

  // For its works.
  VirtualDevice& device() const { return *network_->device; }
  SharedLink& link() const { return *link_; }
  Observer* observer() const { return slot_ ? *slot_ : nullptr; }
  void throw_if_poisoned() const;

 private:
  std::shared_ptr<WorkState> start(Collective collective) override;

  std::shared_ptr<VirtualNetwork> network_;
  std::vector<int> members_;
  int rank_;
  std::string name_, poisoned_;
  LinkModel model_;
  std::shared_ptr<SharedLink> link_;
  ObserverSlot slot_;
  std::uint64_t issued_ = 0, order_hash_ = 0;
};

}  // namespace coshard
