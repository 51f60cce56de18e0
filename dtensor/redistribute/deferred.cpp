#include "dtensor/redistribute/deferred.h"

#include <utility>

#include <coshard/runtime/coro/branch.h>
#include "dtensor/redistribute/execute.h"
#include "dtensor/redistribute/follow_up.h"
#include "dtensor/redistribute/in_flight.h"
#include "dtensor/tensor/local.h"
#include "kernels/run.h"

namespace coshard {
namespace {

const BranchLocal<bool> deferring;

// Once issued: the redistribute, and a copy of its result into the promised memory.
class Later final : public IssuedLater {
 public:
  Later(Tensor source, const Layout& target, bool by_shards, Tensor place)
      : source_(std::move(source)),
        target_(target),
        by_shards_(by_shards),
        place_(std::move(place)) {}
  std::string describe() const override { return str_cat("a redistribute to ", target_); }
  const Tensor& made() {
    note(WorkEvent::Needed);
    return made_;
  }

 private:
  std::shared_ptr<WorkState> issue() override {
    made_ = redistribute_raw(source_, target_, by_shards_);  // throws in a cancelled branch
    source_ = Tensor();
    return std::make_shared<FollowUp>(
        made_.storage()->pending.state(),
        [from = place_of(made_), to = std::exchange(place_, Tensor())] {
          kernels::run(*to.device(), kernels::Copy{view_of(to), view_of(from)});
        });
  }
  Tensor source_;
  Layout target_;
  bool by_shards_;
  Tensor place_;
  Tensor made_;  // once issued
};

}  // namespace

DeferRedistributes::DeferRedistributes() : before_(deferring.get()) { deferring.own() = true; }
DeferRedistributes::~DeferRedistributes() { deferring.own() = before_; }
bool redistributes_are_deferred() { return deferring.get(); }

Tensor redistribute_later(const DTensor& source, const Layout& target, bool by_shards) {
  Tensor result = Tensor::empty(source.device(), make_spec(source.mesh(), target, source.shape()),
                                source.dtype());
  result.set_marks(source.marks());
  auto later = std::make_shared<Later>(source.detach(), target, by_shards, place_of(result));
  result.set_in_flight(Work(std::move(later)));
  source.read_by(result.storage()->pending);
  return result;
}

Tensor source_in_flight(const Tensor& x) {
  if (!x.in_flight() || !x.storage()->pending) return x;
  auto* const later = dynamic_cast<Later*>(x.storage()->pending.state().get());
  return later ? later->made() : x;
}

}  // namespace coshard
