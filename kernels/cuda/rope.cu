// Rotary embedding: a table of cosines and sines [positions, dim/2], computed in double and cached
// on the device, then one pass over the heads, in 16-byte pieces if the views allow it.
#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "kernels/cuda/pieces.h"
#include "kernels/cuda/typed.h"
#include "runtime/device/cuda/graph.h"

namespace coshard::kernels::cuda {
namespace {

template <class W>
struct alignas(2 * sizeof(W)) RopeAngle {
  W cos, sin;
};

constexpr std::int64_t kMostFrequencies = 256;  // they travel as arguments of a kernel

struct RopeFrequencies {
  double theta;
  int given;  // whether `frequencies` and `scaling` are used
  float scaling;
  float frequencies[kMostFrequencies];

  // With given frequencies, angle, cosine and sine are rounded to f32.
  template <class W>
  CS_BODY RopeAngle<W> angle(std::int64_t position, std::int64_t pair, std::int64_t half) const {
    if (given != 0) {
      const double angle = static_cast<float>(position) * frequencies[pair];
      return {static_cast<W>(static_cast<float>(::cos(angle)) * scaling),
              static_cast<W>(static_cast<float>(::sin(angle)) * scaling)};
    }
    const double power = -2.0 * static_cast<double>(pair) / static_cast<double>(2 * half);
    const double angle = static_cast<double>(position) * ::pow(theta, power);
    return {static_cast<W>(::cos(angle)), static_cast<W>(::sin(angle))};
  }
};

RopeFrequencies rope_frequencies(const Rope& args) {
  RopeFrequencies of{};
  of.theta = args.theta;
  if (args.table == nullptr) return of;
  const std::int64_t half = args.x.shape[3] / 2;
  CS_REQUIRE(half <= kMostFrequencies, "rotary_embedding: ", half, " frequencies are more than ",
             kMostFrequencies, ", the most on CUDA");
  of.given = 1;
  of.scaling = args.table->scaling;
  std::copy_n(args.table->frequencies.begin(), half, of.frequencies);
  return of;
}

template <class W>
struct RopeTableKernel : PerElement {
  RopeAngle<W>* table;
  std::int64_t count, half, first_position;
  RopeFrequencies frequencies;
  CS_BODY void operator()(Block& block) const {
    for (std::int64_t e = block.grid_thread(); e < count; e += block.grid_threads())
      table[e] = frequencies.template angle<W>(first_position + e / half, e % half, half);
  }
};

// The cached tables of a device, kept as an extension: the last few. Each holds whole pages of
// positions, so that a sequence that grows by one token per call rarely needs a new one.
class RopeTables {
 public:
  explicit RopeTables(CudaDevice& device) : device_(device) {}
  ~RopeTables() {
    for (const Entry& entry : entries_) device_.deallocate(entry.table, entry.bytes, {});
  }
  RopeTables(const RopeTables&) = delete;
  RopeTables& operator=(const RopeTables&) = delete;
  static RopeTables& of(CudaDevice& device) {
    static constexpr char key = 0;
    std::shared_ptr<void>& slot = device.extension(&key);
    if (slot == nullptr) slot = std::make_shared<RopeTables>(device);
    return *static_cast<RopeTables*>(slot.get());
  }

  // The angles [seq, half] from `first` on; valid until the next call.
  template <class W>
  const RopeAngle<W>* angles(const Rope& args) {
    const std::int64_t first = args.first_position;
    const std::int64_t seq = args.x.shape[1];
    const std::int64_t half = args.x.shape[3] / 2;
    const std::uint64_t recording = device_.graphs().recording();
    drop_of_other_recordings(recording);
    const auto fits = [&](const Entry& e) {
      return e.recording == recording && e.angle_bytes == sizeof(RopeAngle<W>) && e.half == half &&
             e.theta == args.theta && e.frequencies == args.table && e.first <= first &&
             first + seq <= e.end;
    };
    auto found = std::find_if(entries_.begin(), entries_.end(), fits);
    if (found == entries_.end()) {
      if (entries_.size() == kMost) drop_oldest();
      entries_.push_back(
          made<W>(args, first / kPage * kPage, (first + seq + kPage - 1) / kPage * kPage));
      found = entries_.end() - 1;
    }
    std::rotate(found, found + 1, entries_.end());
    const Entry& entry = entries_.back();
    return static_cast<const RopeAngle<W>*>(entry.table) + (first - entry.first) * half;
  }

 private:
  static constexpr std::int64_t kPage = 256;
  static constexpr std::size_t kMost = 8;
  struct Entry {
    std::size_t angle_bytes;
    std::int64_t first, end, half;  // positions [first, end)
    double theta;
    const RopeTable* frequencies;
    void* table;
    std::size_t bytes;
    std::uint64_t recording;  // 0: none
  };

