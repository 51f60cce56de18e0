#include "dtensor/tensor/local.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "runtime/comm/collective.h"
#include "runtime/device/sim/virtual_device.h"

namespace coshard {
namespace {

struct Bytes {
  std::uintptr_t begin, end;
};
Bytes bytes_of(const Tensor& tensor) {
  const auto begin = reinterpret_cast<std::uintptr_t>(tensor.address());
  if (tensor.local_numel() == 0) return {begin, begin};
  std::int64_t last = 0;
  for (std::size_t i = 0; i < tensor.local_shape().size(); ++i)
    last += (tensor.local_shape()[i] - 1) * tensor.strides()[i];
  return {begin, begin + static_cast<std::size_t>(last + 1) * size_of(tensor.dtype())};
}

}  // namespace

kernels::View view_of(const Tensor& tensor) {
  return view_of(tensor, tensor.local_shape(), tensor.strides());
}

kernels::View view_of(const Tensor& tensor, const Shape& shape, const Strides& strides) {
  kernels::View view;
  view.data =
      const_cast<void*>(tensor.const_data());  // to be read, or written after require_writable
  view.dtype = tensor.dtype();
  view.ndim = static_cast<int>(shape.size());
  std::copy(shape.begin(), shape.end(), view.shape.begin());
  std::copy(strides.begin(), strides.end(), view.strides.begin());
  return view;
}

kernels::View view_of(const Tensor& tensor, const Shape& shape, const Strides& strides,
                      std::int64_t begin) {
  kernels::View view = view_of(tensor, shape, strides);
  view.data =
      static_cast<char*>(view.data) + begin * static_cast<std::int64_t>(size_of(tensor.dtype()));
  return view;
}

kernels::View broadcast_view(const Tensor& tensor, const Shape& shape) {
  Strides strides = Strides::filled(shape.size(), 0);
  const Shape& own = tensor.local_shape();
  const std::size_t lead = shape.size() - own.size();
  for (std::size_t i = 0; i < own.size(); ++i)
    if (own[i] == shape[lead + i]) strides[lead + i] = tensor.strides()[i];
  return view_of(tensor, shape, strides);
}

bool is_same_view(const Tensor& a, const Tensor& b) {
  return a.address() == b.address() && a.dtype() == b.dtype() &&
         a.local_shape() == b.local_shape() && a.strides() == b.strides();
}

bool memory_overlaps(const Tensor& a, const Tensor& b) {
  const Bytes first = bytes_of(a), second = bytes_of(b);
  return first.begin < second.end && second.begin < first.end;
}

namespace {

// Whether indices within these dimensions, from the d-th on, can be `distance` elements apart.
bool can_be_apart(std::int64_t distance, const Shape& a, const Shape& b, const Strides& strides,
                  std::size_t d) {
  if (d == strides.size()) return distance == 0;
  const std::int64_t stride = strides[d], nearest = distance / stride;
  for (const std::int64_t steps : {nearest - 1, nearest, nearest + 1})
    if (steps < a[d] && -steps < b[d] &&
        can_be_apart(distance - steps * stride, a, b, strides, d + 1))
      return true;
  return false;
}

bool steps_over_inner(const Shape& sizes, const Strides& strides) {
  for (std::size_t d = 0; d < strides.size(); ++d) {
    std::int64_t inner = 1;
    for (std::size_t i = d + 1; i < strides.size(); ++i) inner += (sizes[i] - 1) * strides[i];
    if (strides[d] < inner) return false;
  }
  return true;
}

}  // namespace

bool share_elements(const Tensor& a, const Tensor& b) {
  if (!memory_overlaps(a, b)) return false;
  if (a.dtype() != b.dtype() || !(a.strides() == b.strides()) ||
      !steps_over_inner(a.local_shape(), a.strides()) ||
      !steps_over_inner(b.local_shape(), b.strides()))
    return true;
  return can_be_apart(b.storage_offset() - a.storage_offset(), a.local_shape(), b.local_shape(),
                      a.strides(), 0);
}

Tensor filled(const std::shared_ptr<Device>& device, const Shape& shape, double value,
              DType dtype) {
  Tensor out = Tensor::empty(device, shape, dtype);
  kernels::run(*device, kernels::Fill{out.address(), dtype, out.local_numel(), value});
  return out;
}

Tensor local_contiguous(const Tensor& tensor) {
  return tensor.is_contiguous() ? tensor : copy_of(tensor);
}

std::optional<Strides> view_strides(const Shape& from, const Strides& strides, const Shape& to) {
  if (numel(from) == 0) return row_major(to);
  Shape sizes;
  Strides steps;
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (from[i] == 1) continue;
    sizes.push_back(from[i]);
    steps.push_back(strides[i]);
  }
  Strides result = Strides::filled(to.size(), 1);
  std::size_t j = to.size();  // the dimensions of `to` from j on have their strides
  for (std::size_t end = sizes.size(); end > 0;) {
    std::size_t begin =
        end - 1;  // [begin, end) lies in memory like one dimension of `run` elements
    std::int64_t run = sizes[begin];
    while (begin > 0 && steps[begin - 1] == run * steps[end - 1]) run *= sizes[--begin];
    std::int64_t stride = steps[end - 1];
    while (j > 0 && (run > 1 || to[j - 1] == 1)) {
      if (run % to[j - 1] != 0) return std::nullopt;
      --j;
      result[j] = stride;
      stride *= to[j];
      run /= to[j];
    }
    if (run != 1) return std::nullopt;
    end = begin;
  }
  return result;
}

