#include <coshard/dtensor/distribute/local_map.h>

#include <algorithm>

#include <coshard/dtensor/ops/ops.h>
#include "dtensor/ops/run_check.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

// The input in the layout `wanted`, with its redistribute issued.
Tensor placed_input(const Tensor& x, std::size_t i, const LocalMapOptions& options) {
  if (!options.in_placements) return x;
  const std::optional<Layout>& wanted = (*options.in_placements)[i];
  CS_REQUIRE(wanted, "local_map: input ", i, " is ", x, ", but in_placements has no layout for it");
  const Layout layout = normalize(*wanted, x.shape(), "local_map: in_placements");
  if (x.layout() == layout) return x;
  CS_REQUIRE(options.redistribute_inputs, "local_map: input ", i, " is ", x,
             ", but in_placements say ", layout, "; redistribute it or set redistribute_inputs");
  const Redistribution issued = redistribute(x, layout);
  return issued.tensor();
}

Tensor local_input(const Tensor& x, std::size_t i, const LocalMapOptions& options) {
  if (!x.defined() || !x.is_distributed()) return x;
  std::optional<Layout> gradient;
  if (options.in_grad_placements) gradient = (*options.in_grad_placements)[i];
  if (gradient) gradient = normalize(*gradient, x.shape(), "local_map: in_grad_placements");
  return to_local(x, gradient);
}

void check_lengths(std::size_t inputs, const LocalMapOptions& options) {
  if (options.in_placements)
    CS_REQUIRE(options.in_placements->size() == inputs, "local_map: ", inputs, " inputs, but ",
               options.in_placements->size(), " in_placements");
  if (options.in_grad_placements)
    CS_REQUIRE(options.in_grad_placements->size() == inputs, "local_map: ", inputs, " inputs, but ",
               options.in_grad_placements->size(), " in_grad_placements");
}

// Whether dimension e of x is cut over the mesh as dimension d of an output in `layout`.
bool is_cut_alike(const Tensor& x, std::size_t e, const Layout& layout, std::size_t d) {
  for (int m = 0; m < layout.ndim(); ++m) {
    Placement there = x.layout()[m], here = layout[m];
    const bool cut = there.is_sharded(static_cast<int>(e));
    if (cut != here.is_sharded(static_cast<int>(d))) return false;
    if (!cut) continue;
    there.dim = here.dim;
    if (!(there == here)) return false;
  }
  return true;
}

// The logical size of an output's dimension d, which is cut: that of an input's dimension that is
// cut alike and as long on this rank; even shards if there is none.
std::int64_t logical_size(const Tensor& y, std::size_t d, std::int64_t even, const Layout& layout,
                          const DeviceMesh& mesh, std::span<const Tensor> inputs, std::size_t at) {
  std::optional<std::int64_t> found;
  for (const Tensor& x : inputs) {
    if (!x.defined() || !x.is_distributed() || !(x.mesh() == mesh)) continue;
    for (std::size_t e = 0; e < x.shape().size(); ++e) {
      if (x.local_shape()[e] != y.local_shape()[d] || !is_cut_alike(x, e, layout, d)) continue;
      CS_REQUIRE(!found || *found == x.shape()[e], "local_map: output ", at, ", ", y,
                 " on this rank, may have size ", found.value_or(0), " or ", x.shape()[e],
                 " in dimension ", d, ", like the inputs; say which in out_shapes");
      found = x.shape()[e];
    }
  }
  return found.value_or(even);
}

Shape logical_shape(const Tensor& y, const Layout& layout, const DeviceMesh& mesh,
                    std::span<const Tensor> inputs, std::size_t at) {
  Shape shape = even_shape(y.local_shape(), mesh.shape(), layout);
  for (const Placement& cut : layout) {
    if (!cut.is_sharded()) continue;
    const auto d = static_cast<std::size_t>(cut.dim);
    shape[d] = logical_size(y, d, shape[d], layout, mesh, inputs, at);
  }
  return shape;
}

