#include "tools/conform/op_call.h"

namespace coshard::conform {
namespace {

Tensor slice_of(const OpCall& c) {
  const int dim = c.dim("dim");
  const std::int64_t size = c[0].size(dim);
  return slice(c[0], dim, c.integer("start", 0), c.integer("end", size), c.integer("step", 1));
}

Tensor scatter_of(const OpCall& c) {
  const int dim = c.dim("dim");
  if (c[2].defined()) return scatter(c[0], dim, c[1], c[2]);
  return scatter(c[0], dim, c[1], c.number("value"));
}

std::vector<Tensor> split_of(const OpCall& c) {
  const int dim = c.dim("dim");
  if (!c.attrs().at("size").is_array()) return split(c[0], c.integer("size"), dim);
  const Shape sizes = c.list("size");
  return split(c[0], sizes.span(), dim);
}

// Without dims, rolls the flattened tensor.
Tensor roll_of(const OpCall& c) {
  const Shape shifts = c.list("shifts");
  const Shape dims = c.has("dims") ? c.list("dims") : Shape();
  if (dims.empty()) return view(roll(flatten(c[0]), shifts[0], 0), c[0].shape());
  Tensor x = c[0];
  for (std::size_t i = 0; i < dims.size(); ++i) x = roll(x, shifts[i], static_cast<int>(dims[i]));
  return x;
}

Tensor repeat_interleave_of(const OpCall& c) {
  const std::int64_t repeats = c.integer("repeats");
  if (!c.has("dim")) return repeat_interleave(flatten(c[0]), repeats, 0);
  return repeat_interleave(c[0], repeats, c.dim("dim"));
}

// An entry for an operator with one output.
template <class F>
OpFunction one(F function) {
  return [function](const OpCall& c) { return std::vector<Tensor>{function(c)}; };
}

OpTable shape_entries() {
  return {
      {"view", one([](const OpCall& c) { return view(c[0], c.list("shape")); })},
      {"reshape", one([](const OpCall& c) { return reshape(c[0], c.list("shape")); })},
      {"expand", one([](const OpCall& c) { return expand(c[0], c.list("shape")); })},
      {"flatten", one([](const OpCall& c) {
         return flatten(c[0], c.dim("start_dim"), c.dim("end_dim", -1));
       })},
      {"unflatten",
       one([](const OpCall& c) { return unflatten(c[0], c.dim("dim"), c.list("sizes")); })},
      {"squeeze", one([](const OpCall& c) {
         return c.has("dim") ? squeeze(c[0], c.dim("dim")) : squeeze(c[0]);
       })},
      {"unsqueeze", one([](const OpCall& c) { return unsqueeze(c[0], c.dim("dim")); })},
      {"transpose",
       one([](const OpCall& c) { return transpose(c[0], c.dim("dim0"), c.dim("dim1")); })},
      {"t", one([](const OpCall& c) { return t(c[0]); })},
      {"permute", one([](const OpCall& c) { return permute(c[0], c.list("dims")); })},
      {"movedim",
       one([](const OpCall& c) { return movedim(c[0], c.list("source"), c.list("destination")); })},
      {"repeat", one([](const OpCall& c) { return repeat(c[0], c.list("repeats")); })},
      {"repeat_interleave", one(repeat_interleave_of)},
      {"contiguous", one([](const OpCall& c) { return contiguous(c[0]); })},
  };
}

OpTable piece_entries() {
  return {
      {"slice", one(slice_of)},
      {"narrow", one([](const OpCall& c) {
         return narrow(c[0], c.dim("dim"), c.integer("start"), c.integer("length"));
       })},
      {"select",
       one([](const OpCall& c) { return select(c[0], c.dim("dim"), c.integer("index")); })},
      {"split", split_of},
      {"chunk", [](const OpCall& c) { return chunk(c[0], c.integer("chunks"), c.dim("dim")); }},
      {"unbind", [](const OpCall& c) { return unbind(c[0], c.dim("dim")); }},
      {"diagonal", one([](const OpCall& c) {
         return diagonal(c[0], c.integer("offset", 0), c.dim("dim1"), c.dim("dim2", 1));
       })},
      {"cat", one([](const OpCall& c) { return cat(c.inputs(), c.dim("dim")); })},
      {"stack", one([](const OpCall& c) { return stack(c.inputs(), c.dim("dim")); })},
      {"flip", one([](const OpCall& c) {
         const Shape dims = c.list("dims");
         return flip(c[0], dims.span());
       })},
      {"roll", one(roll_of)},
      {"tril", one([](const OpCall& c) { return tril(c[0], c.integer("diagonal", 0)); })},
      {"triu", one([](const OpCall& c) { return triu(c[0], c.integer("diagonal", 0)); })},
  };
}

OpTable index_entries() {
  return {
      {"pad", one([](const OpCall& c) {
         std::vector<std::int64_t> margins;
         for (const auto& margin : c.attrs().at("pad")) margins.push_back(margin);
         return pad(c[0], margins, c.number("value", 0));
       })},
      {"index_select", one([](const OpCall& c) { return index_select(c[0], c.dim("dim"), c[1]); })},
      {"gather", one([](const OpCall& c) { return gather(c[0], c.dim("dim"), c[1]); })},
      {"scatter", one(scatter_of)},
      {"scatter_add",
       one([](const OpCall& c) { return scatter_add(c[0], c.dim("dim"), c[1], c[2]); })},
  };
}

}  // namespace

const OpTable& view_table() {
  static const OpTable table = [] {
    OpTable all = shape_entries();
    all.merge(piece_entries());
    all.merge(index_entries());
    return all;
  }();
  return table;
}

}  // namespace coshard::conform
