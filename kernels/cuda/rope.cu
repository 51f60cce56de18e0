// Rotary embedding: a table of the angles' cosines and sines [seq, dim/2], computed in double once,
// then one pass over the heads in 16-byte pieces where the views allow it.
#include <algorithm>
#include <cmath>

#include "kernels/cuda/pieces.h"
#include "kernels/cuda/typed.h"
#include "runtime/device/buffer.h"

namespace coshard::kernels::cuda {
namespace {

template <class W>
struct alignas(2 * sizeof(W)) RopeAngle {
  W cos, sin;
};

template <class W>
struct RopeTableKernel : PerElement {
  RopeAngle<W>* table;
  std::int64_t seq, half, first_position;
  double theta;
  bool inverse;
  CS_BODY void operator()(Block& block) const {
    for (std::int64_t e = block.grid_thread(); e < seq * half; e += block.grid_threads()) {
      const double power = -2.0 * static_cast<double>(e % half) / static_cast<double>(2 * half);
      const double angle = static_cast<double>(first_position + e / half) * ::pow(theta, power);
      const double sine = ::sin(angle);
      table[e] = {static_cast<W>(::cos(angle)), static_cast<W>(inverse ? -sine : sine)};
    }
  }
};

// A block for each token in turn, a thread for `pieces` of a head's first half.
template <class T, int kPiece>
struct RopeKernel : PerElement {
  using W = Wide<T>;
  struct alignas(kPiece * sizeof(T)) Piece {
    T at[kPiece];
  };
  const RopeAngle<W>* table;
  const T* x;
  T* y;
  std::int64_t tokens, seq;
  std::uint32_t heads, half;
  std::int64_t x_strides[4], y_strides[4];

  CS_BODY void operator()(Block& block) const {
    const std::uint32_t pieces = half / kPiece;
    for (std::int64_t token = block.index(); token < tokens; token += block.count()) {
      const std::int64_t b = token / seq;
      const std::int64_t s = token % seq;
      const T* from = x + b * x_strides[0] + s * x_strides[1];
      T* to = y + b * y_strides[0] + s * y_strides[1];
      for (auto e = static_cast<std::uint32_t>(block.thread()); e < heads * pieces;
           e += static_cast<std::uint32_t>(block.threads())) {
        const std::uint32_t head = e / pieces;
        const std::uint32_t first = e % pieces * kPiece;
        turn(from + head * x_strides[2] + first * x_strides[3],
             to + head * y_strides[2] + first * y_strides[3], table + s * half + first);
      }
    }
  }

  CS_BODY void turn(const T* from, T* to, const RopeAngle<W>* angles) const {
    const Piece low = *reinterpret_cast<const Piece*>(from);
    const Piece high = *reinterpret_cast<const Piece*>(from + half * x_strides[3]);
    Piece new_low, new_high;
    for (int i = 0; i < kPiece; ++i) {
      const RopeAngle<W> angle = angles[i];
      const W l = widen(low.at[i]);
      const W h = widen(high.at[i]);
      new_low.at[i] = static_cast<T>(l * angle.cos - h * angle.sin);
      new_high.at[i] = static_cast<T>(h * angle.cos + l * angle.sin);
    }
    *reinterpret_cast<Piece*>(to) = new_low;
    *reinterpret_cast<Piece*>(to + half * y_strides[3]) = new_high;
  }
};

template <class T, int kPiece>
void rope_heads(CudaDevice& device, const Rope& args, const void* table) {
  const auto& shape = args.x.shape;
  RopeKernel<T, kPiece> kernel{};
  kernel.table = as<RopeAngle<Wide<T>>>(table);
  kernel.x = as<T>(args.x.data);
  kernel.y = as<T>(args.y.data);
  kernel.tokens = shape[0] * shape[1];
  kernel.seq = shape[1];
  kernel.heads = static_cast<std::uint32_t>(shape[2]);
  kernel.half = static_cast<std::uint32_t>(shape[3] / 2);
  for (std::size_t d = 0; d < 4; ++d) {
    kernel.x_strides[d] = args.x.strides[d];
    kernel.y_strides[d] = args.y.strides[d];
  }
  launch(device, "rope", kernel, std::min<std::int64_t>(kernel.tokens, 132 * 32), 256);
}

}  // namespace

void run(CudaDevice& device, const Rope& args) {
  const auto& shape = args.x.shape;
  CS_REQUIRE(shape[3] % 2 == 0, "rotary embedding of an odd dimension ", shape[3]);
  const std::int64_t half = shape[3] / 2;
  if (shape[0] * shape[1] * shape[2] * half == 0) return;
  with_floating(args.x.dtype, [&](auto tag) {
    using T = decltype(tag);
    using Angle = RopeAngle<Wide<T>>;
    const auto table =
        device.make_buffer(static_cast<std::size_t>(shape[1] * half) * sizeof(Angle));
    RopeTableKernel<Wide<T>> angles{};
    angles.table = as<Angle>(table->data());
    angles.seq = shape[1];
    angles.half = half;
    angles.first_position = args.first_position;
    angles.theta = args.theta;
    angles.inverse = args.inverse;
    launch_elements(device, "rope table", angles, shape[1] * half);
    constexpr int kPiece = 16 / sizeof(T);
    if (half % kPiece == 0 && rows_in_pieces(args.x, kPiece) && rows_in_pieces(args.y, kPiece))
      return rope_heads<T, kPiece>(device, args, table->data());
    return rope_heads<T, 1>(device, args, table->data());
  });
}

}  // namespace coshard::kernels::cuda
