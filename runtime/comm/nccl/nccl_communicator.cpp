// The path of one rank's collectives to NCCL.
#include "runtime/comm/nccl/nccl_communicator.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include <coshard/runtime/coro/wait_limit.h>
#include <coshard/runtime/error.h>
#include "runtime/comm/collective.h"
#include "runtime/comm/collective_info.h"
#include "runtime/comm/make_communicator.h"
#include "runtime/comm/nccl/nccl_api.h"
#include "runtime/comm/nccl/nccl_replays.h"
#include "runtime/comm/nccl/nccl_watchdog.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/stream_times.h"

namespace coshard {
namespace {

// Disjoint from the event ids of communicators through host memory.
std::atomic<std::uint64_t> nccl_event_id{std::uint64_t{1} << 63};

constexpr std::size_t kRemembered = 1024;  // flights that a stuck wait can report

}  // namespace

std::string NcclCommunicator::title() const { return str_cat(name(), "[", size(), "]"); }

std::shared_ptr<WorkState> NcclCommunicator::start(Collective collective) {
  const bool message = is_point_to_point(collective.kind);
  if (!message) flush_all_messages();
  const std::shared_ptr<NcclFlight> flight = announce(collective);
  if (Observer* watching = slot_ && !collective.unobserved ? *slot_ : nullptr) {
    CommEvent& event = flight->event;
    event.id = ++nccl_event_id;
    event.sequence = flight->number;
    event.kind = collective.kind;
    event.dtype = collective.dtype;
    event.bytes = larger_bytes(collective, size(), rank());
    event.communicator = name();
    event.label = collective.label;
    event.where = collective.where;
    event.queued = true;
    watching->issued(event, now_ns());
  }
  auto work = std::make_shared<NcclWork>(shared_from_this(), flight);
  NcclOperation& operation = *flight->operation;  // not shared yet
  operation.keeps = {std::move(collective.keep_send), std::move(collective.keep_recv)};
  // After a disagreement or an earlier failure, nothing is issued, and the wait reports it.
  if (!handle_->alive()) return work;
  operation.plan = plan(collective, operation);
  track(flight);
  if (!message) {
    launch(*flight);
    return work;
  }
  if (messages_.empty()) domain_->with_messages.push_back(weak_from_this());
  messages_.push_back(flight);
  return work;
}

// Issues the same collective on the control communicator, without data; may wait for peers there.
std::shared_ptr<NcclFlight> NcclCommunicator::announce(const Collective& collective) {
  auto flight = std::make_shared<NcclFlight>();
  flight->kind = collective.kind;
  flight->limit = WaitLimit::here();
  flight->label = collective.label;
  flight->place = {collective.where, collective.operation, collective.module};
  flight->operation = std::make_shared<NcclOperation>();
  const bool message = is_point_to_point(collective.kind);
  flight->number = message ? messages_issued_++ : control_->issued();
  Collective told = collective;
  told.control_only = true;
  told.keep_send = told.keep_recv = nullptr;
  if (domain_->device->recording()) keep_for_replays(told);
  try {
    if (!message) control_->make_room();  // not under the mutex: the watchdog needs it meanwhile
    const std::scoped_lock lock(mutex_);
    flight->announced = control_->issue(std::move(told));
    if (!message) announced_ = flight->announced.state();
    if (!failed_) look_at(*flight->announced.state(), 0);  // a failure is thrown by the wait
    return flight;
  } catch (const Error& error) {  // it waited for peers in vain
    const std::scoped_lock lock(mutex_);
    failed(std::current_exception(), error.what());
  }
  throw_failure();
  fail(ErrorKind::CommFailed, failure_text(*flight, cause_));
}

NcclPlan NcclCommunicator::plan(const Collective& collective, NcclOperation& operation) {
  const bool all_to_all = domain_->options.copy_engine && nccl().AlltoAll != nullptr;
  return plan_nccl(collective, size(), rank(), all_to_all, [&](std::size_t bytes) {
    std::shared_ptr<Buffer> buffer = domain_->device->make_buffer(bytes);
    void* data = buffer->data();
    operation.keeps.push_back(std::move(buffer));
    return data;
  });
}

void NcclCommunicator::track(const std::shared_ptr<NcclFlight>& flight) {
  std::shared_ptr<NcclFlight> oldest;  // released without the mutex
  const std::scoped_lock lock(mutex_);
  if (in_flight_.size() >= kRemembered) {
    // Dropped or late work handles: orders the compute stream after their use of buffers.
    oldest = std::move(in_flight_.front());
    const std::shared_ptr<Event>& done = oldest->operation->done;
    if (done != nullptr) domain_->device->compute_stream().wait(*done);
    in_flight_.pop_front();
  }
  in_flight_.push_back(flight);
}

void NcclCommunicator::flush_messages() {
  if (messages_.empty()) return;
  const auto together = std::make_shared<NcclOperation>();
  auto& calls = together->plan.rounds.emplace_back().calls;
  const std::vector<std::shared_ptr<NcclFlight>> messages = std::exchange(messages_, {});
  {
    const std::scoped_lock lock(mutex_);
    for (const auto& flight : messages) {
      for (const auto& round : flight->operation->plan.rounds)
        calls.insert(calls.end(), round.calls.begin(), round.calls.end());
      auto& keeps = flight->operation->keeps;
      together->keeps.insert(together->keeps.end(), keeps.begin(), keeps.end());
      flight->operation = together;
    }
  }
  launch(*messages.back());
}

void NcclCommunicator::flush_all_messages() {
  for (const auto& known : std::exchange(domain_->with_messages, {}))
    if (const auto communicator = known.lock()) communicator->flush_messages();
}

void NcclCommunicator::launch(NcclFlight& flight) {
  NcclOperation& operation = *flight.operation;
  CudaDevice& device = *domain_->device;
  device.make_current();
  operation.path = path_of(operation.plan);
  stream_->wait(*device.compute_stream().record());
  const NcclOrder& order = *domain_->order;
  if (!(device.recording() ? order.recordings : order.by_nccl) && domain_->last != nullptr)
    stream_->wait(*domain_->last);
  const bool timed = flight.event.id != 0;
  const auto record = [&] { return timed ? stream_->record_timed() : stream_->record(); };
  if (timed) operation.started = record();
  device.peers()->copy(operation.plan.before, *stream_);
  const bool by_shards = !operation.plan.round_of.empty();
  if (by_shards) operation.begun = record();
  for (const NcclRound& round : operation.plan.rounds) {
    if (!round.calls.empty()) hand_over(round.calls, flight);
    device.peers()->copy(round.after, *stream_);
    if (by_shards) operation.rounds.push_back(record());
  }
  domain_->last = record();
  const std::scoped_lock lock(mutex_);
  operation.done = domain_->last;
}

// The calls of a round form one group, which is closed even if a call in it fails.
void NcclCommunicator::hand_over(const std::vector<NcclCall>& calls, NcclFlight& flight) {
  const char* name = nullptr;
  const ncclResult_t status = handle_->enter([&](ncclComm_t comm) {
    ncclResult_t worst = ncclSuccess;
    const auto went_well = [&](ncclResult_t result, const char* which) {
      if (worst == ncclSuccess && result != ncclSuccess) worst = result, name = which;
      return worst == ncclSuccess;
    };
    const bool grouped = calls.size() > 1;
    if (grouped && !went_well(nccl().GroupStart(), "ncclGroupStart")) return worst;
    for (const NcclCall& one : calls)
      if (!went_well(call(one, comm), to_string(one.kind))) break;
    if (grouped) went_well(nccl().GroupEnd(), "ncclGroupEnd");
    return worst;
  });
  if (status == ncclSuccess) return;
  {
    const std::scoped_lock lock(mutex_);
    const std::string cause = str_cat(name != nullptr ? name : "NCCL", ": ", handle_->text(status));
    failed(ErrorKind::CommFailed, failure_text(flight, cause));
  }
  check(flight);
}

ncclResult_t NcclCommunicator::call(const NcclCall& c, ncclComm_t comm) const {
  const NcclApi& api = nccl();
  const auto count = static_cast<std::size_t>(c.count);
  auto* stream = static_cast<cudaStream_t>(stream_->native());
  switch (c.kind) {
    case NcclCallKind::AllReduce:
      return api.AllReduce(c.send, c.recv, count, c.dtype, c.reduce, comm, stream);
    case NcclCallKind::AllGather:
      return api.AllGather(c.send, c.recv, count, c.dtype, comm, stream);
    case NcclCallKind::ReduceScatter:
      return api.ReduceScatter(c.send, c.recv, count, c.dtype, c.reduce, comm, stream);
    case NcclCallKind::AllToAll: return api.AlltoAll(c.send, c.recv, count, c.dtype, comm, stream);
    case NcclCallKind::Broadcast:
      return api.Broadcast(c.send, c.recv, count, c.dtype, c.peer, comm, stream);
    case NcclCallKind::Reduce:
      return api.Reduce(c.send, c.recv, count, c.dtype, c.reduce, c.peer, comm, stream);
    case NcclCallKind::Send: return api.Send(c.send, count, c.dtype, c.peer, comm, stream);
    case NcclCallKind::Recv: return api.Recv(c.recv, count, c.dtype, c.peer, comm, stream);
  }
  return ncclInvalidUsage;
}

std::string NcclCommunicator::text_of(const NcclFlight& flight) const {
  const std::string label = flight.label.empty() ? "" : str_cat(" (", flight.label, ")");
  return str_cat(to_string(flight.kind), " #", flight.number, " on ", title(), label,
                 location_text(flight.place));
}

void NcclCommunicator::wait(NcclFlight& flight) {
  if (flight.settled) return;
  const std::int64_t begin_ns = flight.event.id != 0 ? now_ns() : 0;
  if (Observer* watching = slot_ && flight.event.id != 0 ? *slot_ : nullptr)
    watching->awaiting(flight.event);
  flush_messages();
  check(flight);
  order_after(flight, flight.operation->done);
  settled(flight, begin_ns);
}

void NcclCommunicator::order_after(const NcclFlight& flight, const std::shared_ptr<Event>& end) {
  CudaDevice& device = *domain_->device;
  const bool timed = flight.event.id != 0;
  const auto reached = timed ? device.compute_stream().record_timed() : nullptr;
  device.compute_stream().wait(*end);
  if (timed) device.times().stalled(flight.event, reached, end);
}

// The stream is in order, so earlier flights are complete with this one. A flight no longer in the
// list was already complete.
void NcclCommunicator::settled(NcclFlight& flight, std::int64_t begin_ns) {
  flight.settled = true;
  {
    const std::scoped_lock lock(mutex_);
    flight.awaited_ns = now_ns();
  }
  const auto here = std::ranges::find(in_flight_, &flight, [](const auto& f) { return f.get(); });
  if (here != in_flight_.end())
    for (auto earlier = in_flight_.begin(); earlier != here; ++earlier)
      (*earlier)->operation->keeps.clear();
  flight.operation->keeps.clear();
  if (flight.event.id == 0) return;
  if (Observer* watching = slot_ ? *slot_ : nullptr) {
    const std::int64_t now = now_ns();
    watching->ready(flight.event, begin_ns, now, now);
    domain_->device->times().ran(flight.event, flight.operation->started, flight.operation->done);
  }
}

void NcclCommunicator::wait_part(NcclFlight& flight, int part) {
  const NcclOperation& operation = *flight.operation;
  if (operation.plan.round_of.empty() || flight.settled) return wait(flight);
  const int round = operation.plan.round_of[static_cast<std::size_t>(part)];
  if (round == static_cast<int>(operation.plan.rounds.size()) - 1) return wait(flight);
  check(flight);
  {
    const std::scoped_lock lock(mutex_);
    if (flight.awaited_ns == 0) flight.awaited_ns = now_ns();
  }
  order_after(flight,
              round < 0 ? operation.begun : operation.rounds[static_cast<std::size_t>(round)]);
}

bool NcclCommunicator::part_there(NcclFlight& flight, int part) {
  try {
    flush_messages();
    check(flight);
    const NcclOperation& operation = *flight.operation;
    const auto& round_of = operation.plan.round_of;
    const int last = static_cast<int>(operation.plan.rounds.size()) - 1;
    const int round =
        part < 0 || round_of.empty() ? last : round_of[static_cast<std::size_t>(part)];
    if (round >= last) return operation.done->query();
    return (round < 0 ? operation.begun : operation.rounds[static_cast<std::size_t>(round)])
        ->query();
  } catch (const Error&) {
    return true;  // the wait throws the error
  }
}

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
  bool settled() override {
    const auto alive = communicator_.lock();
    return alive == nullptr || alive->settled();
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
  if (!domain_->order) domain_->order = nccl_order(domain_->options.copy_engine);
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
  announced_.reset();
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
                     nccl_version_text(NCCL_VERSION_CODE), "; communicators ",
                     to_string(nccl_order(false)));
    }};

