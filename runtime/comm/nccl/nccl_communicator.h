#pragma once
// Collectives between devices by NCCL. Used on the rank's thread, in program order, also across the
// communicators of one device: NCCL needs one thread per device, and one order of the operations
// of all communicators, equal on all ranks. Kept alive by its work handles.
//
// Each communicator has a stream of the highest priority. An operation waits there for what the
// compute stream has been given so far, and a wait makes the compute stream wait for the
// operation; the host does not wait. Each operation is announced over `control` as well, a
// communicator of the same ranks through host memory: it compares what the ranks call, knows who
// is missing or gone, and holds the first cause of a failure. Send and Recv are handed to NCCL
// together, when one of them is waited for or a collective follows, so that ranks that send to each
// other do not wait for each other; between two ranks their order among the collectives must be
// the same on both.
//
// NCCL's calls block: until the ranks have met, and at the first use of an algorithm or a peer
// until the others come too; then the operation is on the stream. The watchdog (nccl_watchdog.h)
// ends a call, or what is on the device, when a peer fails or it takes too long: it keeps the error
// for the rank's next wait, and begins the abort.
//
// Operations of different communicators on one device follow each other through an event, unless
// NCCL (2.26 or newer) is told by NCCL_LAUNCH_ORDER_IMPLICIT=1 to keep their order itself.
#include <atomic>
#include <chrono>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <coshard/runtime/comm/communicator.h>
#include <coshard/runtime/error.h>
#include "runtime/comm/nccl/nccl_handle.h"
#include "runtime/comm/nccl/nccl_operation.h"