// Output number `at` as a DTensor.
Tensor wrapped(const Tensor& y, const DeviceMesh& mesh, std::span<const Tensor> inputs,
               const LocalMapOptions& options, std::size_t at) {
  const Layout& placements = *options.out_placements[at];
  if (!mesh.contains_this_rank()) return from_local(y, mesh, placements);
  require_layout_of(mesh, placements, "local_map: out_placements");
  std::optional<Shape> given;
  if (at < options.out_shapes.size()) given = options.out_shapes[at];
  const Shape& dims = given ? *given : y.shape();
  const Layout layout = normalize(placements, dims, "local_map: out_placements");
  FromLocalOptions as;
  as.shape = given ? *given : logical_shape(y, layout, mesh, inputs, at);
  const auto spec = make_spec(mesh, layout, *as.shape);
  CS_REQUIRE(spec->local_shape == y.local_shape(), "local_map: output ", at, " is ", y,
             " on this rank, but its shard of ", describe(*spec), " is ", spec->local_shape,
             "; out_shapes says its logical shape");
  // Of uneven parts from_local may not know the strides; of memory that is new, any will do.
  const bool shared = std::ranges::any_of(inputs, [&](const Tensor& x) {
    return x.defined() && x.storage()->buffer == y.storage()->buffer;
  });
  const bool even = even_shape(y.local_shape(), mesh.shape(), layout) == *as.shape;
  const bool own = !even && !shared;
  const Tensor rows = own && !y.is_contiguous() ? contiguous(y) : y;
  if (own) as.stride = row_major(*as.shape);
  const Tensor out = from_local(rows, mesh, layout, as);
  if (!given) note_sizes(out, "called local_map without `out_shapes`, which implies size");
  return out;
}

void wrap_outputs(std::vector<Tensor>& outputs, const DeviceMesh& mesh,
                  std::span<const Tensor> inputs, const LocalMapOptions& options) {
  const OptionalLayouts& layouts = options.out_placements;
  CS_REQUIRE(outputs.size() == layouts.size(), "local_map: the function returned ", outputs.size(),
             " outputs, but out_placements has ", layouts.size());
  CS_REQUIRE(options.out_shapes.empty() || options.out_shapes.size() == outputs.size(),
             "local_map: the function returned ", outputs.size(), " outputs, but out_shapes has ",
             options.out_shapes.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    Tensor& y = outputs[i];
    CS_REQUIRE(!y.defined() || !y.is_distributed(), "local_map: output ", i, " is ", y,
               ", not a local tensor");
    if (!layouts[i]) continue;
    CS_REQUIRE(y.defined(), "local_map: output ", i, " is undefined, but out_placements say ",
               *layouts[i]);
    y = wrapped(y, mesh, inputs, options, i);
  }
}

}  // namespace

std::vector<Tensor> local_map(const std::function<std::vector<Tensor>(std::span<const Tensor>)>& fn,
                              std::span<const Tensor> inputs, const LocalMapOptions& options,
                              CallSite site) {
  const UserCall user(site);
  check_lengths(inputs.size(), options);
  DeviceMesh mesh = options.device_mesh;
  bool distributed = false;
  std::vector<Tensor> local(inputs.begin(), inputs.end());
  for (std::size_t i = 0; i < local.size(); ++i) {
    if (!local[i].defined() || !local[i].is_distributed()) continue;
    distributed = true;
    if (!mesh.defined()) mesh = local[i].mesh();
    local[i] = placed_input(local[i], i, options);
  }
  const std::vector<Tensor> placed = local;
  for (std::size_t i = 0; i < local.size(); ++i) local[i] = local_input(local[i], i, options);
  std::vector<Tensor> outputs = fn(local);
  if (distributed) wrap_outputs(outputs, mesh, placed, options);
  return outputs;
}

}  // namespace coshard
