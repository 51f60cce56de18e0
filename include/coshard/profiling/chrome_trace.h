#pragma once
// Writes what the ranks did as one Chrome trace (JSON), for Perfetto or chrome://tracing: a process
// per rank, with the tracks host (named ranges, modules, awaits), compute (kernels, with their
// inputs) and communication (collectives; a track for each communicator), an arrow from each issue
// to its await, and two counters: bytes in flight, and the time exposed so far, in which the rank
// stood still in an await. A collective that nobody awaited is drawn at its issue, without an arrow. On a device that queues its work, kernels, collectives and awaits are
// where its streams had them, awaits on the compute track; modules and ranges are the host's. The
// root module is called "model". One observer per rank, used on its thread; written after the ranks
// have ended. `coshard trace report` reads it.
#include <cstdint>
#include <map>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <coshard/runtime/observer.h>

#pragma GCC visibility push(default)
namespace coshard {

class ChromeTrace : public Observer {
 public:
  // Keeps the first `max_events` events; later ones are counted and dropped.
  explicit ChromeTrace(std::size_t max_events = 200'000) : max_events_(max_events) {}

  void issued(const CommEvent& event, std::int64_t now) override;
  void ready(const CommEvent& event, std::int64_t wait_begin, std::int64_t done,
             std::int64_t now) override;
  void computing(std::string_view /*op*/, ComputeClass /*what*/,
                 const DescribeInputs& inputs) override {
    inputs_.push_back(inputs ? inputs() : "");
  }
  void computed(std::string_view op, ComputeClass what, std::int64_t begin,
                std::int64_t end) override;
  void ran(const CommEvent& event, std::int64_t begin, std::int64_t end) override;
  void stalled(const CommEvent& event, std::int64_t begin, std::int64_t end) override;
  bool times_kernels() const override { return true; }
  void queued(std::uint64_t kernel) override;
  void kernel_ran(std::uint64_t kernel, std::int64_t begin, std::int64_t end) override;
  void module_enter(std::string_view path) override {
    open(module_name(path), std::string(module_name(path)));
  }
  void module_exit(std::string_view path) override { range_exit(module_name(path)); }
  void backward_enter() override { range_enter("backward"); }
  void backward_exit() override { range_exit("backward"); }
  void range_enter(std::string_view name) override { open(name, ""); }
  void range_exit(std::string_view name) override;

  enum class Track : std::uint8_t { Host, Compute, Communication };
  // A span of time on a track. `flow`: number of the collective it belongs to, 0 for none.
  struct Span {
    std::string name;
    Track track{};
    std::int64_t begin = 0, end = 0;  // steady clock, ns
    std::uint64_t flow = 0;           // 0 also of the earlier pieces of an await
    std::int64_t bytes = 0;
    std::uint64_t sequence = 0;
    CallSite where{};     // the user's call site that led to the collective
    ComputeClass what{};  // of a kernel
    std::string inputs;   // of a kernel: "f32[8,512] f32[512,256]"
    std::string module;   // the one that it is, or that issued it; empty: none
    std::string communicator;
  };
  const std::vector<Span>& spans() const { return spans_; }
  std::size_t dropped() const { return dropped_; }
  // "20us,1GB/s" if the collectives are on an emulated link; else empty.
  const std::string& link() const { return link_; }

 protected:
  // The clock for ranges and modules; other events come with their time.
  virtual std::int64_t now() const { return rank_now_ns(); }

 private:
  friend struct ObserverJson;
  struct Open {
    std::string name;
    std::int64_t begin;
    std::string module;
    std::uint64_t branch;
  };
  struct Issue {
    std::int64_t at;
    std::string module;
    std::optional<std::size_t> span = std::nullopt;  // none: there was no room
    std::int64_t stall_begin = 0, stall_end = 0;  // the last one, on a device that queues its work
  };
  static std::string_view module_name(std::string_view path) {
    return path.empty() ? "model" : path;
  }
  void keep(Span span);
  void keep_issue(const CommEvent& event, Issue& issue);
  void keep_collective(const CommEvent& event, const Issue& issue, std::int64_t done, Span wait);
  void keep_wait(const CommEvent& event, const Issue& issue, Span wait);
  static void describe(Span& span, const CommEvent& event, const Issue& issue);
  void open(std::string_view name, std::string module);

  std::size_t max_events_, dropped_ = 0;
  std::vector<Span> spans_;
  std::vector<Open> open_;                           // ranges and modules entered and not yet left
  std::vector<std::string> inputs_;                  // of running kernels
  std::unordered_map<std::uint64_t, Issue> issues_;  // by event id
  bool kept_kernel_ = false;                         // the last one is the last span
  std::unordered_map<std::uint64_t, std::size_t> untimed_;  // kernels, by number: their spans
  std::uint64_t flows_ = 0;
  std::string link_;
};

// What was traced, by name: {{"plan", "tp"}, {"batch", "4"}}. `coshard trace report` refuses a
// baseline that differs in any of these, except "overlap", which must be "off", "weave", which must
// be "1", and "simulated", which both have or neither, in any words. "link" is the link that the
// report names; with another there is no E.
using TraceAbout = std::map<std::string, std::string>;

// One JSON object; trace i is rank first_rank + i. Times start at 0 with the earliest span. Spans
// of one track nest or are disjoint. The name of an emulated link's track says so. `coshard trace
// merge` combines several such files, which need their clock_offset (gather.h) if they are from
// different hosts.
void write_chrome_trace(std::ostream& out, std::span<const ChromeTrace> ranks, int first_rank = 0,
                        std::optional<std::int64_t> clock_offset = std::nullopt,
                        const TraceAbout& about = {});

}  // namespace coshard
#pragma GCC visibility pop