namespace coshard {

class CudaDevice;
class NcclCommunicator;

struct NcclOptions {
  // All-gathers and all-to-alls between buffers of symmetric_buffer() take no SMs. Needs NCCL
  // 2.28.3, else Error{Unsupported}.
  bool copy_engine = false;
  // Every all_gather arrives shard by shard, by sends and receives: own first, then rank + 1, ...
  bool by_parts = false;
  // How long an abort may take before its thread is left behind.
  std::chrono::nanoseconds abort_grace = std::chrono::seconds(5);
};

// What the communicators of one rank and device share: the order of their operations.
struct NcclDomain {
  std::shared_ptr<CudaDevice> device;
  NcclOptions options;
  bool implicit_order = false;  // NCCL keeps the order of communicators
  std::shared_ptr<Event> last;  // of the last operation
  std::vector<std::weak_ptr<NcclCommunicator>> with_messages;  // not handed over yet
};

class NcclCommunicator final : public Communicator,
                               public std::enable_shared_from_this<NcclCommunicator> {
 public:
  // By all ranks of `control`; use make_nccl_communicator.
  NcclCommunicator(std::shared_ptr<Communicator> control, std::shared_ptr<NcclDomain> domain);
  ~NcclCommunicator() override;

  int rank() const override { return control_->rank(); }
  int size() const override { return control_->size(); }
  std::string_view name() const override { return control_->name(); }
  std::shared_ptr<Communicator> subgroup(std::span<const int> ranks, std::string name) override;
  std::shared_ptr<Communicator> split(std::span<const int> ranks, std::string name) override;
  void poison(const std::string& cause) override;
  std::uint64_t issued() const override { return issued_; }
  std::uint64_t order_hash() const override { return order_hash_; }
  void set_timeout(std::int64_t ns) override;
  void observe(ObserverSlot slot) override { slot_ = std::move(slot); }

  // Memory of the device in a window that all ranks have at the same offset: by all ranks, with
  // the same size. Error{Unsupported}: NCCL older than 2.28.3, or devices that cannot do it.
  std::shared_ptr<Buffer> symmetric_buffer(std::size_t bytes);

  // For the work handles and the device's waits. Each throws the typed error of a failure.
  void wait(NcclFlight& flight);
  void wait_part(NcclFlight& flight, int part);
  bool part_there(NcclFlight& flight, int part);  // -1: all of it
  // What is in flight, after a wait of the host of so long.
  void look(std::int64_t waited_ns);
  // The watchdog's thread: fails what has gone wrong meanwhile, or takes too long.
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
  void meet();  // all ranks have come to this
  void connect();
  void begin_watch();
  std::shared_ptr<NcclCommunicator> child(std::span<const int> ranks, std::string name);
  std::shared_ptr<Event> end_of_all();
  bool comes_off(const Event& last);
  std::string destroy();

  std::shared_ptr<NcclFlight> announce(const Collective& collective);
  // Of what is recorded now: its collectives here are announced again in each launch.
  class Replays;
  void keep_for_replays(const Collective& told);
  NcclPlan plan(const Collective& collective, NcclOperation& operation);
  std::string_view path_of(const NcclPlan& plan) const;
  bool in_window(const void* data) const;
  void track(const std::shared_ptr<NcclFlight>& flight);

  void flush_messages();      // hands them over
  void flush_all_messages();  // of the domain: a peer may need one before it comes to what follows
  void launch(NcclFlight& flight);
  void hand_over(const std::vector<NcclCall>& calls, NcclFlight& flight);
  ncclResult_t call(const NcclCall& call, ncclComm_t comm) const;
  // One call to NCCL that is no operation.
  void call(const std::string& what, const std::function<ncclResult_t(ncclComm_t)>& act);
  void settled(NcclFlight& flight, std::int64_t begin_ns);

  // With mutex_. The first failure is kept; the peers hear of it, and the abort begins.
  void failed(std::exception_ptr error, const std::string& cause);
  void failed(ErrorKind kind, const std::string& cause) {
    failed(std::make_exception_ptr(Error(kind, cause)), cause);
  }
  void look_at(const Work& announced, std::int64_t waited_ns);
  void examine(NcclFlight& flight, std::int64_t waited_ns);
  void examine_waits(std::int64_t now);
  // Without it: throws what was kept, the first time as it is; nothing when none has failed.
  void throw_failure();
  void end_before_memory_goes() noexcept;
  void check(NcclFlight& flight);  // of a wait: throws also when it failed earlier
  std::string failure_text(const NcclFlight& flight, const std::string& cause) const;
  std::string abort();
  std::string text_of(const NcclFlight& flight) const;
  std::string title() const;

  std::shared_ptr<Communicator> control_;
  std::shared_ptr<Communicator> setup_;  // of the same ranks; outlives control_ in destruction
  Work connected_;                       // on setup_: all ranks have come; fails with them
  std::shared_ptr<NcclDomain> domain_;
  std::unique_ptr<NcclHandle> handle_;
  std::unique_ptr<Stream> stream_;
  std::atomic<std::int64_t> timeout_ns_{0};
  ObserverSlot slot_;
  std::uint64_t issued_ = 0, messages_issued_ = 0, order_hash_ = 0;
  std::vector<std::shared_ptr<NcclFlight>> messages_;  // not handed over yet
  std::vector<std::shared_ptr<Window>> windows_;
  std::weak_ptr<Replays> replays_;   // of the latest recording
  std::uint64_t recording_ = 0;      // its number
  std::shared_ptr<Event> replayed_;  // the end of the latest launch of a graph; null: none
  std::string left_behind_;          // what the abort could not do

  // Of the rank's thread and the watchdog's: what is below, connected_, and every use of control_
  // and its work handles. Held while neither waits for the other, and not inside of NCCL.
  std::mutex mutex_;
  std::deque<std::shared_ptr<NcclFlight>> in_flight_;  // in order; let go of by the rank's thread
  bool failed_ = false;
  std::exception_ptr failure_;  // nobody has been told yet
  std::string cause_;
};

// By all ranks of `control`, on each one's thread. Error{Unsupported}: a device that is no CUDA
// device, or an NCCL that is too old for it or for an option; Error{CommFailed}, Error{Timeout}.
std::shared_ptr<NcclCommunicator> make_nccl_communicator(std::shared_ptr<Communicator> control,
                                                         const std::shared_ptr<Device>& device,
                                                         NcclOptions options = NcclOptions());

// How a collective was handed over: "copy engine", or "SM kernel requested" (then NCCL chooses).
// Empty while it is not, and for work handles of others.
std::string_view nccl_path(const Work& work);

}  // namespace coshard
