#include "dtensor/redistribute/deferred.h"

#include <optional>
#include <utility>

#include <coshard/runtime/coro/branch.h>
#include "dtensor/ops/local.h"
#include "dtensor/redistribute/execute.h"
#include "dtensor/redistribute/follow_up.h"
#include "dtensor/redistribute/in_flight.h"
#include "kernels/run.h"

namespace coshard {
namespace {

const BranchLocal<bool> deferring;

// Issues when it is first awaited, read or needed; from then on it is that redistribute, and a copy
// of its result into the memory that was promised.
class Later final : public WorkState {
 public:
  Later(Tensor source, const Layout& target, Tensor place)
      : source_(std::move(source)), target_(target), place_(std::move(place)) {}

  void issue_now() override { static_cast<void>(work()); }
  bool ready() override { return work().ready(); }
  void wait() override { work().wait(); }
  int parts() const override { return 1; }
  bool part_ready(int) override { return ready(); }
  void wait_part(int) override { wait(); }
  bool waits_for_peers() const override { return !work_ || work_->waits_for_peers(); }
  bool any_thread() const override { return work_ && work_->any_thread(); }
  Look look(int part) override { return work().look(part); }
  void begin_wait() override { work().begin_wait(); }
  bool listen(Parker& parker) override { return work().listen(parker); }
  void deaf(Parker& parker) noexcept override {
    if (work_) work_->deaf(parker);
  }
  void check(std::int64_t waited_ns) override { work().check(waited_ns); }
  std::int64_t timeout_ns() const override { return work_ ? work_->timeout_ns() : 0; }
  std::int64_t not_before(int part) const override { return work_ ? work_->not_before(part) : 0; }
  void given_up() override { work().given_up(); }
  void poison(const std::string& cause) override {
    if (work_) work_->poison(cause);
  }
  Look push() override { return work().push(); }
  std::string failure() const override { return work_ ? work_->failure() : ""; }
  void has_dependents() override { work().has_dependents(); }
  std::string describe() const override { return str_cat("a redistribute to ", target_); }
  const Tensor& made() {
    static_cast<void>(work());
    return made_;
  }

 private:
  FollowUp& work() {
    if (work_) return *work_;
    made_ = redistribute_raw(source_, target_);  // throws in a cancelled branch
    source_ = Tensor();
    work_.emplace(made_.storage()->pending.state(),
                  [from = place_of(made_), to = std::exchange(place_, Tensor())] {
                    kernels::run(*to.device(), kernels::Copy{view_of(to), view_of(from)});
                  });
    return *work_;
  }
  Tensor source_;
  Layout target_;
  Tensor place_;
  Tensor made_;                   // once issued
  std::optional<FollowUp> work_;  // once issued, by the rank
};

}  // namespace

DeferRedistributes::DeferRedistributes() : before_(deferring.get()) { deferring.own() = true; }
DeferRedistributes::~DeferRedistributes() { deferring.own() = before_; }
bool redistributes_are_deferred() { return deferring.get(); }

Tensor redistribute_later(const DTensor& source, const Layout& target) {
  Tensor result = Tensor::empty(source.device(), make_spec(source.mesh(), target, source.shape()),
                                source.dtype());
  result.set_in_flight(Work(std::make_shared<Later>(source.detach(), target, place_of(result))));
  source.read_by(result.storage()->pending);
  return result;
}

Tensor brought_by(const Tensor& x) {
  if (!x.in_flight() || !x.storage()->pending) return x;
  auto* const later = dynamic_cast<Later*>(x.storage()->pending.state().get());
  return later ? later->made() : x;
}

}  // namespace coshard
