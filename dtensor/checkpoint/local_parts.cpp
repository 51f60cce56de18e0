#include "dtensor/checkpoint/local_parts.h"

#include <cstring>

#include <coshard/dtensor/distribute/deferred_init.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tape/tape.h>
#include "dtensor/ops/local.h"
#include "dtensor/ops/recipe.h"
#include "dtensor/ops/writes.h"
#include "dtensor/redistribute/in_flight.h"

namespace coshard {
namespace {

std::byte* bytes_of(const Tensor& part) { return static_cast<std::byte*>(part.address()); }
bool is_on_host(const Tensor& part) { return part.device()->kind() == DeviceKind::Cpu; }

// A file may have any byte but 0 for true.
void normalize_truths(std::span<std::byte> bytes) {
  for (std::byte& b : bytes) b = std::byte{b != std::byte{0}};
}

}  // namespace

bool has_same_bits(const Tensor& a, const Tensor& b) {
  const Tensor x = local_contiguous(a.detach().raw_local()),
               y = local_contiguous(b.detach().raw_local());
  const std::size_t bytes = static_cast<std::size_t>(x.local_numel()) * size_of(x.dtype());
  std::vector<std::byte> of_x(bytes), of_y(bytes);
  if (bytes == 0) return true;
  x.device()->download(of_x.data(), x.address(), bytes);
  y.device()->download(of_y.data(), y.address(), bytes);
  return of_x == of_y;
}

Tensor empty_as(const Tensor& x) {
  const Tensor local = Tensor::empty(x.device(), x.local_shape(), x.dtype());
  return x.is_distributed() ? local.with_spec(x.spec()) : local;
}

std::vector<Tensor> without_partials(std::vector<Tensor> tensors) {
  const NoGradGuard off;
  for (Tensor& x : tensors)
    if (x.is_distributed() && x.layout().has_partial())
      x = redistribute(x, partial_as_replicate(x.layout())).tensor();
  return tensors;
}

void PartsToSave::read(std::size_t i, std::int64_t at, std::span<std::byte> to) {
  Tensor& part = parts_[i];
  if (!part.defined()) {
    part = local_contiguous(cast_local(tensors_[i], types_[i]).raw_local());
    part.wait("save");
  }
  if (is_on_host(part))
    std::memcpy(to.data(), bytes_of(part) + at, to.size());
  else
    part.device()->download(to.data(), bytes_of(part) + at, to.size());
  if (types_[i] == DType::Bool) normalize_truths(to);
}

PartsToLoad::PartsToLoad(std::vector<Tensor> tensors, std::vector<DType> types)
    : tensors_(std::move(tensors)), types_(std::move(types)), parts_(tensors_.size()) {
  const NoGradGuard off;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const Tensor& x = tensors_[i];
    CS_REQUIRE(!x.is_distributed() || !x.layout().has_partial(), "load: ", x,
               " is a sum over ranks, and what is loaded is not; load into a Replicate or a Shard");
    if (const auto recipe = recipe_of(x)) {  // takes memory in put
      if (recipe->covers(x)) continue;
      materialize(x);
    }
    require_writable(x, "load");
    const bool direct =
        x.dtype() == types_[i] && x.raw_local().is_contiguous() && x.copied_view() == nullptr;
    if (direct) parts_[i] = x.raw_local();
  }
}

void PartsToLoad::write(std::size_t i, std::int64_t at, std::span<const std::byte> from) {
  Tensor& part = parts_[i];
  if (part.defined() && part.storage()->buffer == tensors_[i].storage()->buffer)
    tensors_[i].mark_written();  // even if the rest never comes
  if (!part.defined())
    part = Tensor::empty(tensors_[i].device(), tensors_[i].local_shape(), types_[i]);
  std::vector<std::byte> truths;
  if (types_[i] == DType::Bool) {
    truths.assign(from.begin(), from.end());
    normalize_truths(truths);
    from = truths;
  }
  if (is_on_host(part))
    std::memcpy(bytes_of(part) + at, from.data(), from.size());
  else
    part.device()->upload(bytes_of(part) + at, from.data(), from.size());
}

void PartsToLoad::put(std::size_t i) {
  const NoGradGuard off;
  const Tensor& x = tensors_[i];
  const Tensor part = std::exchange(parts_[i], Tensor());
  if (part.defined() && part.storage()->buffer == x.storage()->buffer) return x.mark_written();
  const Tensor read = part.defined() ? part : Tensor::empty(x.device(), x.local_shape(), types_[i]);
  const Tensor value = cast_local(read, x.dtype());
  if (is_deferred(x)) return take_memory(x, value);
  copy_(x, x.is_distributed() ? value.with_spec(x.spec()) : value);
}

}  // namespace coshard
