#pragma once
// Writes what the ranks did as one Chrome trace (JSON), for Perfetto or chrome://tracing: a process
// per rank, with the tracks host (modules, awaits), compute (kernels) and communication
// (collectives), and an arrow from each issue to its await. One observer per rank, used on its
// thread; written after the ranks have ended.
#include <cstdint>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <coshard/runtime/observer.h>

namespace coshard {

class ChromeTrace : public Observer {
 public:
  // Keeps the first `max_events` events; what comes later is counted and dropped.
  explicit ChromeTrace(std::size_t max_events = 200'000) : max_events_(max_events) {}

  void issued(const CommEvent& event, std::int64_t now) override;
  void ready(const CommEvent& event, std::int64_t wait_begin, std::int64_t done,
             std::int64_t now) override;
  void computed(std::string_view op, ComputeClass what, std::int64_t begin,
                std::int64_t end) override;
  void module_enter(std::string_view path) override {
    open_.push_back({std::string(path), now_ns()});
  }
  void module_exit(std::string_view path) override;
  void backward_enter() override { module_enter("backward"); }
  void backward_exit() override { module_exit("backward"); }

  enum class Track : std::uint8_t { Host, Compute, Communication };
  // A span of time on a track. `flow`: number of the collective it belongs to, 0 for none.
  struct Span {
    std::string name;
    Track track{};
    std::int64_t begin = 0, end = 0;  // steady clock, ns
    std::uint64_t flow = 0;
    std::int64_t bytes = 0;
    std::uint64_t sequence = 0;
    CallSite where{};  // of the program that led to the collective
  };
  const std::vector<Span>& spans() const { return spans_; }
  std::size_t dropped() const { return dropped_; }
  // "20us,1GB/s" when the collectives are on an emulated link; else empty.
  const std::string& link() const { return link_; }

 private:
  struct Open {
    std::string path;
    std::int64_t begin;
  };
  void keep(Span span);

  std::size_t max_events_, dropped_ = 0;
  std::vector<Span> spans_;
  std::vector<Open> open_;                                     // modules entered and not yet left
  std::unordered_map<std::uint64_t, std::int64_t> issued_at_;  // by event id
  std::uint64_t flows_ = 0;
  std::string link_;
};

// One JSON object; trace i is rank i. Times start at 0 with the earliest span. Spans of one track
// nest or are apart. The track of an emulated link is named so.
void write_chrome_trace(std::ostream& out, std::span<const ChromeTrace> ranks);

}  // namespace coshard
