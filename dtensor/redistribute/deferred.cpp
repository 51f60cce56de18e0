#include "dtensor/redistribute/deferred.h"

#include "dtensor/ops/local.h"
#include "dtensor/redistribute/redistribute.h"
#include "kernels/run.h"
#include "runtime/coro/branch.h"

namespace coshard {
namespace {

const BranchLocal<bool> deferring;

// Issues when it is first looked at.
class Later final : public WorkState {
 public:
  Later(Tensor source, const Layout& target, Tensor place)
      : source_(std::move(source)), target_(target), place_(std::move(place)) {}

  bool ready() override {
    if (place_.defined() && !made().ready()) return false;
    wait();
    return true;
  }
  void wait() override {
    if (!place_.defined()) return;
    const std::shared_ptr<WorkState> state = made().state();
    if (state) state->wait();
    made_.arrived(state);
    kernels::run(*place_.device(), kernels::Copy{view_of(place_), view_of(made_)});
    place_ = source_ = made_ = Tensor();
  }
  int parts() const override { return 1; }
  bool part_ready(int) override { return ready(); }
  void wait_part(int) override { wait(); }
  Look look(int) override {
    if (!place_.defined()) return Look::Over;
    const auto& state = made().state();
    return state ? state->look(-1) : Look::Over;
  }
  void begin_wait() override {
    if (WorkState* state = issued()) state->begin_wait();
  }
  bool listen(Parker& parker) override {
    const auto state = place_.defined() ? made().state() : nullptr;
    return !state || state->listen(parker);
  }
  void deaf(Parker& parker) noexcept override {
    if (WorkState* state = issued()) state->deaf(parker);
  }
  void check(std::int64_t waited_ns) override {
    if (WorkState* state = issued()) state->check(waited_ns);
  }
  std::int64_t timeout_ns() const override {
    const WorkState* state = issued();
    return state != nullptr ? state->timeout_ns() : 0;
  }
  std::int64_t not_before(int) const override {
    const WorkState* state = issued();
    return state != nullptr ? state->not_before(-1) : 0;
  }
  void given_up() override {
    if (WorkState* state = issued()) state->given_up();
  }
  void poison(const std::string& cause) override {
    if (WorkState* state = issued()) state->poison(cause);
  }
  std::string describe() const override { return cat("a redistribute to ", target_); }

 private:
  // Null: it has not been issued, or is over.
  WorkState* issued() const {
    const bool pends = made_.defined() && made_.storage()->pending;
    return pends ? made_.storage()->pending.state().get() : nullptr;
  }
  const Work& made() {
    if (!made_.defined()) made_ = redistribute_raw(source_, target_);
    return made_.storage()->pending;
  }
  Tensor source_;
  Layout target_;
  Tensor place_;  // undefined: over
  Tensor made_;
};

}  // namespace

DeferRedistributes::DeferRedistributes() : before_(deferring.get()) { deferring.own() = true; }
DeferRedistributes::~DeferRedistributes() { deferring.own() = before_; }
bool redistributes_are_deferred() { return deferring.get(); }

Tensor redistribute_later(const DTensor& source, const Layout& target) {
  Tensor result = Tensor::empty(source.device(), make_spec(source.mesh(), target, source.shape()),
                                source.dtype());
  const Tensor place =
      Tensor::alias(result, result.local_shape(), result.strides(), result.storage_offset());
  result.set_in_flight(Work(std::make_shared<Later>(source.detach(), target, place)));
  return result;
}

}  // namespace coshard
