// The beginning and the end of an NcclCommunicator.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <thread>

#include "runtime/comm/make_communicator.h"
#include "runtime/comm/nccl/nccl_api.h"
#include "runtime/comm/nccl/nccl_communicator.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/error.h"

namespace coshard {
namespace {

// Told of by the device's waits as long as the communicator lives.
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
  timeout_ns_ = ns;
  control_->set_timeout(ns);
  setup_->set_timeout(ns);
}

void NcclCommunicator::begin_watch() {
  domain_->device->watch(std::make_shared<NcclWatch>(weak_from_this()));
}

// Before anything is waited for; a peer that waits hears of what goes wrong here.
void NcclCommunicator::prepare() {
  require_nccl(NcclFeature::NonBlocking, "non-blocking communicators");
  if (domain_->options.copy_engine)
    require_nccl(NcclFeature::CopyEngine, "copy-engine collectives");
  const char* implicit = std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
  domain_->implicit_order = implicit != nullptr && std::strcmp(implicit, "1") == 0 &&
                            nccl_has(NcclFeature::ImplicitOrder);
  domain_->device->make_current();
  stream_ = domain_->device->make_stream(StreamKind::Communication);
}

// Rank 0's id goes to all, and all begin.
void NcclCommunicator::connect() {
  try {
    prepare();
    ncclUniqueId id{};
    if (rank() == 0) check_nccl(nccl().GetUniqueId(&id), cat("ncclGetUniqueId for ", title()));
    Collective c;
    c.kind = CollectiveKind::Broadcast;
    c.dtype = DType::Bool;
    c.extent = sizeof id;
    c.send = c.recv = &id;
    c.label = "NCCL id";
    setup_->issue(c).wait();
    connected_ = setup_->issue(Collective());
    handle_->connect(id, size(), rank(), domain_->options.copy_engine);
    await_connection(*handle_);
  } catch (const Error& error) {
    connection_failed(error.what());
    throw;
  }
}

void NcclCommunicator::await_connection(const NcclHandle& handle) {
  const std::int64_t begin = now_ns();
  for (;;) {
    const ncclResult_t state = handle.state();
    if (state == ncclSuccess) return;
    check_nccl(state, cat("connecting rank ", rank(), " of ", title()), handle.comm());
    const std::int64_t waited = now_ns() - begin;
    connected_.state()->check(waited);
    if (timeout_ns_ > 0 && waited >= timeout_ns_)
      fail(ErrorKind::Timeout,
           cat("rank ", rank(), " of ", title(), ": NCCL has not connected after ",
               static_cast<double>(waited) / 1e9, " s"));
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

void NcclCommunicator::connection_failed(const std::string& what) {
  setup_->poison(what);
  control_->poison(what);
  const std::string text = abort();
  if (!text.empty()) std::fprintf(stderr, "coshard: %s\n", text.c_str());
}

std::shared_ptr<NcclCommunicator> NcclCommunicator::child(std::span<const int> ranks,
                                                          std::string name) {
  settle();
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
  if (!nccl_has(NcclFeature::Split) || !handle_->alive()) return subgroup(ranks, std::move(name));
  flush_messages();
  auto made = child(ranks, std::move(name));
  // No operation of the parent may be in flight.
  stream_->record()->synchronize(timeout_ns_ > 0 ? now_ns() + timeout_ns_ : 0);
  try {
    made->prepare();
    made->connected_ = made->setup_->issue(Collective());
    made->handle_->split(*handle_, *std::ranges::min_element(ranks), made->rank(),
                         domain_->options.copy_engine);
    // The parent is in progress while it is split; the child is there after that.
    made->await_connection(*handle_);
    made->await_connection(*made->handle_);
  } catch (const Error& error) {
    made->connection_failed(error.what());
    throw;
  }
  return made;
}

std::string NcclCommunicator::abort() {
  if (domain_->posting == this) domain_->posting = nullptr;
  posting_.reset();
  const std::string text = handle_->abort(domain_->options.abort_grace);
  if (!text.empty()) left_behind_ = text;
  return left_behind_;
}

void NcclCommunicator::poison(const std::string& cause) {
  control_->poison(cause);
  setup_->poison(cause);
  const std::string text = abort();
  if (!text.empty()) std::fprintf(stderr, "coshard: %s\n", text.c_str());
}

NcclCommunicator::~NcclCommunicator() {
  try {
    if (handle_->alive() && (posting_ != nullptr || !messages_.empty())) {
      flush_messages();
      settle();
    }
    // What the operations use goes back to the compute stream, which has to be past them; kernels
    // that an abort has left behind it would wait for without end.
    if (!in_flight_.empty() && left_behind_.empty() && stream_ != nullptr)
      domain_->device->compute_stream().wait(*stream_->record());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "coshard: end of %s: %s\n", title().c_str(), error.what());
  }
  const bool connected = connected_.state() != nullptr;
  const std::string its_title = title();
  messages_.clear();
  in_flight_.clear();
  control_.reset();  // this rank issues nothing more: peers that miss it hear of it now
  const auto stop = [&] {
    try {
      connected_.state()->check(0);
      return false;
    } catch (const Error&) {
      return true;
    }
  };
  if (domain_->posting == this) domain_->posting = nullptr;
  std::string text;
  try {
    for (const Window& window : windows_) {
      if (handle_->alive())
        log_nccl(nccl().CommWindowDeregister(handle_->comm(), window.window),
                 "ncclCommWindowDeregister");
    }
    const std::chrono::nanoseconds limit(timeout_ns_ > 0 ? timeout_ns_
                                                         : std::int64_t{60'000'000'000});
    text = connected ? handle_->destroy(limit, stop, domain_->options.abort_grace)
                     : handle_->abort(domain_->options.abort_grace);
  } catch (const std::exception& error) {
    text = error.what();
  }
  if (!text.empty())
    std::fprintf(stderr, "coshard: end of %s: %s\n", its_title.c_str(), text.c_str());
}

std::shared_ptr<NcclCommunicator> make_nccl_communicator(std::shared_ptr<Communicator> control,
                                                         const std::shared_ptr<Device>& device,
                                                         NcclOptions options) {
  auto cuda_device = std::dynamic_pointer_cast<CudaDevice>(device);
  if (cuda_device == nullptr)
    fail(ErrorKind::Unsupported,
         cat("communicator 'nccl' joins cuda devices, not ", device->name()));
  auto domain = std::make_shared<NcclDomain>();
  domain->device = std::move(cuda_device);
  domain->options = options;
  auto made = std::make_shared<NcclCommunicator>(std::move(control), std::move(domain));
  made->connect();
  made->begin_watch();
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
      return cat(nccl_version_text(nccl_version()), ", built with ",
                 nccl_version_text(NCCL_VERSION_CODE));
    }};

}  // namespace coshard