namespace {

double seconds(std::int64_t ns) { return static_cast<double>(ns) / 1e9; }

}  // namespace

std::string NcclCommunicator::failure_text(const NcclFlight& flight,
                                           const std::string& cause) const {
  return str_cat(text_of(flight), " on rank ", rank(), " failed: ", cause);
}

void NcclCommunicator::failed(std::exception_ptr error, const std::string& cause) {
  if (failed_) return;
  failed_ = true;
  failure_ = std::move(error);
  cause_ = cause;
  control_->poison(cause);
  setup_->poison(cause);
  handle_->begin_abort();
}

// Keeps the exception's type: a host communicator throws PeerFailure for failures of peers.
void NcclCommunicator::look_at(WorkState& announced, std::int64_t waited_ns) {
  try {
    announced.check(waited_ns);
  } catch (const Error& error) {
    failed(std::current_exception(), error.what());
  }
}

// Checks a flight that is not complete on the stream after a wait of `waited_ns`.
void NcclCommunicator::examine(NcclFlight& flight, std::int64_t waited_ns) {
  look_at(*flight.announced.state(), waited_ns);
  if (failed_) return;
  if (const ncclResult_t state = handle_->state(); state != ncclSuccess)
    return failed(ErrorKind::CommFailed, failure_text(flight, handle_->text(state)));
  const std::int64_t limit = timeout_of(flight);
  if (limit == 0 || waited_ns < limit) return;
  const std::shared_ptr<Event>& done = flight.operation->done;
  if (done != nullptr && done->query()) return;
  // A rank is missing but not overdue, since data are still arriving from it; or it is being asked.
  if (flight.announced.state()->poll(Poller::Query) != Poll::Done) return;
  failed(ErrorKind::Timeout,
         failure_text(
             flight, str_cat("timeout after ", seconds(waited_ns), " s: all ranks have issued it, ",
                             done == nullptr ? "but NCCL has not accepted it"
                                             : "but the device has not finished it",
                             kIfThatIsRight)));
}