  template <class W>
  Entry made(const Rope& args, std::int64_t first, std::int64_t end) {
    const std::int64_t half = args.x.shape[3] / 2;
    RopeTableKernel<W> kernel{};
    kernel.count = (end - first) * half;
    kernel.half = half;
    kernel.first_position = first;
    kernel.frequencies = rope_frequencies(args);
    const std::size_t bytes = static_cast<std::size_t>(kernel.count) * sizeof(RopeAngle<W>);
    kernel.table = static_cast<RopeAngle<W>*>(device_.allocate(bytes));
    launch_elements(device_, "rope table", kernel, kernel.count);
    return {
        sizeof(RopeAngle<W>),        first, end, half, args.theta, args.table, kernel.table, bytes,
        device_.graphs().recording()};
  }
  // A recorded step has separate tables, in graph memory and written at each launch: it cannot use
  // the eager ones, which may be dropped, and its own are not valid if the recording is abandoned.
  void drop_of_other_recordings(std::uint64_t now) {
    std::erase_if(entries_, [&](const Entry& entry) {
      const bool over = entry.recording != 0 && entry.recording != now;
      if (over) device_.deallocate(entry.table, entry.bytes, {});
      return over;
    });
  }
  void drop_oldest() {
    device_.deallocate(entries_.front().table, entries_.front().bytes, {});
    entries_.erase(entries_.begin());
  }

  CudaDevice& device_;
  std::vector<Entry> entries_;  // the latest last
};

// Positions that are data.
struct RopePositions {
  const std::int64_t* data;
  std::int64_t strides[2], first_position;
  RopeFrequencies frequencies;

  CS_BODY std::int64_t at(std::int64_t b, std::int64_t s) const {
    return first_position + data[b * strides[0] + s * strides[1]];
  }
};
RopePositions rope_positions(const Rope& args) {
  RopePositions positions{};
  if (args.positions.data == nullptr) return positions;
  positions.data = static_cast<const std::int64_t*>(args.positions.data);
  positions.strides[0] = args.positions.strides[0];
  positions.strides[1] = args.positions.strides[1];
  positions.first_position = args.first_position;
  positions.frequencies = rope_frequencies(args);
  return positions;
}

// Blocks iterate over tokens; a thread handles `pieces` of a head's first half.
template <class T, int kPiece>
struct RopeKernel : PerElement {
  using W = Wide<T>;
  struct alignas(kPiece * sizeof(T)) Piece {
    T at[kPiece];
  };
  const RopeAngle<W>* table;  // null: of the positions
  bool inverse;
  RopePositions positions;
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
        const T* low = from + head * x_strides[2] + first * x_strides[3];
        T* turned = to + head * y_strides[2] + first * y_strides[3];
        if (table != nullptr) {
          turn(low, turned, table + s * half + first);
        } else {
          RopeAngle<W> angles[kPiece];
          for (std::uint32_t i = 0; i < kPiece; ++i)
            angles[i] =
                positions.frequencies.template angle<W>(positions.at(b, s), first + i, half);
          turn(low, turned, angles);
        }
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
      const W sine = inverse ? -angle.sin : angle.sin;
      new_low.at[i] = static_cast<T>(l * angle.cos - h * sine);
      new_high.at[i] = static_cast<T>(h * angle.cos + l * sine);
    }
    *reinterpret_cast<Piece*>(to) = new_low;
    *reinterpret_cast<Piece*>(to + half * y_strides[3]) = new_high;
  }
};

template <class T, int kPiece>
void rope_heads(CudaDevice& device, const Rope& args) {
  const auto& shape = args.x.shape;
  RopeKernel<T, kPiece> kernel{};
  kernel.positions = rope_positions(args);
  if (args.positions.data == nullptr) kernel.table = RopeTables::of(device).angles<Wide<T>>(args);
  kernel.inverse = args.inverse;
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
  CS_REQUIRE(shape[3] % 2 == 0, "rotary_embedding: the last dimension must be even, got ",
             shape[3]);
  const std::int64_t half = shape[3] / 2;
  if (shape[0] * shape[1] * shape[2] * half == 0) return;
  with_floating(args.x.dtype, [&](auto tag) {
    using T = decltype(tag);
    constexpr int kPiece = 16 / sizeof(T);
    if (half % kPiece == 0 && rows_in_pieces(args.x, kPiece) && rows_in_pieces(args.y, kPiece))
      return rope_heads<T, kPiece>(device, args);
    return rope_heads<T, 1>(device, args);
  });
}

}  // namespace coshard::kernels::cuda
