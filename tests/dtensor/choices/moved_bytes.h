#pragma once
// What one rank issues while it lives: collectives, and the bytes that the busiest rank of each
// receives. Every algorithm is taken to be one that moves the least (Communicator's bus bandwidth):
// 2 (n-1)/n of the buffer for an all_reduce, (n-1)/n for the others.
#include <map>
#include <string>

#include <coshard/dtensor/mesh/device_mesh.h>
#include <coshard/runtime/observer.h>

namespace coshard::testing {

class MovedBytes final : public Observer {
 public:
  explicit MovedBytes(const DeviceMesh& mesh) : mesh_(mesh) { mesh_.world().add_observer(this); }
  ~MovedBytes() override { mesh_.world().remove_observer(this); }

  void issued(const CommEvent& event, std::int64_t) override {
    ++collectives_;
    ++kinds_[std::string(to_string(event.kind))];
    const std::int64_t n = ranks_of(event.communicator);
    bytes_ += (event.kind == CollectiveKind::AllReduce ? 2 : 1) * event.bytes * (n - 1) / n;
  }
  void reset() { collectives_ = 0, bytes_ = 0, kinds_.clear(); }
  int collectives() const { return collectives_; }
  std::int64_t bytes() const { return bytes_; }  // received
  // "all_gather 1, all_reduce 2"
  std::string text() const {
    std::string text;
    for (const auto& [kind, n] : kinds_)
      text += (text.empty() ? "" : ", ") + kind + ' ' + std::to_string(n);
    return text;
  }

 private:
  // "dp", or "dp_tp" for a mesh flattened over both.
  std::int64_t ranks_of(std::string_view communicator) const {
    std::int64_t ranks = 1;
    while (!communicator.empty()) {
      const auto end = std::min(communicator.find('_'), communicator.size());
      ranks *= mesh_.size(communicator.substr(0, end));
      communicator.remove_prefix(std::min(end + 1, communicator.size()));
    }
    return ranks;
  }

  DeviceMesh mesh_;
  int collectives_ = 0;
  std::int64_t bytes_ = 0;
  std::map<std::string, int> kinds_;
};

}  // namespace coshard::testing
