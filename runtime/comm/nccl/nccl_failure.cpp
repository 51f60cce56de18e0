// Failure detection and handling of a communicator.
#include <algorithm>
#include <cstdio>
#include <utility>

#include <coshard/runtime/error.h>
#include "runtime/comm/collective_info.h"
#include "runtime/comm/nccl/nccl_api.h"
#include "runtime/comm/nccl/nccl_communicator.h"
#include "runtime/device/cuda/cuda_device.h"

namespace coshard {
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
void NcclCommunicator::look_at(const Work& announced, std::int64_t waited_ns) {
  try {
    announced.state()->check(waited_ns);
  } catch (const Error& error) {
    failed(std::current_exception(), error.what());
  }
}

// Checks a flight that is not complete on the stream after a wait of `waited_ns`.
void NcclCommunicator::examine(NcclFlight& flight, std::int64_t waited_ns) {
  look_at(flight.announced, waited_ns);
  if (failed_) return;
  if (const ncclResult_t state = handle_->state(); state != ncclSuccess)
    return failed(ErrorKind::CommFailed, failure_text(flight, handle_->text(state)));
  const std::int64_t limit = timeout_of(flight);
  if (limit == 0 || waited_ns < limit) return;
  const std::shared_ptr<Event>& done = flight.operation->done;
  if (done != nullptr && done->query()) return;
  // A rank is missing but not overdue: data are still arriving from it.
  if (flight.announced.state()->push() != Look::Over) return;
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
    look_at(connected_, 0);
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
    if (!failed_) look_at(flight.announced, 0);
    if (!failed_ && flight.operation->done != nullptr) return;
  }
  throw_failure();
  const std::scoped_lock lock(mutex_);
  flight.announced.state()->check(0);  // poisoned: throws
  fail(ErrorKind::CommFailed, failure_text(flight, cause_));
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

}  // namespace coshard