// Checks flights that the compute stream waits for: a host that waits for that stream may not get
// to look().
void NcclCommunicator::examine_waits(std::int64_t now) {
  std::int64_t since = 0;
  for (const auto& flight : in_flight_) {
    if (flight->awaited_ns == 0) continue;
    since = std::max(since, flight->awaited_ns);
    const std::int64_t limit = timeout_of(*flight);
    if (failed_ || limit == 0 || now - since < limit) return;
    if (flight->operation->done->query())
      flight->awaited_ns = 0;  // the next one's time starts now
    else
      return examine(*flight, now - since);
    since = now;
  }
}

void NcclCommunicator::watch() noexcept {
  try {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock || failed_ || connected_.state() == nullptr) return;  // the rank is at work
    look_at(*connected_.state(), 0);
    if (!failed_ && announced_ != nullptr) look_at(*announced_, 0);
    const std::int64_t now = now_ns(), inside = handle_->inside_since_ns();
    const std::int64_t waited = inside == 0 ? 0 : now - inside;
    const auto last = in_flight_.empty() ? nullptr : in_flight_.back();
    if (last != nullptr && !failed_) examine(*last, last->operation->done == nullptr ? waited : 0);
    const std::int64_t limit = last != nullptr ? timeout_of(*last) : timeout_ns_.load();
    if (!failed_ && limit > 0 && waited >= limit)
      failed(ErrorKind::Timeout, str_cat("rank ", rank(), " of ", title(),
                                         ": NCCL has not come back after ", seconds(waited), " s"));
    examine_waits(now);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "coshard: watchdog of %s: %s\n", title().c_str(), error.what());
  }
}

