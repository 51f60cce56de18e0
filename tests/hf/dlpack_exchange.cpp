// Exchanges tensors with the Python that loads this module, for dlpack_test.py.
#include <coshard/coshard.h>

#include <algorithm>
#include <iostream>

using Exchange = DLManagedTensorVersioned* (*)(DLManagedTensorVersioned*);

namespace {
namespace cs = coshard;

constexpr cs::DType kTypes[] = {cs::DType::F32, cs::DType::F64, cs::DType::F16, cs::DType::BF16,
                                cs::DType::I64, cs::DType::I32, cs::DType::Bool};

struct Call {
  int type, read_only;
  Exchange python;
  double *sum_of_taken, *first;
};

void exchange_in(cs::World& world, const Call& call) {
  const cs::DType dtype = kTypes[call.type];
  const bool flag = dtype == cs::DType::Bool;
  std::vector<double> values{0, 1, 2, 3, 4, 5};
  if (flag) values = {0, 1, 0, 1, 0, 1};
  const cs::Tensor x = cs::Tensor::from_values(world.device(), {2, 3}, dtype, values);
  const cs::Tensor columns = cs::transpose(x, 0, 1);
  DLManagedTensorVersioned* const given =
      call.python(cs::to_dlpack(columns, {.read_only = call.read_only != 0}));
  {
    const cs::Tensor taken = cs::from_dlpack(world, given);
    *call.sum_of_taken = cs::sum(cs::to(taken, cs::DType::F64)).item();
    if ((given->flags & DLPACK_FLAG_BITMASK_READ_ONLY) == 0) cs::add_(taken, 1);
  }
  x.mark_written();
  std::ranges::copy(x.to_vector(), call.first);
}

cs::Task<void> run_exchange(cs::World& world, Call call) {
  exchange_in(world, call);
  co_return;
}

}  // namespace

// Gives `python` a transposed [3, 2] tensor of 0 … 5 in a type (a Bool of 0 and 1), and takes another
// back, to which it adds 1 unless that is read-only. Writes its elements to `sum_of_taken`, and those
// of the first, as they are by then, to `first`. 0; 1: an error, on stderr.
extern "C" __attribute__((visibility("default"))) int exchange(int type, int read_only,
                                                               Exchange python,
                                                               double* sum_of_taken,
                                                               double* first) {
  const Call call{type, read_only, python, sum_of_taken, first};
  try {
    cs::run_ranks({}, [&](cs::World& world) { return run_exchange(world, call); });
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
