#include "dtensor/checkpoint/agreement.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>

#include <coshard/runtime/device/buffer.h>
#include <coshard/runtime/error.h>

namespace coshard {
namespace {

constexpr std::size_t kRecord = 1024;  // a byte for the kind, then the text

// Kept until all ranks are done with it.
struct HostBytes {
  explicit HostBytes(ByteVector all, std::shared_ptr<Pool<ByteVector>> where = nullptr)
      : bytes(std::move(all)),
        memory(nullptr, bytes.data(), bytes.size(), true),
        pool(std::move(where)) {}
  ~HostBytes() {
    if (pool != nullptr) pool->give(std::move(bytes));
  }
  HostBytes(const HostBytes&) = delete;
  HostBytes& operator=(const HostBytes&) = delete;
  ByteVector bytes;
  Buffer memory;
  std::shared_ptr<Pool<ByteVector>> pool;  // null: none
  static std::shared_ptr<Buffer> buffer_of(const std::shared_ptr<HostBytes>& owner) {
    return {owner, &owner->memory};
  }
};

Collective of_bytes(CollectiveKind kind, const std::shared_ptr<HostBytes>& from,
                    const std::shared_ptr<HostBytes>& to, std::string_view label) {
  Collective c;
  c.kind = kind;
  c.dtype = DType::Bool;
  c.send = from->bytes.data();
  c.recv = to->bytes.data();
  c.keep_send = HostBytes::buffer_of(from);
  c.keep_recv = HostBytes::buffer_of(to);
  c.label = label;
  return c;
}

ByteVector record_of(const std::exception_ptr& error) {
  ByteVector record(kRecord, std::byte{});
  if (!error) return record;
  std::string text = message_of(error);
  ErrorKind kind = ErrorKind::DeviceFailed;
  try {
    std::rethrow_exception(error);
  } catch (const Error& typed) {
    kind = typed.kind();
  } catch (...) {  // of another type: its text is kept
  }
  text.resize(std::min(text.size(), kRecord - 2));
  record[0] = static_cast<std::byte>(static_cast<int>(kind) + 1);
  std::memcpy(record.data() + 1, text.data(), text.size());
  return record;
}

}  // namespace

std::chrono::nanoseconds limit_of_disks(const World& world) {
  const std::chrono::nanoseconds timeout = world.options().timeout;
  constexpr std::chrono::minutes kLeast(30);
  return timeout.count() == 0 ? timeout : std::max<std::chrono::nanoseconds>(timeout, kLeast);
}

Task<ReceivedBytes> gather_bytes(World& world, ByteVector own, std::string_view label) {
  const auto each = static_cast<std::int64_t>(own.size());
  const auto from = std::make_shared<HostBytes>(std::move(own));
  const auto to = std::make_shared<HostBytes>(
      ByteVector(from->bytes.size() * static_cast<std::size_t>(world.size())));
  Collective c = of_bytes(CollectiveKind::AllGather, from, to, label);
  c.extent = each * world.size();
  Work work = world.files().issue(std::move(c));
  co_await work;
  co_return ReceivedBytes(to, &to->bytes);
}

Task<ReceivedBytes> exchange_bytes(World& world, ByteVector sent,
                                   std::vector<std::int64_t> send_counts,
                                   std::vector<std::int64_t> recv_counts,
                                   std::shared_ptr<Pool<ByteVector>> pool) {
  ByteVector received = pool == nullptr ? ByteVector() : pool->take();
  received.resize(static_cast<std::size_t>(
      std::accumulate(recv_counts.begin(), recv_counts.end(), std::int64_t{0})));
  const auto from = std::make_shared<HostBytes>(std::move(sent), pool);
  const auto to = std::make_shared<HostBytes>(std::move(received), pool);
  Collective c = of_bytes(CollectiveKind::AllToAll, from, to, "checkpoint");
  c.send_counts = std::make_shared<const std::vector<std::int64_t>>(std::move(send_counts));
  c.recv_counts = std::make_shared<const std::vector<std::int64_t>>(std::move(recv_counts));
  Work work = world.files().issue(std::move(c));
  co_await work;
  co_return ReceivedBytes(to, &to->bytes);
}

Task<std::vector<std::string>> texts_of_rank_0(World& world, std::vector<std::string> texts,
                                               std::exception_ptr failed) {
  Task<void> agreed = agree(world, std::move(failed));
  co_await std::move(agreed);
  std::vector<std::uint64_t> sizes{texts.size()};  // then the texts
  ByteVector packed;
  if (world.rank() == 0) {
    for (const std::string& text : texts) sizes.push_back(text.size());
    const std::span<const std::byte> head = std::as_bytes(std::span(sizes));
    packed.assign(head.begin(), head.end());
    for (const std::string& text : texts) {
      const std::span<const std::byte> bytes = std::as_bytes(std::span(text));
      packed.insert(packed.end(), bytes.begin(), bytes.end());
    }
  }
  Task<std::vector<std::uint64_t>> telling =
      gather_numbers<std::uint64_t>(world, {packed.size()}, "texts");
  const std::vector<std::uint64_t> told = co_await std::move(telling);
  packed.resize(told[0]);
  const auto from = std::make_shared<HostBytes>(std::move(packed));
  Collective c = of_bytes(CollectiveKind::Broadcast, from, from, "texts");
  c.extent = static_cast<std::int64_t>(told[0]);
  Work work = world.files().issue(std::move(c));
  co_await work;
  const std::byte* next = from->bytes.data();
  const auto take = [&next](void* to, std::size_t size) {
    if (size > 0) std::memcpy(to, next, size);
    next += size;
  };
  std::uint64_t count = 0;
  take(&count, sizeof count);
  sizes.resize(count);
  take(sizes.data(), count * sizeof sizes[0]);
  texts.clear();
  for (const std::uint64_t size : sizes) take(texts.emplace_back(size, '\0').data(), size);
  co_return texts;
}

Task<bool> Vote::all(World& world, bool own) {
  const auto from = std::make_shared<HostBytes>(ByteVector(1, std::byte{own}));
  const auto to =
      std::make_shared<HostBytes>(ByteVector(static_cast<std::size_t>(world.size()), std::byte{}));
  Collective c = of_bytes(CollectiveKind::AllGather, from, to, "checkpoint");
  c.extent = world.size();
  Work asked = world.files().issue(std::move(c));
  Work before = std::exchange(last_, std::move(asked));
  const std::shared_ptr<const ByteVector> answers =
      std::exchange(answers_, std::shared_ptr<const ByteVector>(to, &to->bytes));
  if (answers == nullptr) co_return false;
  co_await before;
  co_return std::ranges::all_of(*answers, [](std::byte b) { return b != std::byte{}; });
}

Task<void> agree(World& world, std::exception_ptr own) {
  Task<ReceivedBytes> gathered = gather_bytes(world, record_of(own), "agree");
  const ReceivedBytes all = co_await std::move(gathered);
  for (int rank = 0; rank < world.size(); ++rank) {
    const std::byte* record = all->data() + kRecord * static_cast<std::size_t>(rank);
    if (record[0] == std::byte{0}) continue;
    const auto kind = static_cast<ErrorKind>(static_cast<int>(record[0]) - 1);
    fail(kind, str_cat("rank ", rank, ": ", reinterpret_cast<const char*>(record + 1)));
  }
}

}  // namespace coshard
