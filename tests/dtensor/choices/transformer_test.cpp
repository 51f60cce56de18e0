// What the operators of a transformer move, for the layouts that its parallel forms give them: as
// transformer.json says, and never more than PyTorch (pytorch.json, made by pytorch_moves.py).
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/dtensor/choices/moved_bytes.h"
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using nlohmann::json;
using testing::MovedBytes;
using testing::on_ranks;

json read(const char* file) {
  return json::parse(std::ifstream(std::string(COSHARD_CHOICES) + "/" + file));
}

Layout layout_of(std::string_view text) {
  Layout layout;
  while (!text.empty()) {
    const auto end = std::min(text.find(','), text.size());
    layout.push_back(parse_placement(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return layout;
}

// "8,32,128 S(2)", or "8,32 R i64 1024": integers below 1024.
DTensor input_of(const DeviceMesh& mesh, const std::string& text) {
  std::istringstream words(text);
  std::string sizes, layout, dtype;
  std::int64_t limit = 0;
  words >> sizes >> layout >> dtype >> limit;
  Shape shape;
  std::istringstream numbers(sizes);
  for (std::string size; std::getline(numbers, size, ',');) shape.push_back(std::stoll(size));
  std::vector<double> values(static_cast<std::size_t>(numel(shape)));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = limit > 0 ? static_cast<double>(i * 37 % static_cast<std::size_t>(limit))
                          : std::sin(static_cast<double>(i));
  const DType type = limit > 0 ? DType::I64 : DType::F32;
  const Tensor whole = Tensor::from_values(mesh.world().device(), shape, type, values);
  return distribute_tensor(whole, mesh, layout_of(layout), std::nullopt);
}

Tensor call_of(const std::string& op, const std::vector<Tensor>& x, const std::vector<int>& dims) {
  if (op == "linear") return linear(x[0], x[1], x.size() > 2 ? x[2] : Tensor());
  if (op == "linear_gelu") return gelu(linear(x[0], x[1]));
  if (op == "matmul") return matmul(x[0], x[1]);
  if (op == "add") return add(x[0], x[1]);
  if (op == "mul") return mul(x[0], x[1]);
  if (op == "gelu") return gelu(x[0]);
  if (op == "view") return view(x[0], Shape(dims.begin(), dims.end()));
  if (op == "transpose") return transpose(x[0], dims[0], dims[1]);
  if (op == "attention") return attention(x[0], x[1], x[2], false);
  if (op == "softmax") return softmax(x[0], dims[0]);
  if (op == "log_softmax") return log_softmax(x[0], dims[0]);
  if (op == "embedding") return embedding(x[0], x[1]);
  if (op == "layer_norm") return layer_norm(x[0], x[1], x[2]);
  if (op == "rms_norm") return rms_norm(x[0], x[1]);
  if (op == "cross_entropy") return cross_entropy(x[0], x[1]);
  if (op == "gather") return gather(x[0], dims[0], x[1]);
  if (op == "argmax") return argmax(x[0], dims[0]);
  if (op == "logsumexp") return logsumexp(x[0], dims[0]);
  if (op == "topk") return topk(x[0], dims[0], dims[1]).values;
  if (op == "cumsum") return cumsum(x[0], dims[0]);
  throw std::invalid_argument("no operator " + op);
}

void run_case(const json& c, MovedBytes& moved, const DeviceMesh& mesh) {
  const bool backward = c.value("backward", false);
  std::vector<Tensor> in;
  for (const std::string text : c["in"]) {
    in.push_back(input_of(mesh, text));
    if (backward && is_floating(in.back().dtype())) in.back().set_requires_grad(true);
  }
  moved.reset();
  Tensor y = call_of(c["op"], in, c.value("dims", std::vector<int>()));
  if (c.contains("to")) {
    y = redistribute(y, layout_of(c["to"].get<std::string>())).tensor();
    y.wait();
  }
  if (!backward) return;
  const Layout layout = partial_as_replicate(y.layout());
  const Tensor ones =
      Tensor::from_values(mesh.world().device(), y.shape(), DType::F32,
                          std::vector<double>(static_cast<std::size_t>(y.numel()), 1.0));
  run_backward(y, distribute_tensor(ones, mesh, layout, std::nullopt));  // which moves nothing
}

double time_for(int collectives, std::int64_t bytes) {
  return collectives * time_of(true, 0, 0) + static_cast<double>(bytes) / Link().bytes_per_us;
}

TEST(Transformer, MovesWhatIsPinnedAndNeverMoreThanPyTorch) {
  const json cases = read("transformer.json"), pytorch = read("pytorch.json");
  int compared = 0;
  for (const json& c : cases) {
    const std::string name = c["name"];
    const json& theirs = pytorch.at(name);
    compared += theirs.contains("bytes") ? 1 : 0;
    on_ranks(4, [&](World& world) -> Task<void> {
      const bool grid = c.value("mesh", 1) == 2;
      const DeviceMesh mesh = grid ? init_device_mesh(world, {2, 2}, {"dp", "tp"})
                                   : init_device_mesh(world, {4}, {"tp"});
      MovedBytes moved(mesh);
      run_case(c, moved, mesh);
      EXPECT_EQ(moved.text(), c.value("moves", "?")) << name;
      EXPECT_EQ(moved.bytes(), c.value("bytes", -1)) << name;
      if (theirs.contains("bytes")) {
        const auto most = theirs["bytes"].get<std::int64_t>();
        EXPECT_LE(moved.bytes(), most) << name;
        // One collective more only where it spares more bytes than it is worth.
        EXPECT_LE(time_for(moved.collectives(), moved.bytes()),
                  time_for(theirs["collectives"].get<int>(), most))
            << name;
      }
      co_return;
    });
  }
  EXPECT_GE(compared, 40);
}

}  // namespace
}  // namespace coshard
