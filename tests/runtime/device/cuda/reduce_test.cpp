// Reductions over ranks of one process, bit by bit.
#include <sys/mman.h>

#include <cstring>
#include <random>

#include "runtime/comm/local/host/reduce.h"
#include "runtime/device/cuda/reduce.h"
#include "runtime/device/cuda/strided_copy.h"
#include "tests/fake_cuda/on_fake.h"

namespace coshard::testing {
namespace {

using Bytes = std::vector<std::uint8_t>;

// Numbers without NaN, whose payload nobody promises.
Bytes numbers(DType dtype, std::size_t count, std::mt19937& engine) {
  Bytes bytes(count * size_of(dtype));
  std::normal_distribution<float> draw(0, 3);
  for (std::size_t i = 0; i < count; ++i) {
    const float value = draw(engine);
    const auto put = [&](auto number) {
      std::memcpy(bytes.data() + i * sizeof number, &number, sizeof number);
    };
    switch (dtype) {
      case DType::F32: put(value); break;
      case DType::F64: put(double{value} * 1.1); break;
      case DType::BF16: put(BFloat16(value)); break;
      case DType::F16: put(Float16(value)); break;
      case DType::I64: put(static_cast<std::int64_t>(engine()) << 31); break;
      case DType::I32: put(static_cast<std::int32_t>(engine())); break;
      case DType::Bool: put(value > 0); break;
      case DType::F8E4M3:
      case DType::F8E5M2: break;  // not reduced
    }
  }
  return bytes;
}

// Memory of a device that begins `offset` bytes behind a multiple of 256.
struct Place {
  Place(CudaDevice& device, std::size_t bytes, std::size_t offset)
      : buffer(device.make_buffer(bytes + offset + 1)),
        data(static_cast<std::uint8_t*>(buffer->data()) + offset),
        bytes(bytes) {}
  Bytes get() const {
    Bytes read(bytes);
    if (bytes > 0) buffer->device()->download(read.data(), data, bytes);
    return read;
  }
  void put(const Bytes& from) const {
    if (bytes > 0) buffer->device()->upload(data, from.data(), bytes);
  }
  std::shared_ptr<Buffer> buffer;
  std::uint8_t* data;
  std::size_t bytes;
};

struct Ranks {
  int count;
  bool alike;  // their memory and the target lie alike modulo 16
};

void expect_reduced(CudaDevice& device, DType dtype, Reduce reduce, Ranks ranks, std::size_t count,
                    std::mt19937& engine) {
  std::vector<Bytes> values;
  std::vector<Place> places;
  std::vector<const void*> host, there;
  const std::size_t common = engine() % 16;
  const auto place = [&] {
    const std::size_t elements = ranks.alike ? common : engine() % 16;
    return Place(device, count * size_of(dtype), elements * size_of(dtype));
  };
  for (int rank = 0; rank < ranks.count; ++rank) {
    values.push_back(numbers(dtype, count, engine));
    places.push_back(place());
    places.back().put(values.back());
  }
  for (int rank = 0; rank < ranks.count; ++rank) {
    host.push_back(values[static_cast<std::size_t>(rank)].data());
    there.push_back(places[static_cast<std::size_t>(rank)].data);
  }
  const bool in_place = engine() % 2 == 0;
  const Place target = in_place ? places[0] : place();
  reduce_on_device(device, dtype, reduce, there, target.data, static_cast<std::int64_t>(count),
                   device.compute_stream().native());
  Bytes want(target.bytes);
  void* const targets[] = {want.data()};
  reduce_into(dtype, reduce, host, targets, static_cast<std::int64_t>(count));
  EXPECT_EQ(target.get(), want) << to_string(dtype) << " " << to_string(reduce) << " of "
                                << ranks.count << " ranks, " << count << " elements";
}

TEST(ReduceOverRanks, GivesTheNumbersOfTheHostBitByBitAtEveryAlignment) {
  const auto device = fake_device();
  std::mt19937 engine(static_cast<unsigned>(FakeDriver::get().draw()));
  for (const DType dtype :
       {DType::F32, DType::F64, DType::BF16, DType::F16, DType::I64, DType::I32, DType::Bool}) {
    for (const Reduce reduce :
         {Reduce::Sum, Reduce::Avg, Reduce::Min, Reduce::Max, Reduce::Product}) {
      const bool extreme = reduce == Reduce::Min || reduce == Reduce::Max;
      if (!extreme && dtype == DType::Bool) continue;
      if (reduce == Reduce::Avg && !is_floating(dtype)) continue;
      for (const Ranks ranks : {Ranks{1, true}, {2, true}, {3, false}, {16, true}, {19, true}}) {
        // Sums of more than 16 ranks in short floats are rounded on the way.
        if (ranks.count > 16 && size_of(dtype) == 2) continue;
        for (const std::size_t count : {0, 1, 5, 15, 16, 33, 1000})
          expect_reduced(*device, dtype, reduce, ranks, count, engine);
      }
    }
  }
}

}  // namespace
}  // namespace coshard::testing
