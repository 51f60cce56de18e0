#include "runtime/coro/executor.h"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>

#include "runtime/coro/nested.h"

namespace coshard {

struct Executor::Asio {
  explicit Asio(std::unique_ptr<boost::asio::io_context> context)
      : own(std::move(context)), executor(own->get_executor()) {}
  // The strand: tasks of one executor never run at the same time, whatever the target's threads.
  explicit Asio(const boost::asio::any_io_executor& target)
      : executor(boost::asio::make_strand(target)) {}

  std::unique_ptr<boost::asio::io_context> own;
  boost::asio::any_io_executor executor;
  // On the user's context:
  std::weak_ptr<void> owner;
  std::coroutine_handle<> root;
  std::function<void(std::exception_ptr)> finished;
};

namespace {

thread_local bool nested_run_allowed = false;
constexpr std::size_t kFirstCapacity = 64;
constexpr int kHandlersPerPoll = 16;
constexpr const char* kForever = "executor: the task waits for something that nobody will complete";

class Running {
 public:
  Running(Executor*& current, Executor* executor) : current_(current), before_(current) {
    current_ = executor;
  }
  ~Running() { current_ = before_; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  Executor*& current_;
  Executor* before_;
};

}  // namespace

AllowNestedRun::AllowNestedRun() { nested_run_allowed = true; }
AllowNestedRun::~AllowNestedRun() { nested_run_allowed = false; }

Executor::Executor()
    : ring_(kFirstCapacity),
      asio_(std::make_unique<Asio>(std::make_unique<boost::asio::io_context>(1))) {}

Executor::Executor(const boost::asio::any_io_executor& target)
    : ring_(kFirstCapacity), needs_pump_(true), asio_(std::make_unique<Asio>(target)) {}

Executor::~Executor() = default;

boost::asio::io_context& Executor::io_context() {
  if (!asio_->own)
    fail(ErrorKind::Unsupported, "Executor::io_context: this executor lives on the user's context");
  return *asio_->own;
}

const boost::asio::any_io_executor& Executor::asio_executor() const noexcept {
  return asio_->executor;
}

void Executor::grow() {
  std::vector<std::coroutine_handle<>> larger(ring_.size() * 2);
  for (std::size_t i = 0; i < size_; ++i) larger[i] = ring_[(head_ + i) & (ring_.size() - 1)];
  ring_ = std::move(larger);
  head_ = 0;
}

void Executor::drive(std::coroutine_handle<> root) {
  const bool nested = std::exchange(nested_run_allowed, false);
  CS_REQUIRE(current_ == nullptr || nested,
             "Executor::run: an executor runs on this thread already; co_await the task instead");
  CS_REQUIRE(asio_->own, "Executor::run: this executor lives on the user's context; use co_spawn");
  const Running running(current_, this);
  try {
    enqueue(root);
    while (!root.done()) {
      if (size_ == 0) {
        wait_for_asio();
        continue;
      }
      if (budget_ <= 0) poll_asio();
      resume_front();
    }
  } catch (...) {  // a handler of the user's threw, or the wait is for ever: the root is given up
    size_ = 0;
    siblings_ = 0;
    throw;
  }
}

void Executor::poll_asio() {
  budget_ = kBudget;
  boost::asio::io_context& context = *asio_->own;
  if (context.stopped()) context.restart();
  for (int i = 0; i < kHandlersPerPoll && context.poll_one() > 0; ++i) {
  }
}

void Executor::wait_for_asio() {
  budget_ = kBudget;
  boost::asio::io_context& context = *asio_->own;
  if (context.stopped()) context.restart();
  CS_REQUIRE(context.run_one() > 0, kForever);
}

void Executor::launch(std::coroutine_handle<> root, const std::shared_ptr<void>& owner,
                      std::function<void(std::exception_ptr)> finished) {
  asio_->owner = owner;
  asio_->root = root;
  asio_->finished = std::move(finished);
  enqueue(root);
}

std::shared_ptr<void> Executor::keep_alive() const { return asio_->owner.lock(); }

void Executor::post_pump() {
  needs_pump_ = false;
  boost::asio::post(asio_->executor, [this, keep = keep_alive()] { pump(keep); });
}

void Executor::pump(const std::shared_ptr<void>& keep) {
  {
    const Running running(current_, this);
    budget_ = kBudget;
    while (size_ > 0 && budget_ > 0) resume_front();
  }
  const bool done = asio_->root.done();
  if (!done && size_ > 0) return post_pump();
  // Nobody else holds the task: no handler is left that could resume it.
  const bool forever = !done && keep.use_count() == 1;
  if (!done && !forever) {
    needs_pump_ = true;
    return;
  }
  std::exception_ptr error;
  if (forever) error = std::make_exception_ptr(Error(ErrorKind::BadInput, kForever));
  const auto finished = std::exchange(asio_->finished, nullptr);
  finished(error);
}

}  // namespace coshard
