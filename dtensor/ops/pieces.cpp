// Pieces and padding of a tensor, composed of slice and place.
#include <coshard/dtensor/ops/ops.h>
#include "runtime/coro/user_call.h"

namespace coshard {

Tensor narrow(const Tensor& x, int dim, std::int64_t start, std::int64_t length, CallSite site) {
  const OperatorCall user(site);
  const std::int64_t size = x.size(normalize_dim(dim, x.ndim(), "narrow"));
  const std::int64_t from = start < 0 ? start + size : start;
  CS_REQUIRE(from >= 0 && from <= size && length >= 0 && length <= size - from, "narrow: start ",
             start, ", length ", length, " is out of range along dimension ", dim, " of ", x);
  return slice(x, dim, from, from + length);
}

Tensor select(const Tensor& x, int dim, std::int64_t index, CallSite site) {
  const OperatorCall user(site);
  const int along = normalize_dim(dim, x.ndim(), "select");
  const std::int64_t size = x.size(along);
  const std::int64_t at = index < 0 ? index + size : index;
  CS_REQUIRE(at >= 0 && at < size, "select: index ", index, " is out of range along dimension ",
             dim, " of ", x);
  return squeeze(slice(x, along, at, at + 1), along);
}

std::vector<Tensor> split(const Tensor& x, std::int64_t size, int dim, CallSite site) {
  const OperatorCall user(site);
  CS_REQUIRE(size > 0, "split: split size must be positive, got ", size, " for ", x);
  const std::int64_t extent = x.size(normalize_dim(dim, x.ndim(), "split"));
  const Tensor whole = whole_along(x, dim);
  std::vector<Tensor> pieces;
  for (std::int64_t start = 0; start < extent || start == 0; start += size)
    pieces.push_back(slice(whole, dim, start, std::min(start + size, extent)));
  return pieces;
}

std::vector<Tensor> split(const Tensor& x, std::span<const std::int64_t> sizes, int dim,
                          CallSite site) {
  const OperatorCall user(site);
  const std::int64_t extent = x.size(normalize_dim(dim, x.ndim(), "split"));
  std::int64_t sum = 0;
  for (const std::int64_t size : sizes) {
    CS_REQUIRE(size >= 0, "split: sizes must not be negative, got ", size, " for ", x);
    sum += size;
  }
  CS_REQUIRE(sum == extent, "split: the sizes add up to ", sum, " along dimension ", dim, " of ", x,
             ", which has ", extent);
  const Tensor whole = whole_along(x, dim);
  std::vector<Tensor> pieces;
  std::int64_t start = 0;
  for (const std::int64_t size : sizes) {
    pieces.push_back(narrow(whole, dim, start, size));
    start += size;
  }
  return pieces;
}

std::vector<Tensor> chunk(const Tensor& x, std::int64_t chunks, int dim, CallSite site) {
  const OperatorCall user(site);
  CS_REQUIRE(chunks > 0, "chunk: the number of chunks must be positive, got ", chunks, " for ", x);
  const std::int64_t extent = x.size(normalize_dim(dim, x.ndim(), "chunk"));
  if (extent == 0) return std::vector<Tensor>(static_cast<std::size_t>(chunks), x);
  return split(x, (extent + chunks - 1) / chunks, dim);
}

std::vector<Tensor> unbind(const Tensor& x, int dim, CallSite site) {
  const OperatorCall user(site);
  const std::int64_t extent = x.size(normalize_dim(dim, x.ndim(), "unbind"));
  const Tensor whole = whole_along(x, dim);
  std::vector<Tensor> pieces;
  for (std::int64_t i = 0; i < extent; ++i) pieces.push_back(select(whole, dim, i));
  return pieces;
}

Tensor pad(const Tensor& x, std::span<const std::int64_t> margins, double value, CallSite site) {
  const OperatorCall user(site);
  CS_REQUIRE(margins.size() % 2 == 0 && margins.size() <= 2 * static_cast<std::size_t>(x.ndim()),
             "pad: ", margins.size(), " sizes for ", x,
             "; they come in pairs, at most one per dimension");
  require_fits(value, x.dtype(), "pad");
  Tensor out = x;
  for (std::size_t i = 0; i < margins.size(); i += 2) {
    const int dim = x.ndim() - 1 - static_cast<int>(i / 2);
    const std::int64_t before = margins[i];
    const std::int64_t after = margins[i + 1];
    const std::int64_t size = out.size(dim) + before + after;
    CS_REQUIRE(size >= 0, "pad: ", before, " before and ", after,
               " after leave a negative size in dimension ", dim, " of ", x);
    const std::int64_t start = std::min(std::max<std::int64_t>(-before, 0), out.size(dim));
    const std::int64_t end = std::max(out.size(dim) - std::max<std::int64_t>(-after, 0), start);
    if (start > 0 || end < out.size(dim)) out = slice(out, dim, start, end);
    if (before > 0 || after > 0)
      out = place(out, dim, std::max<std::int64_t>(before, 0), 1, size, value);
  }
  if (out.storage()->buffer == x.storage()->buffer) return clone(out);
  out.set_unwritable(nullptr);
  out.set_logical(nullptr);
  return out;
}

}  // namespace coshard
