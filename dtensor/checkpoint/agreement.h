#pragma once
// Steps that all ranks of a world take together, such as those of a save: if one fails, all throw
// the same error. Rank's thread.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <coshard/runtime/coro/task.h>
#include <coshard/runtime/coro/wait_limit.h>
#include <coshard/runtime/launch/world.h>
#include "dtensor/checkpoint/aligned_bytes.h"

namespace coshard {

// `own`: what this rank failed with; null: nothing. Throws that of the first rank that failed, with
// its kind, on all ranks: "rank 1: out/model.safetensors: cannot write …".
//   Moves:   an all_gather of 1 KiB per rank on World::files().
Task<void> agree(World& world, std::exception_ptr own);

// Rank 0's texts, on all ranks. `failed`: what a rank failed with before, thrown as agree does.
//   Moves:   as agree; an all_gather of 8 bytes per rank and a broadcast of the texts.
Task<std::vector<std::string>> texts_of_rank_0(World& world, std::vector<std::string> texts,
                                               std::exception_ptr failed);

// A question of which each call reads the answer to the call before: no rank waits for one that is
// less than a call behind.
class Vote {
 public:
  // Whether all ranks said yes in the call before; false in the first. All ranks call it.
  //   Moves:   an all_gather of a byte per rank on World::files().
  Task<bool> all(World& world, bool own);

 private:
  Work last_;
  std::shared_ptr<const ByteVector> answers_;  // null: it was not asked
};

// How long ranks wait for one that is busy with a disk.
std::chrono::nanoseconds limit_of_disks(const World& world);

// What a collective has received; peers may still read it.
using ReceivedBytes = std::shared_ptr<const ByteVector>;

// The bytes of each rank, in order of ranks, all as many. The same communicator.
Task<ReceivedBytes> gather_bytes(World& world, ByteVector own, std::string_view label);

template <class Number>
Task<std::vector<Number>> gather_numbers(World& world, std::vector<Number> own,
                                         std::string_view label) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(own));
  Task<ReceivedBytes> all = gather_bytes(world, {bytes.begin(), bytes.end()}, label);
  const ReceivedBytes got = co_await std::move(all);
  std::vector<Number> numbers(got->size() / sizeof(Number));
  std::memcpy(numbers.data(), got->data(), got->size());
  co_return numbers;
}

// Sends send_counts[r] bytes to rank r, back to back, and receives recv_counts[r] from it. `pool`: of
// the memory of both, once all ranks are done with it.
Task<ReceivedBytes> exchange_bytes(World& world, ByteVector sent,
                                   std::vector<std::int64_t> send_counts,
                                   std::vector<std::int64_t> recv_counts,
                                   std::shared_ptr<Pool<ByteVector>> pool);

}  // namespace coshard
