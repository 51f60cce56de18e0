#include "dtensor/ops/products.h"

#include <coshard/dtensor/ops/ops.h>
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

void require_ranks(const char* op, const Tensor& a, int a_dims, const Tensor& b, int b_dims) {
  CS_REQUIRE(a.ndim() == a_dims && b.ndim() == b_dims, op, ": ", a, " and ", b, " are not ", a_dims,
             "-D and ", b_dims, "-D");
}

}  // namespace

Tensor mm(const Tensor& a, const Tensor& b, CallSite site) {
  const OperatorCall user(site);
  require_ranks("mm", a, 2, b, 2);
  return matmul(a, b);
}

Tensor bmm(const Tensor& a, const Tensor& b, CallSite site) {
  const OperatorCall user(site);
  require_ranks("bmm", a, 3, b, 3);
  CS_REQUIRE(a.size(0) == b.size(0), "bmm: batches differ: ", a, " and ", b);
  return matmul(a, b);
}

Tensor mv(const Tensor& a, const Tensor& v, CallSite site) {
  const OperatorCall user(site);
  require_ranks("mv", a, 2, v, 1);
  return matmul(a, v);
}

Tensor dot(const Tensor& a, const Tensor& b, CallSite site) {
  const OperatorCall user(site);
  require_ranks("dot", a, 1, b, 1);
  return matmul(a, b);
}

Tensor outer(const Tensor& a, const Tensor& b, CallSite site) {
  const OperatorCall user(site);
  require_ranks("outer", a, 1, b, 1);
  return mul(view(a, Shape{a.size(0), 1}), view(b, Shape{1, b.size(0)}));
}

}  // namespace coshard
