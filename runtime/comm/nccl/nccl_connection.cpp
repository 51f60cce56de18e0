// Setup and teardown of an NcclCommunicator.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <thread>

#include <coshard/runtime/error.h>
#include "runtime/comm/make_communicator.h"
#include "runtime/comm/nccl/nccl_api.h"
#include "runtime/comm/nccl/nccl_communicator.h"
#include "runtime/comm/nccl/nccl_watchdog.h"
#include "runtime/device/cuda/cuda_device.h"

namespace coshard {
namespace {

// Checked by the device's waits as long as the communicator lives.
class NcclWatch final : public Watched {
 public:
  explicit NcclWatch(std::weak_ptr<NcclCommunicator> communicator)
      : communicator_(std::move(communicator)) {}
  bool over() override { return communicator_.expired(); }
  void check(std::int64_t waited_ns) override {
    if (const auto alive = communicator_.lock()) alive->look(waited_ns);
  }

 private:
  std::weak_ptr<NcclCommunicator> communicator_;
};

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

NcclCommunicator::NcclCommunicator(std::shared_ptr<Communicator> control,
                                   std::shared_ptr<NcclDomain> domain)
    : control_(std::move(control)), domain_(std::move(domain)) {
  setup_ = control_->subgroup(all_ranks(size()), std::string(name()));
  handle_ = std::make_unique<NcclHandle>(title());
  timeout_ns_ = domain_->device->timeout_ns();
}

void NcclCommunicator::set_timeout(std::int64_t ns) {
  const std::scoped_lock lock(mutex_);
  timeout_ns_ = ns;
  control_->set_timeout(ns);
  setup_->set_timeout(ns);
}

void NcclCommunicator::begin_watch() {
  domain_->device->watch(std::make_shared<NcclWatch>(weak_from_this()));
  begin_nccl_watch(*this);
}

// Local setup, before any wait for peers; waiting peers are notified if it fails.
void NcclCommunicator::prepare() {
  require_nccl(NcclFeature::Config, "ncclCommInitRankConfig");
  if (domain_->options.copy_engine)
    require_nccl(NcclFeature::CopyEngine, "copy-engine collectives");
  const char* implicit = std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
  domain_->implicit_order = implicit != nullptr && std::strcmp(implicit, "1") == 0 &&
                            nccl_has(NcclFeature::ImplicitOrder);
  domain_->device->make_current();
  stream_ = domain_->device->make_stream(StreamKind::Communication);
}

// Waits for all ranks before any of them blocks inside NCCL, so that a missing rank is reported by
// name.
void NcclCommunicator::meet() {
  Work all = setup_->issue(Collective());
  all.wait();
  const std::scoped_lock lock(mutex_);
  connected_ = std::move(all);
}

// Broadcasts rank 0's id, then initialises on all ranks.
void NcclCommunicator::connect() {
  try {
    prepare();
    ncclUniqueId id{};
    if (rank() == 0) check_nccl(nccl().GetUniqueId(&id), str_cat("ncclGetUniqueId for ", title()));
    Collective c;
    c.kind = CollectiveKind::Broadcast;
    c.dtype = DType::Bool;
    c.extent = sizeof id;
    c.send = c.recv = &id;
    c.label = "NCCL id";
    setup_->issue(c).wait();
    meet();
    handle_->connect(id, size(), rank(), domain_->options.copy_engine);
  } catch (const Error& error) {
    poison(error.what());
    throw_failure();  // a failure the watchdog found is the cause of NCCL's error
    throw;
  }
}

std::shared_ptr<NcclCommunicator> NcclCommunicator::child(std::span<const int> ranks,
                                                          std::string name) {
  auto made =
      std::make_shared<NcclCommunicator>(control_->subgroup(ranks, std::move(name)), domain_);
  made->set_timeout(timeout_ns_);
  made->slot_ = slot_;
  made->begin_watch();
  return made;
}

std::shared_ptr<Communicator> NcclCommunicator::subgroup(std::span<const int> ranks,
                                                         std::string name) {
  auto made = child(ranks, std::move(name));
  made->connect();
  return made;
}

std::shared_ptr<Communicator> NcclCommunicator::split(std::span<const int> ranks,
                                                      std::string name) {
  if (!nccl_has(NcclFeature::Split)) return subgroup(ranks, std::move(name));
  throw_failure();
  if (!handle_->alive()) fail(ErrorKind::CommFailed, str_cat("split of ", title(), ": ", cause_));
  flush_messages();
  auto made = child(ranks, std::move(name));
  // No operation of the parent may be in flight.
  end_of_all()->synchronize(timeout_ns_ > 0 ? now_ns() + timeout_ns_ : 0);
  try {
    made->prepare();
    made->meet();
    made->handle_->split(*handle_, *std::ranges::min_element(ranks), made->rank(),
                         domain_->options.copy_engine);
    made->throw_failure();  // seen by the watchdog before there was anything to abort
  } catch (const Error& error) {
    // Ranks of other subgroups are inside NCCL with this communicator, waiting for this rank.
    poison(error.what());
    made->poison(cause_);
    made->throw_failure();
    throw_failure();
    throw;
  }
  return made;
}

NcclCommunicator::~NcclCommunicator() {
  std::shared_ptr<Event> last;
  try {
    if (handle_->alive()) flush_messages();
    // Buffers of the operations return to the compute stream, which must be ordered after them; it
    // must not wait for kernels that a failed abort has left behind.
    if (stream_ != nullptr) last = end_of_all();
    if (!in_flight_.empty() && left_behind_.empty() && last != nullptr)
      domain_->device->compute_stream().wait(*last);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "coshard: destroying %s: %s\n", title().c_str(), error.what());
  }
  end_nccl_watch(*this);
  const std::string its_title = title();
  messages_.clear();
  in_flight_.clear();
  control_.reset();  // notifies peers that this rank issues nothing more
  std::string text;
  try {
    text = handle_->alive() && last != nullptr && comes_off(*last)
               ? destroy()
               : handle_->abort(domain_->options.abort_grace);
  } catch (const std::exception& error) {
    text = error.what();
  }
  if (!text.empty())
    std::fprintf(stderr, "coshard: destroying %s: %s\n", its_title.c_str(), text.c_str());
}

// Graphs run this communicator's operations on the compute stream.
std::shared_ptr<Event> NcclCommunicator::end_of_all() {
  if (replayed_ != nullptr && handle_->alive()) stream_->wait(*replayed_);
  return stream_->record();
}

// Waits until all operations complete; false if the deadline expires or a peer fails.
bool NcclCommunicator::comes_off(const Event& last) {
  const std::int64_t limit = timeout_ns_ > 0 ? timeout_ns_.load() : std::int64_t{60'000'000'000};
  const std::int64_t deadline = now_ns() + limit;
  while (!last.query()) {
    try {
      connected_.state()->check(0);
    } catch (const Error&) {
      return false;
    }
    if (now_ns() >= deadline || handle_->state() != ncclSuccess) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  return handle_->state() == ncclSuccess;
}

std::string NcclCommunicator::destroy() {
  for (const auto& window : windows_) {
    const ncclResult_t status = handle_->enter(
        [&](ncclComm_t comm) { return nccl().CommWindowDeregister(comm, window->window); });
    log_nccl(status, "ncclCommWindowDeregister");
  }
  return handle_->destroy(domain_->options.abort_grace);
}

std::shared_ptr<NcclCommunicator> make_nccl_communicator(std::shared_ptr<Communicator> control,
                                                         const std::shared_ptr<Device>& device,
                                                         NcclOptions options) {
  auto cuda_device = std::dynamic_pointer_cast<CudaDevice>(device);
  if (cuda_device == nullptr)
    fail(ErrorKind::Unsupported,
         str_cat("communicator 'nccl' needs a cuda device, not ", device->name()));
  auto domain = std::make_shared<NcclDomain>();
  domain->device = std::move(cuda_device);
  domain->options = options;
  auto made = std::make_shared<NcclCommunicator>(std::move(control), std::move(domain));
  made->begin_watch();
  made->connect();
  return made;
}

extern const CommunicatorBackend nccl_communicator_backend;
const CommunicatorBackend nccl_communicator_backend = {
    "nccl",
    [](std::shared_ptr<Communicator> control,
       const std::shared_ptr<Device>& device) -> std::shared_ptr<Communicator> {
      return make_nccl_communicator(std::move(control), device);
    },
    [] {
      return str_cat(nccl_version_text(nccl_version()), ", built with ",
                     nccl_version_text(NCCL_VERSION_CODE));
    }};

}  // namespace coshard
