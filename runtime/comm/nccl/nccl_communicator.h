#pragma once
// Collectives between devices by NCCL. Used on the rank's thread, in program order, which also
// holds across the communicators of one device: NCCL needs one thread per device, and the same
// order of operations over all communicators on all ranks. Kept alive by its work handles.
//
// Each communicator has a stream of the highest priority. An operation waits there for the work
// queued on the compute stream so far, and a wait makes the compute stream wait for the operation;
// the host does not block. Each operation, or launch of a graph of them, is also announced over
// `control`, a communicator of the same ranks through host memory: it compares the ranks' calls
// (between processes, at one message each: local/announcements.h), knows which ranks are missing or
// have left, and holds the first cause of a failure. Pending sends and recvs are issued to NCCL as
// one group, when one of them is waited for or a collective follows, so that ranks that send to
// each other do not deadlock; between two ranks, their order relative to collectives must be the
// same on both.
//
// NCCL calls may block: during initialisation, and at the first use of an algorithm or a peer,
// until the other ranks have joined; then the operation is on the stream. The watchdog
// (nccl_watchdog.h) ends a call, or an operation on the device, if a peer fails or the deadline
// expires: it keeps the error for the rank's next wait, and begins the abort.
//
// Operations of different communicators on one device are ordered by an event, unless NCCL is known
// to keep their order itself (nccl_order.h).
#include <atomic>
#include <chrono>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <coshard/runtime/comm/communicator.h>
#include <coshard/runtime/error.h>
#include "runtime/comm/nccl/nccl_handle.h"
#include "runtime/comm/nccl/nccl_operation.h"
#include "runtime/comm/nccl/nccl_order.h"

