#include "dtensor/ops/output_place.h"

#include <utility>

#include <coshard/runtime/coro/rank_context.h>

namespace coshard {
namespace {

const RankLocal<Tensor> open_place;

}  // namespace

OutputPlace::OutputPlace(Tensor memory) : outer_(std::exchange(*open_place, std::move(memory))) {}

OutputPlace::~OutputPlace() { *open_place = std::move(outer_); }

Tensor OutputPlace::take(const std::shared_ptr<Device>& device, const Shape& shape, DType dtype) {
  Tensor& place = *open_place;
  if (!place.defined()) [[likely]]
    return {};
  if (place.dtype() != dtype || place.local_numel() != numel(shape) || place.device() != device)
    return {};
  const Tensor taken = std::exchange(place, Tensor());
  return taken.view_as(shape, row_major(shape), taken.storage_offset(), nullptr);
}

}  // namespace coshard
