#include "dtensor/ops/run_check.h"

#include <coshard/runtime/error.h>

namespace coshard {
namespace {

constexpr std::size_t kShapeNumbers = 9;  // how many sizes (-1: not given), then the sizes
constexpr std::size_t kFactNumbers = 1 + 2 * kShapeNumbers;
using Numbers = std::vector<std::int64_t>;

void put_shape(Numbers& numbers, const Shape* shape) {
  const std::size_t end = numbers.size() + kShapeNumbers;
  numbers.push_back(shape ? static_cast<std::int64_t>(shape->size()) : -1);
  if (shape)
    for (auto size : *shape) numbers.push_back(size);
  numbers.resize(end);
}

std::optional<Shape> shape_at(const std::int64_t* numbers) {
  if (numbers[0] < 0) return std::nullopt;
  Shape shape;
  for (std::int64_t d = 0; d < numbers[0]; ++d) shape.push_back(numbers[1 + d]);
  return shape;
}

// Gathers along dimension m, through device memory.
Numbers run_check_gathered(const Numbers& mine, const DeviceMesh& mesh, int m) {
  Device& device = *mesh.world().device();
  Numbers all(mine.size() * static_cast<std::size_t>(mesh.size(m)));
  const auto send = device.make_buffer(mine.size() * sizeof(std::int64_t));
  const auto recv = device.make_buffer(all.size() * sizeof(std::int64_t));
  device.upload(send->data(), mine.data(), send->bytes());
  Collective c;
  c.kind = CollectiveKind::AllGather;
  c.dtype = DType::I64;
  c.extent = static_cast<std::int64_t>(all.size());
  c.send = send->data();
  c.recv = recv->data();
  c.keep_send = send;
  c.keep_recv = recv;
  c.label = "run_check";
  mesh.communicator(m).issue(c).wait();
  device.download(all.data(), recv->data(), recv->bytes());
  return all;
}

Shape run_check_part(const Shape& shape, const std::vector<int>& mesh_shape,
                     const std::vector<int>& coordinate, const Layout& layout) {
  Shape part = shape;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    part[d] = count_of(ranges_of(layout, mesh_shape, coordinate, static_cast<int>(d), shape[d]));
  }
  return part;
}

std::string run_check_shown(std::size_t place, const LocalFacts& facts) {
  return str_cat("mesh rank ", place, " has ", facts.dtype, facts.local_shape);
}

}  // namespace

Shape even_shape(const Shape& local_shape, const std::vector<int>& mesh_shape,
                 const Layout& placements) {
  Shape shape = local_shape;
  for (int m = 0; m < placements.ndim(); ++m)
    if (placements[m].is_sharded())
      shape[static_cast<std::size_t>(placements[m].dim)] *= mesh_shape[static_cast<std::size_t>(m)];
  return shape;
}

void note_sizes(const Tensor& made, std::string_view how) {
  const DeviceMesh& mesh = made.mesh();
  for (int m = 0; m < mesh.ndim(); ++m) {
    const Placement& p = made.layout()[m];
    if (!p.is_sharded()) continue;
    const auto dim = static_cast<std::size_t>(p.dim);
    mesh.note(m, {how, "in dimension", static_cast<std::uint64_t>(made.shape()[dim]), dim});
  }
}

std::string disagreement(const std::vector<LocalFacts>& facts, const std::vector<int>& mesh_shape,
                         const Layout& placements) {
  const LocalFacts& first = facts[0];
  const std::size_t ndim = first.local_shape.size();
  for (std::size_t r = 1; r < facts.size(); ++r) {
    if (facts[r].dtype != first.dtype || facts[r].local_shape.size() != ndim)
      return str_cat(run_check_shown(r, facts[r]), ", ", run_check_shown(0, first));
    if (facts[r].shape != first.shape)
      return str_cat("mesh ranks 0 and ", r, " name different shapes");
  }
  if (first.shape && first.shape->size() != ndim)
    return str_cat("shape ", *first.shape, ", but ", run_check_shown(0, first));
  const Layout layout = normalize(placements, first.local_shape, "from_local");
  const Shape shape =
      first.shape ? *first.shape : even_shape(first.local_shape, mesh_shape, layout);
  std::vector<int> coordinate(mesh_shape.size());
  for (std::size_t r = 0; r < facts.size(); ++r) {
    auto rest = static_cast<int>(r);
    for (std::size_t d = mesh_shape.size(); d-- > 0; rest /= mesh_shape[d])
      coordinate[d] = rest % mesh_shape[d];
    const Shape part = run_check_part(shape, mesh_shape, coordinate, layout);
    if (!(part == facts[r].local_shape))
      return str_cat(run_check_shown(r, facts[r]), ", but its part of ", shape, ' ', layout, " is ",
                     part, first.shape ? "" : "; uneven shards need the option `shape`");
  }
  return "";
}

void check_locals(const LocalFacts& mine, const DeviceMesh& mesh, const Layout& placements) {
  Numbers numbers{static_cast<std::int64_t>(mine.dtype)};
  put_shape(numbers, &mine.local_shape);
  put_shape(numbers, mine.shape ? &*mine.shape : nullptr);
  for (int m = mesh.ndim(); m-- > 0;)
    if (mesh.size(m) > 1) numbers = run_check_gathered(numbers, mesh, m);
  std::vector<LocalFacts> facts;
  for (std::size_t at = 0; at < numbers.size(); at += kFactNumbers) {
    const std::int64_t* from = numbers.data() + at;
    facts.push_back(
        {static_cast<DType>(from[0]), *shape_at(from + 1), shape_at(from + 1 + kShapeNumbers)});
  }
  const std::string text = disagreement(facts, mesh.shape(), placements);
  CS_REQUIRE(text.empty(), "from_local: ", text, " (", placements, " on ", mesh, ')');
}

}  // namespace coshard