bool is_row_major(const Tensor& x) {
  return x.is_contiguous() && (!x.is_distributed() || !x.logical());
}

void set_logical(const DTensor& x, const Strides& strides) {
  const bool differ = !x.view_as(x.shape(), strides, 0, nullptr).is_contiguous();
  x.set_logical(differ ? std::make_shared<const Strides>(strides) : nullptr);
}

bool strides_forbid(const DTensor& x, const Shape& to) {
  const auto& strides = x.logical();
  return strides && !has_unknown_strides(x) && !view_strides(x.shape(), *strides, to);
}

bool merges_dimensions(const Shape& from, const Shape& to) {
  Strides apart = from;  // of which no two can be merged
  for (std::size_t d = 0; d < apart.size(); ++d) apart[d] = static_cast<std::int64_t>(d) + 1;
  return !view_strides(from, apart, to);
}

Tensor local_reshape(const Tensor& tensor, const Shape& shape) {
  if (tensor.local_shape() == shape) return tensor;
  if (const auto strides = view_strides(tensor.local_shape(), tensor.strides(), shape))
    return tensor.view_as(shape, *strides, tensor.storage_offset(), nullptr);
  const Tensor copy = local_contiguous(tensor);
  return copy.view_as(shape, row_major(shape), copy.storage_offset(), nullptr);
}

Tensor matrix_rows(const Tensor& tensor, int count) {
  const Tensor rows = local_contiguous(tensor);
  const Shape& shape = rows.local_shape();
  const Lines n = lines_of(shape, static_cast<int>(shape.size()) - count, count);
  const Shape flat{n.outer, n.extent};
  return rows.view_as(flat, row_major(flat), rows.storage_offset(), nullptr);
}

Lines lines_of(const Shape& shape, int first, int count) {
  Lines lines;
  for (int i = 0; i < static_cast<int>(shape.size()); ++i) {
    std::int64_t& part = i < first ? lines.outer : i < first + count ? lines.extent : lines.inner;
    part *= shape[static_cast<std::size_t>(i)];
  }
  return lines;
}

std::uint64_t bits_hash(const Tensor& x) {
  if (x.device()->kind() == kSimDevice) return 0;  // it has no data that could differ
  const Tensor local = local_contiguous(x.raw_local());
  const std::size_t bytes = static_cast<std::size_t>(local.local_numel()) * size_of(local.dtype());
  std::vector<std::byte> copy;
  const void* from = local.const_data();
  if (local.device()->kind() != DeviceKind::Cpu) {
    copy.resize(bytes);
    local.device()->download(copy.data(), from, bytes);
    from = copy.data();
  }
  const auto* at = static_cast<const std::byte*>(from);
  std::uint64_t hash = bytes;
  for (std::size_t i = 0; i < bytes; i += sizeof hash) {
    std::uint64_t word = 0;
    std::memcpy(&word, at + i, std::min(sizeof word, bytes - i));
    hash = mix(hash, word);
  }
  return hash;
}

std::uint64_t hash_of_zeros(const Tensor& like) {
  if (like.device()->kind() == kSimDevice) return 0;
  const std::size_t bytes = static_cast<std::size_t>(like.local_numel()) * size_of(like.dtype());
  std::uint64_t hash = bytes;
  for (std::size_t i = 0; i < bytes; i += sizeof hash) hash = mix(hash, 0);
  return hash;
}

}  // namespace coshard