namespace coshard {

class CudaDevice;
class NcclCommunicator;
class NcclReplays;

struct NcclOptions {
  // All-gathers and all-to-alls between buffers from symmetric_buffer() use no SMs. Needs NCCL
  // 2.28.3, else Error{Unsupported}.
  bool copy_engine = false;
  // How long an abort may take before its thread is abandoned.
  std::chrono::nanoseconds abort_grace = std::chrono::seconds(5);
};

// State shared by the communicators of one rank and device: the order of their operations.
struct NcclDomain {
  std::shared_ptr<CudaDevice> device;
  NcclOptions options;
  std::optional<NcclOrder> order;  // of all communicators; the first of them decides
  std::shared_ptr<Event> last;     // completion of the last operation
  std::vector<std::weak_ptr<NcclCommunicator>> with_messages;  // not issued to NCCL yet
};

class NcclCommunicator final : public Communicator,
                               public std::enable_shared_from_this<NcclCommunicator> {
 public:
  // Called by all ranks of `control`; use make_nccl_communicator.
  NcclCommunicator(std::shared_ptr<Communicator> control, std::shared_ptr<NcclDomain> domain);
  ~NcclCommunicator() override;

  int rank() const override { return control_->rank(); }
  int size() const override { return control_->size(); }
  std::string_view name() const override { return control_->name(); }
  std::shared_ptr<Communicator> subgroup(std::span<const int> ranks, std::string name) override;
  std::shared_ptr<Communicator> split(std::span<const int> ranks, std::string name) override;
  void poison(const std::string& cause) override;
  std::uint64_t issued() const override { return control_->issued(); }
  std::uint64_t order_hash() const override { return control_->order_hash(); }
  void set_timeout(std::int64_t ns) override;
  void observe(ObserverSlot slot) override { slot_ = std::move(slot); }

  // Device memory in a symmetric window of all ranks: called by all ranks, with the same size.
  // Error{Unsupported}: NCCL older than 2.28.3, or devices without support.
  std::shared_ptr<Buffer> symmetric_buffer(std::size_t bytes);

  // For the work handles and the device's waits. Each throws the typed error of a failure.
  void wait(NcclFlight& flight);
  void wait_part(NcclFlight& flight, int part);
  bool part_there(NcclFlight& flight, int part);  // -1: all parts
  // Checks operations in flight, after the host has waited for `waited_ns`.
  void look(std::int64_t waited_ns);
  // Whether all of its collectives have been compared with the peers', and no failure is untold.
  bool settled();
  // On the watchdog's thread: fails operations that have gone wrong or take too long.
  void watch() noexcept;

 private:
  std::shared_ptr<WorkState> start(Collective collective) override;
  friend std::shared_ptr<NcclCommunicator> make_nccl_communicator(
      std::shared_ptr<Communicator> control, const std::shared_ptr<Device>& device,
      NcclOptions options);
  struct Window {  // on the heap: NCCL stores into it
    void* data;
    std::size_t bytes;
    std::shared_ptr<void> memory;
    ncclWindow_t window = nullptr;
  };
  void prepare();
  void meet();  // waits for all ranks
  void connect();
  void begin_watch();
  std::shared_ptr<NcclCommunicator> child(std::span<const int> ranks, std::string name);
  std::shared_ptr<Event> end_of_all();
  bool comes_off(const Event& last);
  std::string destroy();

  std::shared_ptr<NcclFlight> announce(const Collective& collective);
  friend class NcclReplays;
  void keep_for_replays(const Collective& told);
  NcclPlan plan(const Collective& collective, NcclOperation& operation);
  std::string_view path_of(const NcclPlan& plan) const;
  bool in_window(const void* data) const;
  void track(const std::shared_ptr<NcclFlight>& flight);

  void flush_messages();      // issues them to NCCL
  void flush_all_messages();  // of the domain: a peer may need one to get to the next operation
  void launch(NcclFlight& flight);
  void hand_over(const std::vector<NcclCall>& calls, NcclFlight& flight);
  ncclResult_t call(const NcclCall& call, ncclComm_t comm) const;
  // One NCCL call that is not an operation.
  void call(const std::string& what, const std::function<ncclResult_t(ncclComm_t)>& act);
  // Later work on the compute stream comes after `end`.
  void order_after(const NcclFlight& flight, const std::shared_ptr<Event>& end);
  void settled(NcclFlight& flight, std::int64_t begin_ns);

  // With mutex_ held. Keeps the first failure, notifies the peers, and begins the abort.
  void failed(std::exception_ptr error, const std::string& cause);
  void failed(ErrorKind kind, const std::string& cause) {
    failed(std::make_exception_ptr(Error(kind, cause)), cause);
  }
  void look_at(WorkState& announced, std::int64_t waited_ns);
  std::int64_t timeout_of(const NcclFlight& flight) const {
    return flight.limit.value_or(timeout_ns_.load());
  }
  void examine(NcclFlight& flight, std::int64_t waited_ns);
  void examine_waits(std::int64_t now);
  // Without mutex_: throws the kept failure, once; returns if there is none.
  void throw_failure();
  void end_before_memory_goes() noexcept;
  void check(NcclFlight& flight);  // for waits: also throws an earlier failure
  std::string failure_text(const NcclFlight& flight, const std::string& cause) const;
  std::string abort();
  std::string text_of(const NcclFlight& flight) const;
  std::string title() const;

  std::shared_ptr<Communicator> control_;
  std::shared_ptr<Communicator> setup_;   // same ranks; outlives control_ in destruction
  Work connected_;                        // on setup_: meet(); fails if a rank does
  std::shared_ptr<WorkState> announced_;  // mutex: the last collective on control_
  std::shared_ptr<NcclDomain> domain_;
  std::unique_ptr<NcclHandle> handle_;
  std::unique_ptr<Stream> stream_;
  std::atomic<std::int64_t> timeout_ns_{0};
  ObserverSlot slot_;
  std::uint64_t messages_issued_ = 0;
  std::vector<std::shared_ptr<NcclFlight>> messages_;  // not issued to NCCL yet
  std::vector<std::shared_ptr<Window>> windows_;
  std::weak_ptr<NcclReplays> replays_;  // of the latest recording
  std::uint64_t recording_ = 0;         // number of that recording
  std::uint64_t recordings_ = 0;        // with collectives, so far
  std::shared_ptr<Event> replayed_;     // completion of the latest graph launch; null: none
  std::string left_behind_;             // what the abort failed to do

  // Between the rank's thread and the watchdog: guards the members below, connected_, and every use
  // of control_ and its work handles. Never held while waiting for the other thread, or in a
  // blocking NCCL call.
  // Without it: control_->make_room(), which waits.
  std::mutex mutex_;
  std::deque<std::shared_ptr<NcclFlight>> in_flight_;  // in order; released by the rank's thread
  bool failed_ = false;
  std::exception_ptr failure_;  // not thrown yet
  std::string cause_;
};

// Called by all ranks of `control`, each on its thread. Error{Unsupported}: not a CUDA device, or
// an NCCL that is too old for it or for an option; Error{CommFailed}, Error{Timeout}.
std::shared_ptr<NcclCommunicator> make_nccl_communicator(std::shared_ptr<Communicator> control,
                                                         const std::shared_ptr<Device>& device,
                                                         NcclOptions options = NcclOptions());

// How a collective was issued to NCCL: "copy engine", or "SM kernel requested" (NCCL then chooses).
// Empty until it is issued, and for work handles of other communicators.
std::string_view nccl_path(const Work& work);

}  // namespace coshard
