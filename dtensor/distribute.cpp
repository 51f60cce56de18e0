#include "dtensor/distribute.h"

#include "dtensor/redistribute/plan.h"
#include "dtensor/tape.h"

namespace coshard {
namespace {

class FromLocalRecord final : public Record {
 public:
  explicit FromLocalRecord(const Layout& wanted) : wanted_(wanted) {}
  std::string_view name() const override { return "from_local"; }
  void backward(std::span<const Tensor> output_grads, GradSink& sink) override {
    sink.give(0, redistribute_raw(output_grads[0], wanted_).raw_local());
  }

 private:
  Layout wanted_;
};

class ToLocalRecord final : public Record {
 public:
  explicit ToLocalRecord(std::shared_ptr<const Spec> gradient_spec)
      : gradient_spec_(std::move(gradient_spec)) {}
  std::string_view name() const override { return "to_local"; }
  void backward(std::span<const Tensor> output_grads, GradSink& sink) override {
    sink.give(0, output_grads[0].with_spec(gradient_spec_));
  }

 private:
  std::shared_ptr<const Spec> gradient_spec_;
};

Shape logical_shape(const Tensor& local, const DeviceMesh& mesh, const Layout& layout) {
  Shape shape = local.local_shape();
  for (int m = 0; m < layout.ndim(); ++m)
    if (layout[m].kind == PlacementKind::Shard || layout[m].kind == PlacementKind::StridedShard)
      shape[static_cast<std::size_t>(layout[m].dim)] *= mesh.size(m);
  return shape;
}

void require_fit(const Layout& placements, const DeviceMesh& mesh, const char* what) {
  CS_REQUIRE(mesh.defined(), what, ": the mesh is undefined");
  CS_REQUIRE(placements.ndim() == mesh.ndim(), what, ": layout ", placements, " has ",
             placements.ndim(), " entries, the mesh ", mesh, " has ", mesh.ndim(), " dimensions");
}

// Sends `whole` (valid on the source) so that every rank of the mesh dimension has it.
Tensor broadcast_along(const Tensor& whole, const DeviceMesh& mesh, int m, int source) {
  Communicator& comm = mesh.communicator(m);
  Tensor out = Tensor::empty(whole.device(), whole.local_shape(), whole.dtype());
  const Tensor from = whole.is_contiguous() ? whole : copy_of(whole);
  Collective c;
  c.kind = CollectiveKind::Broadcast;
  c.root = source;
  c.extent = numel(whole.local_shape());
  c.label = "distribute";
  issue_into(comm, c, from, out);
  return out;
}

Tensor scatter_along(const Tensor& whole, const DeviceMesh& mesh, int m, int dim, int source) {
  Communicator& comm = mesh.communicator(m);
  Shape shape = whole.local_shape();
  const auto at = static_cast<std::size_t>(dim);
  std::vector<std::int64_t> counts;
  for (int r = 0; r < comm.size(); ++r) counts.push_back(chunk_of(shape[at], comm.size(), r).size);
  const Tensor from = whole.is_contiguous() ? whole : copy_of(whole);
  Collective c;
  c.kind = CollectiveKind::Scatter;
  c.root = source;
  c.extent = shape[at];
  for (std::size_t d = 0; d < at; ++d) c.outer *= shape[d];
  for (std::size_t d = at + 1; d < shape.size(); ++d) c.inner *= shape[d];
  shape[at] = counts[static_cast<std::size_t>(comm.rank())];
  c.counts = std::make_shared<const std::vector<std::int64_t>>(std::move(counts));
  Tensor out = Tensor::empty(whole.device(), shape, whole.dtype());
  c.label = "distribute";
  issue_into(comm, c, from, out);
  return out;
}

}  // namespace

DTensor from_local(const Tensor& local, const DeviceMesh& mesh, const Layout& placements,
                   const FromLocalOptions& options) {
  CS_REQUIRE(local.defined() && !local.is_distributed(), "from_local: ", local,
             " is not a plain tensor");
  require_fit(placements, mesh, "from_local");
  const Layout layout = normalize(placements, local.local_shape(), "from_local");
  const Shape shape = options.shape ? *options.shape : logical_shape(local, mesh, layout);
  CS_REQUIRE(shape.size() == local.local_shape().size(), "from_local: shape ", shape, " for ",
             local);
  auto spec = make_spec(mesh, layout, shape);
  CS_REQUIRE(spec->local_shape == local.local_shape(), "from_local: ", local, " on rank ",
             mesh.world().rank(), ", but ", describe(*spec), " gives it ", spec->local_shape);
  Tensor value = local;
  if (options.run_check) {
    for (int m = 0; m < layout.ndim(); ++m)
      if (layout[m].is_replicate() && mesh.size(m) > 1) value = broadcast_along(value, mesh, m, 0);
  }
  Tensor out = value.with_spec(std::move(spec));
  const Tensor inputs[] = {local};
  if (taped(inputs)) {
    const Layout wanted = options.grad_placements
                              ? normalize(*options.grad_placements, shape, "from_local")
                              : partial_as_replicate(layout);
    push_record(std::make_shared<FromLocalRecord>(wanted), inputs, std::span<Tensor>(&out, 1));
  }
  return out;
}

Tensor to_local(const DTensor& tensor, std::optional<Layout> grad_placements) {
  CS_REQUIRE(tensor.defined() && tensor.is_distributed(), "to_local: ", tensor,
             " is a plain tensor");
  Tensor out = tensor.raw_local();
  const Tensor inputs[] = {tensor};
  if (taped(inputs)) {
    const Layout layout =
        grad_placements ? *grad_placements : partial_as_replicate(tensor.layout());
    require_fit(layout, tensor.mesh(), "to_local: grad_placements");
    push_record(std::make_shared<ToLocalRecord>(make_spec(tensor.mesh(), layout, tensor.shape())),
                inputs, std::span<Tensor>(&out, 1));
  }
  return out;
}

Tensor full_tensor(const DTensor& tensor, std::optional<Layout> grad_placements) {
  CS_REQUIRE(tensor.defined() && tensor.is_distributed(), "full_tensor: ", tensor,
             " is a plain tensor");
  const Redistribution whole =
      redistribute(tensor, Layout::filled(tensor.mesh().ndim(), Replicate()));
  Tensor out = to_local(whole.tensor(), grad_placements);
  out.wait();
  return out;
}

DTensor distribute_tensor(const Tensor& full, const DeviceMesh& mesh, const Layout& placements,
                          std::optional<int> src_data_rank) {
  CS_REQUIRE(full.defined() && !full.is_distributed(), "distribute_tensor: ", full,
             " is not a plain tensor");
  require_fit(placements, mesh, "distribute_tensor");
  const Layout layout = normalize(placements, full.local_shape(), "distribute_tensor");
  Tensor value = full.detach();
  if (src_data_rank) {
    for (int m = 0; m < mesh.ndim(); ++m) {
      CS_REQUIRE(*src_data_rank >= 0 && *src_data_rank < mesh.size(m),
                 "distribute_tensor: src_data_rank ", *src_data_rank, " on ", mesh);
      if (mesh.size(m) == 1) continue;
      value = layout[m].is_shard() ? scatter_along(value, mesh, m, layout[m].dim, *src_data_rank)
                                   : broadcast_along(value, mesh, m, *src_data_rank);
    }
    value = value.with_spec(make_spec(mesh, partial_as_replicate(layout), full.local_shape()));
  } else {
    value = value.with_spec(
        make_spec(mesh, Layout::filled(mesh.ndim(), Replicate()), full.local_shape()));
  }
  value = redistribute_raw(value, layout);
  if (value.storage() == full.storage()) value = copy_of(value);
  value.wait();
  DTensor out = value.detach();
  if (full.requires_grad()) out.set_requires_grad(true);
  return out;
}

}  // namespace coshard
