#pragma once
// Annotates a rank's work for Nsight Systems, through NVTX 3: ranges of the domain `coshard` in the
// categories redistribute (from issue to await), wait, compute and module. They are start/end
// ranges, because a coroutine may be resumed amid other work; all are ended by the observer's
// destructor at the latest. Messages and layouts are registered strings. One observer per rank,
// created and used on its thread.
//
// Nothing needs to be enabled: if a tool is attached (`nsys profile -t nvtx`, or one named by
// NVTX_INJECTION64_PATH), each World gets one of these; otherwise none is created.
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <coshard/runtime/observer.h>

namespace coshard {

// The payload of a range of the category redistribute (NVTX schema of the same name). Texts are
// handles of registered strings; `from` and `to` are empty if no layout changes.
struct NvtxCollective {
  std::uint64_t sequence;  // on its communicator; equal on all ranks
  std::int64_t bytes;      // the larger of this rank's two buffers
  const void* dimension;   // of the mesh
  const void* from;        // layouts: "S(0)", "R"
  const void* to;
};

class NvtxTrace final : public Observer {
 public:
  explicit NvtxTrace(int rank);  // names the calling thread "rank N"
  ~NvtxTrace() override;
  NvtxTrace(const NvtxTrace&) = delete;
  NvtxTrace& operator=(const NvtxTrace&) = delete;

  void issued(const CommEvent& event, std::int64_t now) override;
  void awaiting(const CommEvent& event) override;
  void stalled(const CommEvent& event, std::int64_t begin, std::int64_t end) override;
  void ready(const CommEvent& event, std::int64_t wait_begin, std::int64_t done,
             std::int64_t now) override;
  void computing(std::string_view op, ComputeClass what, const DescribeInputs&) override;
  void computed(std::string_view op, ComputeClass what, std::int64_t begin,
                std::int64_t end) override;
  void module_enter(std::string_view path) override;
  void module_exit(std::string_view path) override;
  void backward_enter() override { module_enter("backward"); }
  void backward_exit() override { module_exit("backward"); }
  void range_enter(std::string_view name) override { module_enter(name); }
  void range_exit(std::string_view name) override { module_exit(name); }

 private:
  using Range = std::uint64_t;
  struct Named {
    std::string path;
    Range range;
  };
  struct Labelled {  // the registered strings of one label, "S(0)->R"
    const void *message, *waiting, *from, *to;
  };
  const void* text(std::string_view words);
  const Labelled& labelled(const CommEvent& event);

  std::map<std::string, const void*, std::less<>> texts_;
  std::array<std::map<std::string, Labelled, std::less<>>, 9> labels_;  // by CollectiveKind
  std::unordered_map<std::uint64_t, Range> in_flight_, waits_;          // by event id
  std::vector<Range> kernels_;                                          // the innermost last
  std::vector<Named> modules_;                                          // entered and not yet left
};

// Null if no tool is attached to this process.
std::unique_ptr<Observer> make_nvtx_trace(int rank);

}  // namespace coshard
