#include "dtensor/redistribute/deferred.h"

#include "dtensor/ops/local.h"
#include "dtensor/redistribute/redistribute.h"
#include "kernels/run.h"

namespace coshard {
namespace {

thread_local bool deferring = false;

// The ticket of a redistribute that has not been issued: whoever waits for it issues it.
class DeferredTicket final : public TicketState {
 public:
  DeferredTicket(Tensor source, const Layout& target, const Tensor& into)
      : source_(std::move(source)),
        target_(target),
        buffer_(into.storage()->buffer),
        shape_(into.local_shape()) {}

  bool ready() override {
    wait();
    return true;
  }
  void wait() override {
    if (!source_.defined()) return;
    const Tensor source = std::exchange(source_, Tensor());
    const Tensor made = redistribute_raw(source, target_);
    const Tensor into = Tensor::borrow(source.device(), buffer_->data(), shape_, source.dtype());
    kernels::run(into.device()->kind(), kernels::Copy{view_of(into), view_of(made.raw_local())});
  }
  int parts() const override { return 1; }
  bool part_ready(int) override { return ready(); }
  void wait_part(int) override { wait(); }

 private:
  Tensor source_;  // undefined when it is done
  Layout target_;
  std::shared_ptr<Buffer> buffer_;
  Shape shape_;
};

}  // namespace

DeferRedistributes::DeferRedistributes() : before_(deferring) { deferring = true; }
DeferRedistributes::~DeferRedistributes() { deferring = before_; }
bool redistributes_are_deferred() { return deferring; }

Tensor redistribute_later(const DTensor& source, const Layout& target) {
  Tensor result = Tensor::empty(source.device(), make_spec(source.mesh(), target, source.shape()),
                                source.dtype());
  result.storage()->pending =
      Ticket(std::make_shared<DeferredTicket>(source.detach(), target, result));
  return result;
}

}  // namespace coshard
