#include "dtensor/ops/overlap_gate.h"

#include <algorithm>
#include <array>

#include <coshard/runtime/cost/link.h>
#include <coshard/runtime/error.h>
#include "dtensor/mesh/calibration.h"

namespace coshard {
namespace {

constexpr std::int64_t kCallNs = 4'000;   // per GEMM: its call, a poll of the collective
constexpr std::int64_t kFewestRows = 32;  // fewer rows take as long
constexpr std::array<int, 4> kPieces{1, 2, 4, 8};
// A forecast must beat the plain schedule by 1 %: with more, layers lose what they could gain.
constexpr std::int64_t kGainOf = 100;

std::int64_t gemm_ns(const OverlapCase& of, std::int64_t rows) {
  return of.row_ns_x1024 > 0 ? rows * of.row_ns_x1024 / 1024 : of.gemm.ns(rows, of.n, of.k);
}

std::int64_t product_ns(const OverlapCase& of, std::int64_t rows) {
  if (rows == 0) return 0;
  const std::int64_t most = std::max(rows, std::min(kFewestRows, of.rows));
  return of.products * (kCallNs + gemm_ns(of, most));
}

std::int64_t whole_product_ns(const OverlapCase& of) {
  const std::int64_t computed =
      of.whole_ns > 0 ? of.whole_ns : of.products * gemm_ns(of, of.ranks * of.rows);
  return of.products * kCallNs + computed;
}

// What contention costs a schedule: a share of the shorter of both times.
std::int64_t lost_ns(const OverlapCase& of, std::int64_t compute_ns, std::int64_t collective_ns) {
  return std::min(compute_ns, collective_ns) * of.contention_x1024 / 1024;
}

// The faster of `best` and a schedule of `pieces`; Overlap::Always: never the plain one. The latter
// computes for `computed` ns and, without other work, ends at `finished`.
Schedule better(const OverlapCase& of, Schedule best, int pieces, std::int64_t computed,
                std::int64_t finished, Overlap overlap) {
  const std::int64_t ns = std::max(finished, computed + of.meanwhile_ns);
  const std::int64_t limit = best ? best.ns - 1 : best.plain_ns - best.plain_ns / kGainOf;
  if (ns <= limit || (!best && overlap == Overlap::Always))
    best = {pieces, ns, best.plain_ns, std::max<std::int64_t>(0, finished - computed)};
  return best;
}

// Other work hides the collective.
Schedule plain(const OverlapCase& of, std::int64_t collective_ns) {
  const std::int64_t ns = whole_product_ns(of) + std::max(collective_ns, of.meanwhile_ns);
  return {0, ns, ns};
}

// When the last of `shards` x `pieces` arrives, if each is sent once it is computed.
std::int64_t sent_by(const OverlapCase& of, int shards, int pieces, std::int64_t piece_ns) {
  const std::int64_t rows = (of.rows + pieces - 1) / pieces;
  std::int64_t computed = 0, free = 0;
  for (int i = 0; i < shards * pieces; ++i) {
    computed += product_ns(of, rows);
    free = std::max(free, computed) + of.latency_ns + piece_ns;
  }
  return free;
}

}  // namespace

Schedule gather_schedule(const OverlapCase& of, Overlap overlap) {
  Schedule best = plain(of, of.latency_ns + (of.ranks - 1) * of.shard_ns);
  if (overlap == Overlap::Off || of.ranks < 2) return best;
  const bool rounds = of.round_ns > 0;
  const std::int64_t first = rounds ? 0 : of.latency_ns, each = rounds ? of.round_ns : of.shard_ns;
  std::int64_t now = product_ns(of, of.rows);
  for (int k = 1; k < of.ranks; ++k)
    now = std::max(now, first + k * each) + product_ns(of, of.rows);
  const std::int64_t computed = of.ranks * product_ns(of, of.rows);
  const std::int64_t lost = lost_ns(of, computed, (of.ranks - 1) * each);
  return better(of, best, 1, computed + lost, now + lost, overlap);
}

Schedule scatter_schedule(const OverlapCase& of, Overlap overlap) {
  Schedule best = plain(of, of.latency_ns + (of.ranks - 1) * of.shard_ns);
  if (overlap == Overlap::Off || of.ranks < 2) return best;
  for (const int pieces : kPieces) {
    if (pieces > 1 && of.rows / pieces < kFewestRows) break;
    const std::int64_t rows = (of.rows + pieces - 1) / pieces;
    const std::int64_t computed = of.ranks * pieces * product_ns(of, rows);
    const std::int64_t sent = sent_by(of, of.ranks - 1, pieces, of.shard_ns / pieces);
    // The calls that sum received rows; a sum takes about a tenth of its data's time on the link.
    const std::int64_t sum = pieces * kCallNs;
    const std::int64_t lost = lost_ns(of, computed, (of.ranks - 1) * of.shard_ns) + sum;
    best = better(of, best, pieces, computed + lost, std::max(computed, sent) + lost, overlap);
  }
  return best;
}

Schedule reduce_schedule(const OverlapCase& of, Overlap overlap) {
  const std::int64_t collective = 2 * (of.ranks - 1) * of.shard_ns;
  Schedule best = plain(of, of.latency_ns + collective);
  if (overlap == Overlap::Off || of.ranks < 2) return best;
  OverlapCase whole = of;
  whole.rows = of.rows * of.ranks;
  for (const int pieces : kPieces) {
    if (pieces == 1) continue;
    if (pieces > 2 && whole.rows / pieces < kFewestRows) break;
    const std::int64_t computed = pieces * product_ns(whole, (whole.rows + pieces - 1) / pieces);
    const std::int64_t sent = sent_by(whole, 1, pieces, collective / pieces);
    const std::int64_t lost = lost_ns(of, whole_product_ns(of), collective);
    best = better(of, best, pieces, computed + lost, sent + lost, overlap);
  }
  return best;
}

void note_schedule(Communicator& communicator, ScheduleKind kind, int pieces) {
  if (pieces == 0) return;
  // Of different lengths, which Notes::add compares, too.
  constexpr std::string_view kChose[] = {"chose shards of an all_gather as they arrive, pieces",
                                         "chose rows of a reduce_scatter, pieces",
                                         "chose rows of an all_reduce, pieces"};
  communicator.note({kChose[static_cast<std::size_t>(kind)], "before collective",
                     static_cast<std::uint64_t>(pieces), communicator.issued()});
}

std::optional<Link> known_link(const DeviceMesh& mesh, int m) {
  const Link& link = mesh.links()[static_cast<std::size_t>(m)];
  return link == Link() ? mesh.world().options().link : link;
}

std::optional<Link> round_link(const DeviceMesh& mesh, const Link& link) {
  if (mesh.world().communicator()->gathers_by_shards()) return std::nullopt;
  // A slice of a mesh has the calibration of the whole: found by its link.
  if (const auto& measured = mesh.calibration())
    for (std::size_t i = 0; i < std::min(measured->links.size(), measured->rounds.size()); ++i)
      if (measured->rounds[i].large_bytes > 0 && measured->links[i].link() == link)
        return measured->rounds[i].link();
  return link;
}

GemmModel gemm_model(const DeviceMesh& mesh, DType dtype) {
  const auto& measured = mesh.calibration();
  const bool cpu = mesh.world().device()->kind() == DeviceKind::Cpu;
  return {measured ? measured->table(dtype) : nullptr,
          cpu ? std::max(1, mesh.world().options().threads) : 0};
}

}  // namespace coshard