// Orders work that a failed operation has already queued before anything the compute stream frees.
void NcclCommunicator::end_before_memory_goes() noexcept {
  if (domain_->device->recording()) return;
  try {
    domain_->device->compute_stream().wait(*stream_->record());
  } catch (const Error&) {  // the device has failed too, and runs nothing more
  }
}

void NcclCommunicator::throw_failure() {
  std::exception_ptr error;
  {
    const std::scoped_lock lock(mutex_);
    error = std::exchange(failure_, nullptr);
  }
  if (error == nullptr) return;
  const std::string rest = abort();
  if (rest.empty()) {
    end_before_memory_goes();
    std::rethrow_exception(error);
  }
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    fail(known.kind(), str_cat(known.what(), "; ", rest));
  }
}

void NcclCommunicator::call(const std::string& what,
                            const std::function<ncclResult_t(ncclComm_t)>& act) {
  const ncclResult_t status = handle_->enter(act);
  if (status == ncclSuccess) return;
  {
    const std::scoped_lock lock(mutex_);
    failed(ErrorKind::CommFailed, str_cat(what, ": ", handle_->text(status)));
  }
  throw_failure();
  fail(ErrorKind::CommFailed, str_cat(what, ": ", cause_));
}

void NcclCommunicator::check(NcclFlight& flight) {
  {
    const std::scoped_lock lock(mutex_);
    if (!failed_) look_at(*flight.announced.state(), 0);
    if (!failed_ && flight.operation->done != nullptr) return;
  }
  throw_failure();
  const std::scoped_lock lock(mutex_);
  flight.announced.state()->check(0);  // poisoned: throws
  fail(ErrorKind::CommFailed, failure_text(flight, cause_));
}

