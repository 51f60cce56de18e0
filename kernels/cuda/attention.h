#pragma once
// Arguments shared by the attention kernels, with and without tensor cores. Used by the .cu files
// only.
#include <algorithm>
#include <cmath>

#include "kernels/cuda/pieces.h"
#include "kernels/cuda/typed.h"

namespace coshard::kernels::cuda {

// A view [b, h, rows, columns] with last stride 1.
template <class T>
struct HeadRows {
  T* data;
  std::int64_t batch, head, row;  // strides
  bool pieces;                    // rows may be read 16 bytes at a time
  char zeros[7];                  // explicit padding, which could otherwise look like an address
  CS_BODY T* at(std::int64_t b, std::int64_t h, std::int64_t i) const {
    return data + b * batch + h * head + i * row;
  }
};
template <class T>
HeadRows<T> head_rows(const View& v) {
  CS_REQUIRE(v.shape[3] <= 1 || v.strides[3] == 1,
             "attention: the last stride of v must be 1, got ", v.strides[3]);
  return {static_cast<T*>(v.data), v.strides[0], v.strides[1], v.strides[2],
          rows_in_pieces(v, 16 / static_cast<int>(sizeof(T)))};
}

// The mask of a call; data null: none.
template <class T>
struct AttentionMask {
  const void* data;
  bool keep;  // Bool: keeps where true; otherwise T, added
  char zeros[7];
  std::int64_t strides[4];
  CS_BODY Wide<T> added(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    const std::int64_t at = b * strides[0] + h * strides[1] + i * strides[2] + j * strides[3];
    if (!keep) return widen(static_cast<const T*>(data)[at]);
    return static_cast<const bool*>(data)[at] ? Wide<T>(0) : -static_cast<Wide<T>>(HUGE_VALF);
  }
};
template <class T>
AttentionMask<T> attention_mask(const View& mask) {
  return {mask.data,
          mask.dtype == DType::Bool,
          {},
          {mask.strides[0], mask.strides[1], mask.strides[2], mask.strides[3]}};
}

struct AttentionSizes {
  std::int64_t batch, heads, kv_heads, tq, tk;
  int dim, value_dim;
  bool causal;
  char zeros[7];
  std::int64_t diagonal;

  // The number of keys that query i attends to.
  CS_BODY std::int64_t visible(std::int64_t i) const {
    const std::int64_t end = i + diagonal + 1;
    return !causal || end > tk ? tk : end < 0 ? 0 : end;
  }
  // The first query that attends to key j.
  CS_BODY std::int64_t first_query(std::int64_t j) const {
    return !causal || j < diagonal ? 0 : j - diagonal;
  }
  CS_BODY std::int64_t kv_head(std::int64_t head) const { return head / (heads / kv_heads); }
};

// The share of the work of a block. Tiles of a head are consecutive, so that the head's other
// operands stay in cache; with `longest_last` in descending order, so that causal blocks with the
// most work start first.
struct AttentionPlace {
  std::int64_t batch, head, first;  // first: row of the tile
};
CS_BODY AttentionPlace attention_place(std::int64_t block, std::int64_t heads, std::int64_t rows,
                                       int tile, bool longest_last) {
  const std::int64_t tiles = (rows + tile - 1) / tile;
  const std::int64_t number = block % tiles;
  const std::int64_t head = block / tiles;
  return {head / heads, head % heads, (longest_last ? tiles - 1 - number : number) * tile};
}
inline std::int64_t attention_blocks(std::int64_t batch, std::int64_t heads, std::int64_t rows,
                                     int tile) {
  return batch * heads * ((rows + tile - 1) / tile);
}

template <class Args>
AttentionSizes attention_sizes(const Args& args) {
  const View& q = args.q;
  const View& k = args.k;
  CS_REQUIRE(k.shape[1] > 0 && q.shape[1] % k.shape[1] == 0, "attention: ", q.shape[1],
             " query heads are not a multiple of ", k.shape[1], " key heads");
  const std::int64_t widest = std::max(q.shape[3], args.v.shape[3]);
  if (widest > 256)
    fail(ErrorKind::Unsupported,
         str_cat("attention on cuda supports head dimensions up to 256, got ", widest));
  return {q.shape[0],
          q.shape[1],
          k.shape[1],
          q.shape[2],
          k.shape[2],
          static_cast<int>(q.shape[3]),
          static_cast<int>(args.v.shape[3]),
          args.causal,
          {},
          args.diagonal};
}

}  // namespace coshard::kernels::cuda
