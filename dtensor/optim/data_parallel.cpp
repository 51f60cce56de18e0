#include <coshard/dtensor/optim/data_parallel.h>

#include <unordered_set>
#include <utility>

#include "dtensor/distribute/replicas.h"
#include "dtensor/optim/gradient_buckets.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

// Each parameter once, without those that are frozen.
std::vector<Tensor> trained(std::vector<Tensor> parameters) {
  std::vector<Tensor> found;
  std::unordered_set<const void*> seen;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    Tensor& p = parameters[i];
    CS_REQUIRE(p.defined() && p.is_leaf(), "DataParallel: parameter ", i, " (", p,
               ") is not a leaf");
    if (p.requires_grad() && seen.insert(p.id()).second) found.push_back(std::move(p));
  }
  CS_REQUIRE(!found.empty(), "DataParallel: none of ", parameters.size(),
             " parameters requires a gradient");
  return found;
}

}  // namespace

DataParallel::DataParallel(std::vector<Tensor> parameters, const DeviceMesh& mesh, int dim,
                           DataParallelOptions options, CallSite site) {
  const UserCall user(constructed_at(site));
  CS_REQUIRE(mesh.defined() && dim >= 0 && dim < mesh.ndim(), "DataParallel: dimension ", dim,
             " is out of range for mesh ", mesh);
  CS_REQUIRE(options.reduce == Reduce::Sum || options.reduce == Reduce::Avg,
             "DataParallel: reduce must be Sum or Avg, got ", to_string(options.reduce));
  CS_REQUIRE(options.bucket_bytes >= 0, "DataParallel: bucket_bytes is ", options.bucket_bytes);
  std::vector<Tensor> all = trained(std::move(parameters));
  for (std::size_t i = 0; i < all.size() && options.find_unused_parameters; ++i)
    CS_REQUIRE(!all[i].is_distributed(), "DataParallel: find_unused_parameters, but ",
               name_of_parameter(all[i], i),
               " is a DTensor, whose gradient may be Partial on ranks that "
               "reach it; pass the plain parameters to a DataParallel of their own");
  if (options.src_data_rank)
    take_replicas_of(*options.src_data_rank, all, mesh, dim, "DataParallel");
  if (mesh.size(dim) == 1) return;
  buckets_ = std::make_shared<GradientBuckets>(std::move(all), mesh, dim, options);
  buckets_->adopt_parameters();
}

DataParallel::~DataParallel() = default;

void DataParallel::set_requires_gradient_sync(bool on) {
  if (buckets_) buckets_->set_sync(on);
}

std::vector<std::int64_t> DataParallel::bucket_bytes() const {
  return buckets_ ? buckets_->bytes() : std::vector<std::int64_t>();
}

}  // namespace coshard
