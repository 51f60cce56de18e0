// Prints tensors: values as PyTorch shows them, then dtype, shape and layout.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <range/v3/view/zip.hpp>

#include <coshard/dtensor/tensor/tensor.h>
#include "dtensor/tensor/copied_view.h"
#include "dtensor/tensor/deferred_values.h"
#include "runtime/device/graph.h"

namespace coshard {
namespace {

constexpr std::int64_t kAllShown = 1000;  // elements
constexpr std::int64_t kEdge = 3;         // shown at both ends of a dimension if there are more
constexpr std::size_t kLine = 80;         // characters

// Numbers in order, all of the same width.
class ShownNumbers {
 public:
  ShownNumbers(DType dtype, std::vector<double> values)
      : dtype_(dtype), values_(std::move(values)) {
    choose_form();
    for (double value : values_) width_ = std::max(width_, text(value).size());
  }
  std::string next() {
    const std::string shown = text(values_[at_++]);
    return std::string(width_ - shown.size(), ' ') + shown;
  }
  std::size_t width() const { return width_; }

 private:
  // Integers as "2.", others with four digits; very large, small or mixed ones with an exponent.
  void choose_form() {
    double least = INFINITY, most = 0;
    for (double value : values_) {
      if (!std::isfinite(value)) continue;
      whole_ = whole_ && value == std::floor(value);
      if (value != 0) least = std::min(least, std::abs(value));
      most = std::max(most, std::abs(value));
    }
    exponent_ = most >= 1e8 || (!whole_ && most > 0 && (least < 1e-4 || most / least > 1e3));
    if (whole_ && most < 1e8) exponent_ = false;
  }
  std::string text(double value) const {
    if (dtype_ == DType::Bool) return value != 0 ? "true" : "false";
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
    const char* form = !is_floating(dtype_) && !is_float8(dtype_) ? "{:.0f}"
                       : exponent_                                ? "{:.4e}"
                       : whole_                                   ? "{:.0f}."
                                                                  : "{:.4f}";
    return fmt::format(fmt::runtime(form), value);
  }

  DType dtype_;
  std::vector<double> values_;
  bool whole_ = true, exponent_ = false;
  std::size_t width_ = 0, at_ = 0;
};

// The positions along a dimension that are shown; -1 stands for those left out.
std::vector<std::int64_t> shown_positions(std::int64_t size, bool all) {
  std::vector<std::int64_t> positions;
  for (std::int64_t i = 0; i < size; ++i) {
    if (all || size <= 2 * kEdge || i < kEdge || i >= size - kEdge) positions.push_back(i);
    if (!all && size > 2 * kEdge && i == kEdge) positions.push_back(-1);
  }
  return positions;
}

class Printer {
 public:
  Printer(std::ostream& out, const Tensor& x)
      : out_(out), x_(x), all_(x.local_numel() <= kAllShown), numbers_(x.dtype(), values()) {}
  void print() { print_dim(0); }

 private:
  // Only the values that are shown, so that a large tensor is not copied.
  std::vector<double> values() const {
    if (all_) return x_.to_vector();
    std::vector<double> found;
    gather(0, x_.storage_offset(), found);
    return found;
  }
  void gather(std::size_t dim, std::int64_t offset, std::vector<double>& found) const {
    if (dim == x_.local_shape().size()) {
      found.push_back(x_.view_as({}, {}, offset, nullptr).to_vector().front());
      return;
    }
    for (auto i : shown_positions(x_.local_shape()[dim], all_))
      if (i >= 0) gather(dim + 1, offset + i * x_.strides()[dim], found);
  }
  void print_dim(std::size_t dim) {
    if (dim == x_.local_shape().size()) {
      out_ << numbers_.next();
      return;
    }
    const bool last = dim + 1 == x_.local_shape().size();
    const std::size_t per_line =
        std::max<std::size_t>(1, kLine / std::max<std::size_t>(1, numbers_.width() + 2));
    out_ << '[';
    std::size_t count = 0;
    for (auto i : shown_positions(x_.local_shape()[dim], all_)) {
      if (count > 0) separate(dim, last && count % per_line != 0);
      ++count;
      if (i < 0)
        out_ << "...";
      else
        print_dim(dim + 1);
    }
    out_ << ']';
  }
  void separate(std::size_t dim, bool same_line) {
    out_ << ',';
    if (same_line) {
      out_ << ' ';
      return;
    }
    const std::size_t lines = std::max<std::size_t>(1, x_.local_shape().size() - dim - 1);
    out_ << std::string(lines, '\n') << std::string(dim + 1, ' ');
  }

  std::ostream& out_;
  const Tensor& x_;
  bool all_;
  ShownNumbers numbers_;
};

// This rank; the world may be gone.
int rank_in(const DeviceMesh& mesh) {
  int at = 0;
  for (const auto& [size, own] : ranges::views::zip(mesh.shape(), mesh.coordinate()))
    at = at * size + own;
  return mesh.ranks()[static_cast<std::size_t>(at)];
}

// The prefix of the description: which rank's values these are, unless all ranks have them.
std::string part_of(const Tensor& x) {
  if (!x.is_distributed() || x.layout().is_replicate()) return "";
  if (!x.mesh().contains_this_rank()) return "";
  return str_cat("rank ", rank_in(x.mesh()),
                 x.layout().has_partial() ? "'s partial value " : "'s shard ", x.local_shape(),
                 " of ");
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  if (!tensor.defined()) return out << "undefined";
  if (tensor.in_flight()) {
    const WorkState* filled_by = tensor.storage()->pending.state().get();
    const bool deferred = dynamic_cast<const DeferredValues*>(filled_by) != nullptr;
    return out << describe(tensor) << (deferred ? " (deferred)" : " (in flight)");
  }
  if (tensor.copied_view() && tensor.copied_view()->is_behind())
    return out << describe(tensor) << " (a view of what was changed since: take it again)";
  const bool here = !tensor.is_distributed() || tensor.mesh().contains_this_rank();
  const GraphDevice* device = graph_device(*tensor.device());
  if (!here || (device != nullptr && device->recording())) return out << describe(tensor);
  Printer(out, tensor.raw_local()).print();
  return out << (tensor.ndim() == 0 ? " " : "\n") << part_of(tensor) << describe(tensor);
}

}  // namespace coshard
