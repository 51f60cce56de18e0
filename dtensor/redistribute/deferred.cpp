#include "dtensor/redistribute/deferred.h"

#include "dtensor/ops/local.h"
#include "dtensor/redistribute/follow_up.h"
#include "dtensor/redistribute/redistribute.h"
#include "kernels/run.h"

namespace coshard {
namespace {

thread_local bool deferring = false;

}  // namespace

DeferRedistributes::DeferRedistributes() : before_(deferring) { deferring = true; }
DeferRedistributes::~DeferRedistributes() { deferring = before_; }
bool redistributes_are_deferred() { return deferring; }

Tensor redistribute_later(const DTensor& source, const Layout& target) {
  Tensor result = Tensor::empty(source.device(), make_spec(source.mesh(), target, source.shape()),
                                source.dtype());
  const Tensor place =
      Tensor::alias(result, result.local_shape(), result.strides(), result.storage_offset());
  result.storage()->pending =
      Ticket(std::make_shared<FollowUp>(Ticket(), [source = source.detach(), target, place] {
        const Tensor made = redistribute_raw(source, target);
        kernels::run(*place.device(), kernels::Copy{view_of(place), view_of(made)});
      }));
  return result;
}

}  // namespace coshard
