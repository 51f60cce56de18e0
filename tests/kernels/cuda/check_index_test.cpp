// Indices outside of their dimension.
#include <coshard/runtime/error.h>
#include "tests/kernels/cuda/on_device.h"

namespace coshard::kernels {
namespace {

using namespace testing;

TEST(CudaIndex, LeavesAnIndexOutsideTheDimensionForTheHost) {
  for (const double outside : {3.0, -1.0}) {
    for (const std::int64_t count : {2, 300}) {
      Data index = Data::filled(DType::I64, count, 1);
      index.set(count - 1, outside);
      Data x = Data::filled(DType::F32, 3, 5), src = Data::filled(DType::F32, count, 1);
      const Data out = Data::filled(DType::F32, count, 7);
      OnDevice on;
      const auto refused = [&on](const char* what) {
        try {
          on.device().synchronize();
          ADD_FAILURE() << what << ": no error";
        } catch (const Error& error) {
          EXPECT_EQ(error.kind(), ErrorKind::BadInput);
          EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
          EXPECT_NE(std::string(error.what()).find("a dimension of size 3"), std::string::npos);
        }
      };
      const View of_out = on.put(Data(out).view({count}), out), of_x = on.put(x.view({3}), x);
      const View of_index = on.put(index.view({count}), index);
      on.run(Gather{of_out, of_x, of_index, 0});
      refused("gather: index");
      EXPECT_EQ(on.get(out).get(0), 5);
      EXPECT_EQ(on.get(out).get(count - 1), 0);
      on.run(Scatter{of_x, on.put(src.view({count}), src), of_index, 0, false});
      refused("scatter: index");
      const double set[] = {5, 1, 5};
      for (int i = 0; i < 3; ++i) EXPECT_EQ(on.get(x).get(i), set[i]);
      on.device().synchronize();  // said once
    }
  }
}

}  // namespace
}  // namespace coshard::kernels
