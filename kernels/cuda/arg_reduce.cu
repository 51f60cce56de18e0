// The extreme of each line and its index: the first of equal ones; the first NaN wins.
#include "kernels/cuda/team.h"

namespace coshard::kernels::cuda {
namespace {

template <class T>
struct ArgReduceKernel : LineKernel<> {
  bool largest;
  const T* x;
  T* values;
  std::int64_t* indices;

  using Best = Placed<Wide<T>>;
  // where < 0: nothing yet
  CS_BODY Best better(const Best& a, const Best& b) const {
    if (a.where < 0 || b.where < 0) return a.where < 0 ? b : a;
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    if (a_nan != b_nan) return a_nan ? a : b;
    if (!a_nan && a.value != b.value) return (a.value < b.value) == largest ? b : a;
    return a.where < b.where ? a : b;
  }
  CS_BODY void operator()(Block& block) const {
    Team team(block, this->shape);
    team.each_line(this->lines(), [&](std::int64_t line) {
      const auto from = this->template span<1>(x, line);
      Best best{};
      best.where = -1;
      each_pack(team, from, [&](const Pack<T, 1>& pack, std::int64_t n) {
        best = better(best, Best{widen(pack.at[0]), n});
      });
      best = team.combine(best, [&](const Best& a, const Best& b) { return better(a, b); });
      if (team.rank() != 0 || line >= this->lines()) return;
      if (values != nullptr) values[line] = *from.at(best.where);
      indices[line] = best.where;
    });
  }
};

}  // namespace

void run(CudaDevice& device, const ArgReduce& args) {
  const bool nothing = args.outer * args.inner == 0;
  CS_REQUIRE(args.extent > 0 || nothing, "argmax, argmin: the dimension is empty");
  with_any(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    ArgReduceKernel<T> kernel{};
    set_lines(kernel, args.outer, args.extent, args.inner);
    kernel.largest = args.largest;
    kernel.x = as<T>(args.x);
    kernel.values = as<T>(args.values);
    kernel.indices = as<std::int64_t>(args.indices);
    launch_lines(device, "place of the extreme", kernel);
  });
}

}  // namespace coshard::kernels::cuda
