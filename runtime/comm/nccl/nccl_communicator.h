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
// NCCL's calls may return while they are in progress; an operation that does is posted: whoever
// touches it next asks how far it is, and nothing else is given to NCCL before.
//
// Operations of different communicators on one device follow each other through an event, unless
// NCCL (2.26 or newer) is told by NCCL_LAUNCH_ORDER_IMPLICIT=1 to keep their order itself.
#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/nccl/nccl_handle.h"
#include "runtime/comm/nccl/nccl_operation.h"
#include "runtime/error.h"

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
  bool implicit_order = false;          // NCCL keeps the order of communicators
  std::shared_ptr<Event> last;          // of the last operation
  NcclCommunicator* posting = nullptr;  // which one has an operation in progress
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

 private:
  std::shared_ptr<WorkState> start(Collective collective) override;
  friend std::shared_ptr<NcclCommunicator> make_nccl_communicator(
      std::shared_ptr<Communicator> control, const std::shared_ptr<Device>& device,
      NcclOptions options);
  struct Window {
    void* data;
    std::size_t bytes;
    ncclWindow_t window;
    std::shared_ptr<void> memory;
  };
  void prepare();
  void connect();
  void begin_watch();
  // Until that one is no longer in progress.
  void await_connection(const NcclHandle& handle);
  void connection_failed(const std::string& what);
  std::shared_ptr<NcclCommunicator> child(std::span<const int> ranks, std::string name);

  std::shared_ptr<NcclFlight> announce(const Collective& collective);
  NcclPlan plan(const Collective& collective, NcclOperation& operation);
  std::string_view path_of(const NcclPlan& plan) const;
  bool in_window(const void* data) const;
  void track(const std::shared_ptr<NcclFlight>& flight);

  void settle();          // nothing of the domain is in progress any more
  void flush_messages();  // hands them over
  void launch(const std::shared_ptr<NcclOperation>& operation);
  void start_round();
  ncclResult_t call(const NcclCall& call);
  bool advance();  // of posting_; true when there is nothing in progress
  void complete();

  void check(NcclFlight& flight, std::int64_t waited_ns);
  void check_announced(NcclFlight& flight, std::int64_t waited_ns);
  template <class Done>
  void block(NcclFlight& flight, const Done& done);
  void settled(NcclFlight& flight, std::int64_t begin_ns);
  [[noreturn]] void give_up(NcclFlight& flight, ErrorKind kind, const std::string& cause);
  std::string abort();
  std::string text_of(const NcclFlight& flight) const;
  std::string title() const;

  std::shared_ptr<Communicator> control_;
  std::shared_ptr<Communicator> setup_;  // of the same ranks; outlives control_ in destruction
  Work connected_;                       // on setup_: all ranks have begun
  std::shared_ptr<NcclDomain> domain_;
  std::unique_ptr<NcclHandle> handle_;
  std::unique_ptr<Stream> stream_;
  std::int64_t timeout_ns_ = 0;
  ObserverSlot slot_;
  std::uint64_t issued_ = 0, messages_issued_ = 0, order_hash_ = 0;
  std::shared_ptr<NcclOperation> posting_;             // in progress
  std::vector<std::shared_ptr<NcclFlight>> messages_;  // not handed over yet
  std::deque<std::shared_ptr<NcclFlight>> in_flight_;  // in order
  std::vector<Window> windows_;
  std::string left_behind_;  // what the abort could not do
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
