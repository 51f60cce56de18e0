#include <coshard/dtensor/local_map.h>
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

// The input as `wanted` lays it, its redistribute issued.
Tensor placed_input(const Tensor& x, std::size_t i, const LocalMapOptions& options) {
  if (!options.in_placements) return x;
  const std::optional<Layout>& wanted = (*options.in_placements)[i];
  CS_REQUIRE(wanted, "local_map: input ", i, " is ", x, " and has no layout in in_placements");
  const Layout layout = normalize(*wanted, x.shape(), "local_map: in_placements");
  if (x.layout() == layout) return x;
  CS_REQUIRE(options.redistribute_inputs, "local_map: input ", i, " is ", x, ", in_placements say ",
             layout, "; redistribute it or set redistribute_inputs");
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
    CS_REQUIRE(options.in_placements->size() == inputs, "local_map: ", inputs, " inputs, ",
               options.in_placements->size(), " in_placements");
  if (options.in_grad_placements)
    CS_REQUIRE(options.in_grad_placements->size() == inputs, "local_map: ", inputs, " inputs, ",
               options.in_grad_placements->size(), " in_grad_placements");
}

void wrap_outputs(std::vector<Tensor>& outputs, const DeviceMesh& mesh,
                  const OptionalLayouts& layouts) {
  CS_REQUIRE(outputs.size() == layouts.size(), "local_map: the function gave ", outputs.size(),
             " outputs, out_placements has ", layouts.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    Tensor& y = outputs[i];
    CS_REQUIRE(!y.defined() || !y.is_distributed(), "local_map: output ", i, " is ", y,
               ", not a local tensor");
    if (!layouts[i]) continue;
    CS_REQUIRE(y.defined(), "local_map: output ", i, " is missing, out_placements say ",
               *layouts[i]);
    y = from_local(y, mesh, *layouts[i]);
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
  for (std::size_t i = 0; i < local.size(); ++i) local[i] = local_input(local[i], i, options);
  std::vector<Tensor> outputs = fn(local);
  if (distributed) wrap_outputs(outputs, mesh, options.out_placements);
  return outputs;
}

}  // namespace coshard