bool NcclCommunicator::settled() {
  const std::scoped_lock lock(mutex_);
  if (announced_ == nullptr) return true;
  if (!failed_) look_at(*announced_, 0);
  if (failed_) return failure_ == nullptr;
  if (!in_flight_.empty()) {
    // What the device has not done, nobody waits for; it may be what no peer issues.
    const std::shared_ptr<Event>& done = in_flight_.back()->operation->done;
    if (done == nullptr || !done->query()) return true;
  }
  return announced_->poll(Poller::AnyThread) == Poll::Done;
}

void NcclCommunicator::look(std::int64_t waited_ns) {
  flush_messages();
  std::vector<std::shared_ptr<NcclFlight>> over;  // released without the mutex
  {
    const std::scoped_lock lock(mutex_);
    // On a failed communicator an operation may leave the stream without having been done, so check
    // for failure first.
    while (!failed_ && !in_flight_.empty()) {
      examine(*in_flight_.front(), waited_ns);
      if (failed_) break;
      const std::shared_ptr<Event>& done = in_flight_.front()->operation->done;
      if (done == nullptr || !done->query()) return;
      over.push_back(std::move(in_flight_.front()));
      in_flight_.pop_front();
    }
    // All of them are done on the device, but the last one may not have been compared.
    if (!failed_ && in_flight_.empty() && announced_ != nullptr &&
        announced_->poll(Poller::AnyThread) != Poll::Done)
      look_at(*announced_, 0);
    if (failed_) {  // their waits report it
      over.insert(over.end(), in_flight_.begin(), in_flight_.end());
      in_flight_.clear();
    }
  }
  throw_failure();
}

