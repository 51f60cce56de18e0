// The methods of PyTorch's tensors; each calls the function of the same name. Those whose function
// lies in a room above are defined beside it: backward, normal_, uniform_.
#include <coshard/dtensor/ops/from_local.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tape/tape.h>
#include <coshard/dtensor/tensor/tensor.h>

namespace coshard {

Tensor Tensor::requires_grad_(bool value) { return set_requires_grad(value); }

Redistribution Tensor::redistribute(const Layout& layout, CallSite site) const {
  return coshard::redistribute(*this, layout, {}, site);
}

Tensor Tensor::to_local(std::optional<Layout> grad_placements) const {
  return coshard::to_local(*this, grad_placements);
}
Tensor Tensor::full_tensor(std::optional<Layout> grad_placements, CallSite site) const {
  return coshard::full_tensor(*this, grad_placements, site);
}

Tensor Tensor::operator[](IndexAt at) const { return coshard::select(*this, 0, at.index, at.site); }

Tensor Tensor::to(DType dtype, CallSite site) const { return coshard::to(*this, dtype, site); }
Tensor Tensor::clone(CallSite site) const { return coshard::clone(*this, site); }
Tensor Tensor::contiguous(CallSite site) const { return coshard::contiguous(*this, site); }
Tensor Tensor::view(const Shape& shape, CallSite site) const {
  return coshard::view(*this, shape, site);
}
Tensor Tensor::reshape(const Shape& shape, CallSite site) const {
  return coshard::reshape(*this, shape, site);
}
Tensor Tensor::flatten(int start_dim, int end_dim, CallSite site) const {
  return coshard::flatten(*this, start_dim, end_dim, site);
}
Tensor Tensor::unflatten(int dim, const Shape& sizes, CallSite site) const {
  return coshard::unflatten(*this, dim, sizes, site);
}
Tensor Tensor::squeeze(CallSite site) const { return coshard::squeeze(*this, site); }
Tensor Tensor::squeeze(int dim, CallSite site) const { return coshard::squeeze(*this, dim, site); }
Tensor Tensor::unsqueeze(int dim, CallSite site) const {
  return coshard::unsqueeze(*this, dim, site);
}
Tensor Tensor::expand(const Shape& shape, CallSite site) const {
  return coshard::expand(*this, shape, site);
}
Tensor Tensor::repeat(const Shape& repeats, CallSite site) const {
  return coshard::repeat(*this, repeats, site);
}
Tensor Tensor::transpose(int dim0, int dim1, CallSite site) const {
  return coshard::transpose(*this, dim0, dim1, site);
}
Tensor Tensor::t(CallSite site) const { return coshard::t(*this, site); }
Tensor Tensor::permute(const Shape& dims, CallSite site) const {
  return coshard::permute(*this, dims, site);
}
Tensor Tensor::narrow(int dim, std::int64_t start, std::int64_t length, CallSite site) const {
  return coshard::narrow(*this, dim, start, length, site);
}
Tensor Tensor::select(int dim, std::int64_t index, CallSite site) const {
  return coshard::select(*this, dim, index, site);
}
std::vector<Tensor> Tensor::split(std::int64_t size, int dim, CallSite site) const {
  return coshard::split(*this, size, dim, site);
}
std::vector<Tensor> Tensor::chunk(std::int64_t chunks, int dim, CallSite site) const {
  return coshard::chunk(*this, chunks, dim, site);
}
std::vector<Tensor> Tensor::unbind(int dim, CallSite site) const {
  return coshard::unbind(*this, dim, site);
}
Tensor Tensor::sum(const Dims& dims, bool keepdim, CallSite site) const {
  return coshard::sum(*this, dims, keepdim, site);
}
Tensor Tensor::mean(const Dims& dims, bool keepdim, CallSite site) const {
  return coshard::mean(*this, dims, keepdim, site);
}
Tensor Tensor::prod(const Dims& dims, bool keepdim, CallSite site) const {
  return coshard::prod(*this, dims, keepdim, site);
}
Tensor Tensor::amax(const Dims& dims, bool keepdim, CallSite site) const {
  return coshard::amax(*this, dims, keepdim, site);
}
Tensor Tensor::amin(const Dims& dims, bool keepdim, CallSite site) const {
  return coshard::amin(*this, dims, keepdim, site);
}
Tensor Tensor::all(const Dims& dims, bool keepdim, CallSite site) const {
  return coshard::all(*this, dims, keepdim, site);
}
Tensor Tensor::any(const Dims& dims, bool keepdim, CallSite site) const {
  return coshard::any(*this, dims, keepdim, site);
}
Tensor Tensor::var(const Dims& dims, double correction, bool keepdim, CallSite site) const {
  return coshard::var(*this, dims, correction, keepdim, site);
}
Tensor Tensor::norm(double ord, const Dims& dims, bool keepdim, CallSite site) const {
  return coshard::vector_norm(*this, ord, dims, keepdim, site);
}
Tensor Tensor::max(CallSite site) const { return coshard::max(*this, site); }
Tensor Tensor::min(CallSite site) const { return coshard::min(*this, site); }
ValuesAndIndices Tensor::max(int dim, bool keepdim, CallSite site) const {
  return coshard::max(*this, dim, keepdim, site);
}
ValuesAndIndices Tensor::min(int dim, bool keepdim, CallSite site) const {
  return coshard::min(*this, dim, keepdim, site);
}
Tensor Tensor::argmax(std::optional<int> dim, bool keepdim, CallSite site) const {
  return coshard::argmax(*this, dim, keepdim, site);
}
Tensor Tensor::argmin(std::optional<int> dim, bool keepdim, CallSite site) const {
  return coshard::argmin(*this, dim, keepdim, site);
}
ValuesAndIndices Tensor::topk(std::int64_t k, int dim, bool largest, CallSite site) const {
  return coshard::topk(*this, k, dim, largest, site);
}
Tensor Tensor::cumsum(int dim, CallSite site) const { return coshard::cumsum(*this, dim, site); }
Tensor Tensor::softmax(int dim, CallSite site) const { return coshard::softmax(*this, dim, site); }
Tensor Tensor::softmax(int dim, DType dtype, CallSite site) const {
  return coshard::softmax(*this, dim, dtype, site);
}
Tensor Tensor::log_softmax(int dim, CallSite site) const {
  return coshard::log_softmax(*this, dim, site);
}
Tensor Tensor::log_softmax(int dim, DType dtype, CallSite site) const {
  return coshard::log_softmax(*this, dim, dtype, site);
}
Tensor Tensor::gather(int dim, const Tensor& index, CallSite site) const {
  return coshard::gather(*this, dim, index, site);
}
Tensor Tensor::index_select(int dim, const Tensor& index, CallSite site) const {
  return coshard::index_select(*this, dim, index, site);
}
Tensor Tensor::masked_fill(const Tensor& mask, const Scalar& value, CallSite site) const {
  return coshard::masked_fill(*this, mask, value, site);
}
Tensor Tensor::tril(std::int64_t diagonal, CallSite site) const {
  return coshard::tril(*this, diagonal, site);
}
Tensor Tensor::triu(std::int64_t diagonal, CallSite site) const {
  return coshard::triu(*this, diagonal, site);
}
Tensor Tensor::matmul(const Tensor& other, CallSite site) const {
  return coshard::matmul(*this, other, site);
}
Tensor Tensor::mm(const Tensor& other, CallSite site) const {
  return coshard::mm(*this, other, site);
}
Tensor Tensor::add(const Tensor& other, double alpha, CallSite site) const {
  return coshard::add(*this, other, alpha, site);
}
Tensor Tensor::sub(const Tensor& other, double alpha, CallSite site) const {
  return coshard::sub(*this, other, alpha, site);
}
Tensor Tensor::mul(const Tensor& other, CallSite site) const {
  return coshard::mul(*this, other, site);
}
Tensor Tensor::div(const Tensor& other, CallSite site) const {
  return coshard::div(*this, other, site);
}
Tensor Tensor::add(const Scalar& number, double alpha, CallSite site) const {
  return coshard::add(*this, number, alpha, site);
}
Tensor Tensor::sub(const Scalar& number, double alpha, CallSite site) const {
  return coshard::sub(*this, number, alpha, site);
}
Tensor Tensor::mul(const Scalar& number, CallSite site) const {
  return coshard::mul(*this, number, site);
}
Tensor Tensor::div(const Scalar& number, CallSite site) const {
  return coshard::div(*this, number, site);
}
Tensor Tensor::pow(const Scalar& exponent, CallSite site) const {
  return coshard::pow(*this, exponent, site);
}
Tensor Tensor::clamp(std::optional<Scalar> min, std::optional<Scalar> max, CallSite site) const {
  return coshard::clamp(*this, min, max, site);
}
Tensor Tensor::abs(CallSite site) const { return coshard::abs(*this, site); }
Tensor Tensor::neg(CallSite site) const { return coshard::neg(*this, site); }
Tensor Tensor::exp(CallSite site) const { return coshard::exp(*this, site); }
Tensor Tensor::log(CallSite site) const { return coshard::log(*this, site); }
Tensor Tensor::sqrt(CallSite site) const { return coshard::sqrt(*this, site); }
Tensor Tensor::rsqrt(CallSite site) const { return coshard::rsqrt(*this, site); }
Tensor Tensor::square(CallSite site) const { return coshard::square(*this, site); }
Tensor Tensor::relu(CallSite site) const { return coshard::relu(*this, site); }
Tensor Tensor::sigmoid(CallSite site) const { return coshard::sigmoid(*this, site); }
Tensor Tensor::tanh(CallSite site) const { return coshard::tanh(*this, site); }
Tensor Tensor::add_(const Tensor& other, double alpha, CallSite site) const {
  return coshard::add_(*this, other, alpha, site);
}
Tensor Tensor::sub_(const Tensor& other, CallSite site) const {
  return coshard::sub_(*this, other, site);
}
Tensor Tensor::mul_(const Tensor& other, CallSite site) const {
  return coshard::mul_(*this, other, site);
}
Tensor Tensor::div_(const Tensor& other, CallSite site) const {
  return coshard::div_(*this, other, site);
}
Tensor Tensor::add_(const Scalar& number, double alpha, CallSite site) const {
  return coshard::add_(*this, number, alpha, site);
}
Tensor Tensor::sub_(const Scalar& number, CallSite site) const {
  return coshard::sub_(*this, number, site);
}
Tensor Tensor::mul_(const Scalar& number, CallSite site) const {
  return coshard::mul_(*this, number, site);
}
Tensor Tensor::div_(const Scalar& number, CallSite site) const {
  return coshard::div_(*this, number, site);
}
Tensor Tensor::clamp_(std::optional<Scalar> min, std::optional<Scalar> max, CallSite site) const {
  return coshard::clamp_(*this, min, max, site);
}
Tensor Tensor::masked_fill_(const Tensor& mask, const Scalar& value, CallSite site) const {
  return coshard::masked_fill_(*this, mask, value, site);
}
Tensor Tensor::copy_(const Tensor& other, CallSite site) const {
  return coshard::copy_(*this, other, site);
}
Tensor Tensor::fill_(const Scalar& value, CallSite site) const {
  return coshard::fill_(*this, value, site);
}
Tensor Tensor::zero_(CallSite site) const { return coshard::zero_(*this, site); }

}  // namespace coshard
