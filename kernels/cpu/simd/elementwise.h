#pragma once
// Elementwise loops. A body runs over whole registers only; what lies elsewhere goes through blocks
// that are filled and emptied by code that all loops share. Only included by the sources of this
// directory.
#include <initializer_list>

#include "kernels/cpu/simd/strided.h"

namespace coshard::kernels::cpu::COSHARD_ISA {

constexpr int kMostOperands = 5;
constexpr std::int64_t kBlock = 512;  // elements

// `count` elements of each operand, a multiple of kLanes. The next register is `step` elements
// ahead: kLanes, or 0 for an element that is repeated.
struct Registers {
  char* at[kMostOperands];
  std::int64_t step[kMostOperands];
  std::int64_t count;
  Real a, b;  // parameters

  template <class T>
  COSHARD_INLINE T* of(int operand) const {
    return reinterpret_cast<T*>(at[operand]);
  }
};
using Body = void (*)(const Registers& registers);

struct Operand {
  DType dtype;
  const void* data;
  std::int64_t stride;
};
// The results are the first operands.
struct Elementwise {
  Body body;
  int results, operands;
  Operand of[kMostOperands];
  Real a = 0, b = 0;
};

inline char* element_at(DType dtype, const void* data, std::int64_t at) {
  return const_cast<char*>(as<char>(data)) + at * static_cast<std::int64_t>(size_of(dtype));
}

template <class Word>
[[gnu::noinline]] void copy_strided(void* to, std::int64_t to_stride, const void* from,
                                    std::int64_t from_stride, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::memcpy(as<Word>(to) + i * to_stride, as<Word>(from) + i * from_stride, sizeof(Word));
  }
}
inline void copy_elements(DType dtype, void* to, std::int64_t to_stride, const void* from,
                          std::int64_t from_stride, std::int64_t count) {
  switch (size_of(dtype)) {
    case 1: return copy_strided<std::uint8_t>(to, to_stride, from, from_stride, count);
    case 2: return copy_strided<std::uint16_t>(to, to_stride, from, from_stride, count);
    case 4: return copy_strided<std::uint32_t>(to, to_stride, from, from_stride, count);
    default: return copy_strided<std::uint64_t>(to, to_stride, from, from_stride, count);
  }
}

// A row of `count` elements; the offset of each operand's first is first[k].
struct Row {
  const Elementwise& loop;
  const std::int64_t* first;
  std::int64_t count;

  // An element that all others repeat.
  bool repeats(int k) const { return k >= loop.results && loop.of[k].stride == 0; }
  // Whether the body can read and write the operand where it lies.
  bool lies_here(int k) const { return loop.of[k].stride == 1; }
  char* at(int k, std::int64_t done) const {
    const Operand& operand = loop.of[k];
    return element_at(operand.dtype, operand.data, first[k] + done * operand.stride);
  }
};

// In blocks, of which the last may end in a part of a register.
[[gnu::noinline]] inline void run_blocks(const Row& row, Registers registers) {
  alignas(64) char blocks[kMostOperands][kBlock * sizeof(Real)];
  const Elementwise& loop = row.loop;
  for (std::int64_t done = 0; done < row.count; done += kBlock) {
    const std::int64_t here = row.count - done < kBlock ? row.count - done : kBlock;
    registers.count = (here + kLanes - 1) / kLanes * kLanes;
    for (int k = 0; k < loop.operands; ++k) {
      if (row.repeats(k)) continue;
      const Operand& operand = loop.of[k];
      registers.at[k] = row.lies_here(k) && here == registers.count ? row.at(k, done) : blocks[k];
      if (k < loop.results || registers.at[k] != blocks[k]) continue;
      const auto bytes = kLanes * static_cast<std::int64_t>(size_of(operand.dtype));
      std::memset(blocks[k] + registers.count / kLanes * bytes - bytes, 0, bytes);
      copy_elements(operand.dtype, blocks[k], 1, row.at(k, done), operand.stride, here);
    }
    loop.body(registers);
    for (int k = 0; k < loop.results; ++k) {
      const Operand& operand = loop.of[k];
      if (registers.at[k] != blocks[k]) continue;
      copy_elements(operand.dtype, row.at(k, done), operand.stride, blocks[k], 1, here);
    }
  }
}

inline void run_row(const Row& row) {
  alignas(64) char parts[kMostOperands][kBytes];
  const Elementwise& loop = row.loop;
  Registers registers;
  registers.a = loop.a;
  registers.b = loop.b;
  bool all_lie_here = true;
  for (int k = 0; k < loop.operands; ++k) {
    registers.at[k] = row.at(k, 0);
    registers.step[k] = kLanes;
    if (row.repeats(k)) {
      copy_elements(loop.of[k].dtype, parts[k], 1, registers.at[k], 0, kLanes);
      registers.at[k] = parts[k];
      registers.step[k] = 0;
    } else if (!row.lies_here(k)) {
      all_lie_here = false;
    }
  }
  if (!all_lie_here) return run_blocks(row, registers);
  registers.count = row.count / kLanes * kLanes;
  if (registers.count > 0) loop.body(registers);
  const std::int64_t rest = row.count - registers.count;
  if (rest == 0) return;
  for (int k = 0; k < loop.operands; ++k) {
    if (row.repeats(k)) continue;
    registers.at[k] = parts[k];
    if (k < loop.results) continue;
    std::memset(parts[k], 0, kBytes);
    std::memcpy(parts[k], row.at(k, registers.count), rest * size_of(loop.of[k].dtype));
  }
  const std::int64_t done = registers.count;
  registers.count = kLanes;
  loop.body(registers);
  for (int k = 0; k < loop.results; ++k) {
    std::memcpy(row.at(k, done), parts[k], rest * size_of(loop.of[k].dtype));
  }
}

// Runs the body over `count` contiguous elements of operands of one dtype.
inline void run_contiguous(Body body, DType dtype, std::int64_t count, int results,
                           std::initializer_list<const void*> data, Real a = 0, Real b = 0) {
  Elementwise loop{body, results, 0, {}, a, b};
  for (const void* operand : data) loop.of[loop.operands++] = {dtype, operand, 1};
  parallel(count, kGrain, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t first[kMostOperands] = {begin, begin, begin, begin, begin};
    run_row({loop, first, end - begin});
  });
}

}  // namespace coshard::kernels::cpu::COSHARD_ISA