// While this thread records, the graph may hold operations of this communicator, for which NCCL's
// abort would wait: then the abort is only begun.
std::string NcclCommunicator::abort() {
  if (domain_->device->recording()) return left_behind_;
  const std::string text = handle_->abort(domain_->options.abort_grace);
  if (!text.empty()) left_behind_ = text;
  return left_behind_;
}

void NcclCommunicator::poison(const std::string& cause) {
  {
    const std::scoped_lock lock(mutex_);
    failed(nullptr, cause);
  }
  const std::string text = abort();
  if (!text.empty()) std::fprintf(stderr, "coshard: %s\n", text.c_str());
}

std::shared_ptr<Buffer> NcclCommunicator::symmetric_buffer(std::size_t bytes) {
  require_nccl(NcclFeature::CopyEngine, "symmetric buffers");
  CS_REQUIRE(bytes > 0, "symmetric_buffer on ", title(), ": the size is 0 bytes");
  flush_messages();
  // A window consists of whole pages.
  constexpr std::size_t kPage = NCCL_WIN_REQUIRED_ALIGNMENT;
  const std::size_t rounded = (bytes + kPage - 1) / kPage * kPage;
  domain_->device->make_current();
  void* data = nullptr;
  call(str_cat("ncclMemAlloc of ", rounded, " bytes"),
       [&](ncclComm_t) { return nccl().MemAlloc(&data, rounded); });
  // Freed with the last owner; the window is deregistered with the communicator. ncclMemFree does
  // not wait for outstanding reads.
  const std::shared_ptr<void> memory(data, [device = domain_->device](void* gone) {
    try {
      device->synchronize();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "coshard: freeing a symmetric buffer: %s\n", error.what());
    }
    log_nccl(nccl().MemFree(gone), "ncclMemFree");
  });
  const auto made = std::make_shared<Window>(Window{data, rounded, memory});
  call(str_cat("ncclCommWindowRegister of ", rounded, " bytes on ", title()), [&](ncclComm_t comm) {
    return nccl().CommWindowRegister(comm, data, rounded, &made->window, NCCL_WIN_COLL_SYMMETRIC);
  });
  if (made->window == nullptr)
    fail(ErrorKind::Unsupported, str_cat("symmetric buffers on ", title(),
                                         ": NCCL registered no window; all devices must have "
                                         "peer access to each other"));
  windows_.push_back(made);
  auto borrowed = domain_->device->borrow(data, bytes);
  struct Held {
    std::shared_ptr<Buffer> buffer;
    std::shared_ptr<void> memory;
  };
  auto held = std::make_shared<Held>(Held{std::move(borrowed), memory});
  return {held, held->buffer.get()};
}

bool NcclCommunicator::in_window(const void* data) const {
  const auto* at = static_cast<const char*>(data);
  return std::ranges::any_of(windows_, [at](const auto& window) {
    const auto* begin = static_cast<const char*>(window->data);
    return at >= begin && at < begin + window->bytes;
  });
}

std::string_view NcclCommunicator::path_of(const NcclPlan& plan) const {
  constexpr std::string_view kKernel = "SM kernel requested";
  if (!domain_->options.copy_engine || plan.rounds.size() != 1 || plan.rounds[0].calls.size() != 1)
    return kKernel;
  const NcclCall& only = plan.rounds[0].calls[0];
  const bool able = only.kind == NcclCallKind::AllGather || only.kind == NcclCallKind::AllToAll;
  return able && in_window(only.send) && in_window(only.recv) ? kCopyEngine : kKernel;
}

void NcclCommunicator::keep_for_replays(const Collective& told) {
  CudaGraphs& graphs = domain_->device->graphs();
  std::shared_ptr<NcclReplays> replays = replays_.lock();
  if (replays == nullptr || recording_ != graphs.recording()) {
    replays = std::make_shared<NcclReplays>(weak_from_this());
    replays_ = replays;
    recording_ = graphs.recording();
    graphs.add(replays);
  }
  replays->keep(told);
}

}  // namespace coshard
