#pragma once
// Warp-level bf16 and f16 matrix multiply-accumulate on tensor cores (sm_80 and later), and the
// loads of its operands from shared memory. On the device each is one instruction; the emulator
// computes it from the layouts below. All lanes of a warp must call together.
//
// Layouts (PTX ISA, mma.m16n8k16 with .bf16 or .f16 operands and an .f32 result), with g = lane / 4
// and t = lane % 4. A register holds two elements; the lower column (row, for B) is in its low
// half.
//   A (16 x 16):  at[0] row g,     columns 2t, 2t+1       at[2] row g,     columns 2t+8, 2t+9
//                 at[1] row g + 8, columns 2t, 2t+1       at[3] row g + 8, columns 2t+8, 2t+9
//   B (16 x 8):   at[0] rows 2t, 2t+1, column g           at[1] rows 2t+8, 2t+9, column g
//   C (16 x 8):   at[0], at[1] row g, columns 2t, 2t+1    at[2], at[3] row g + 8, the same columns
#include <coshard/runtime/dtype.h>
#include "runtime/device/cuda/block.h"

#if !defined(__CUDACC__)
#include <cmath>
#endif

namespace coshard {

struct FragmentA {
  std::uint32_t at[4];
};
struct FragmentB {
  std::uint32_t at[2];
};
struct FragmentC {
  float at[4];
};
// Four 8 x 8 matrices of 16-bit elements: at[i] holds this lane's elements of matrix i, row g,
// columns 2t and 2t+1; transposed: column g, rows 2t and 2t+1.
struct FourMatrices {
  std::uint32_t at[4];
};

// The element in the low or the high half of a register.
template <class T>
CS_BODY float half_of(std::uint32_t packed, int high) {
  T value;
  value.bits = static_cast<std::uint16_t>(high != 0 ? packed >> 16 : packed);
  return value;
}

#if defined(__CUDACC__)

// c += a b with elements T, exact products, f32 accumulation.
template <class T>
CS_BODY void multiply_add(Block&, FragmentC& c, const FragmentA& a, const FragmentB& b) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c.at[0]), "+f"(c.at[1]), "+f"(c.at[2]), "+f"(c.at[3])
        : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b.at[0]), "r"(b.at[1]));
  } else {
    static_assert(std::is_same_v<T, Float16>);
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c.at[0]), "+f"(c.at[1]), "+f"(c.at[2]), "+f"(c.at[3])
        : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b.at[0]), "r"(b.at[1]));
  }
}
// Lane l gives the address of row l % 8 of matrix l / 8: 16 bytes of shared memory, 16-byte
// aligned.
CS_BODY FourMatrices load_matrices(Block&, const void* row) {
  FourMatrices m;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m.at[0]), "=r"(m.at[1]), "=r"(m.at[2]), "=r"(m.at[3])
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(row)))
               : "memory");
  return m;
}
CS_BODY FourMatrices load_matrices_transposed(Block&, const void* row) {
  FourMatrices m;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m.at[0]), "=r"(m.at[1]), "=r"(m.at[2]), "=r"(m.at[3])
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(row)))
               : "memory");
  return m;
}
// Two floats rounded to bf16, `low` in the low half.
CS_BODY std::uint32_t pack_bf16(float low, float high) {
  std::uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
CS_BODY std::uint32_t pack_f16(float low, float high) {
  std::uint32_t packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
// 2^x to about 2 ulp; denormal results are flushed to 0.
CS_BODY float quick_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

#else

template <class T>
void multiply_add(Block& block, FragmentC& c, const FragmentA& a, const FragmentB& b) {
  struct Both {
    FragmentA a;
    FragmentB b;
  };
  const auto all = block.gather(Both{a, b});
  for (int i = 0; i < 4; ++i) {
    const int row = block.lane() / 4 + 8 * (i / 2);
    const int column = 2 * (block.lane() % 4) + i % 2;
    for (int k = 0; k < 16; ++k) {
      const auto a_lane = static_cast<std::size_t>(row % 8 * 4 + k % 8 / 2);
      const auto b_lane = static_cast<std::size_t>(column * 4 + k % 8 / 2);
      c.at[i] += half_of<T>(all[a_lane].a.at[row / 8 + 2 * (k / 8)], k % 2) *
                 half_of<T>(all[b_lane].b.at[k / 8], k % 2);
    }
  }
}
CS_BODY FourMatrices load_matrices(Block& block, const void* row) {
  check_aligned(row, 16);
  const auto rows = block.gather(row);
  FourMatrices m;
  for (int i = 0; i < 4; ++i) {
    const auto* from =
        static_cast<const unsigned char*>(rows[static_cast<std::size_t>(8 * i + block.lane() / 4)]);
    std::memcpy(&m.at[i], from + 4 * (block.lane() % 4), 4);
  }
  return m;
}
CS_BODY FourMatrices load_matrices_transposed(Block& block, const void* row) {
  check_aligned(row, 16);
  const auto rows = block.gather(row);
  FourMatrices m;
  for (int i = 0; i < 4; ++i) {
    std::uint16_t two[2];
    for (int e = 0; e < 2; ++e) {
      const auto* from = static_cast<const unsigned char*>(
          rows[static_cast<std::size_t>(8 * i + 2 * (block.lane() % 4) + e)]);
      std::memcpy(&two[e], from + 2 * (block.lane() / 4), 2);
    }
    m.at[i] = two[0] | static_cast<std::uint32_t>(two[1]) << 16;
  }
  return m;
}
CS_BODY std::uint32_t pack_bf16(float low, float high) {
  return BFloat16(low).bits | static_cast<std::uint32_t>(BFloat16(high).bits) << 16;
}
CS_BODY std::uint32_t pack_f16(float low, float high) {
  return Float16(low).bits | static_cast<std::uint32_t>(Float16(high).bits) << 16;
}
CS_BODY float quick_exp2(float x) { return std::exp2(x); }

#endif

// Two floats rounded to T, `low` in the low half.
template <class T>
CS_BODY std::uint32_t pack(float low, float high) {
  if constexpr (std::is_same_v<T, BFloat16>) return pack_bf16(low, high);
  return pack_f16(low, high);
}

}  // namespace coshard
