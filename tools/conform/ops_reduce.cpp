#include "tools/conform/op_call.h"

namespace coshard::conform {
namespace {

// dim: missing, one number or a list.
Dims dims_of(const OpCall& c) { return c.has("dim") ? Dims(c.list("dim")) : Dims(); }

std::vector<Tensor> both(const ValuesAndIndices& result) { return {result.values, result.indices}; }

// An operator on (x, dims, keepdim).
OpFunction reduction(Tensor (*op)(const Tensor&, const Dims&, bool, CallSite)) {
  return [op](const OpCall& c) {
    return std::vector{op(c[0], dims_of(c), c.flag("keepdim", false), {})};
  };
}

OpFunction arg_reduction(Tensor (*op)(const Tensor&, std::optional<int>, bool, CallSite)) {
  return [op](const OpCall& c) {
    return std::vector{op(c[0], c.maybe_dim("dim"), c.flag("keepdim", false), {})};
  };
}

OpFunction variance(Tensor (*op)(const Tensor&, const Dims&, double, bool, CallSite)) {
  return [op](const OpCall& c) {
    return std::vector{
        op(c[0], dims_of(c), c.number("correction", 1), c.flag("keepdim", false), {})};
  };
}

// max and min: with dim two outputs.
OpFunction extreme(Tensor (*all)(const Tensor&, CallSite),
                   ValuesAndIndices (*along)(const Tensor&, int, bool, CallSite)) {
  return [all, along](const OpCall& c) -> std::vector<Tensor> {
    if (!c.has("dim")) return {all(c[0], {})};
    return both(along(c[0], c.dim(), c.flag("keepdim", false), {}));
  };
}

OpFunction along_dim(Tensor (*op)(const Tensor&, int, CallSite)) {
  return [op](const OpCall& c) { return std::vector{op(c[0], c.dim(), {})}; };
}

OpFunction scan_with_indices(ValuesAndIndices (*op)(const Tensor&, int, CallSite)) {
  return [op](const OpCall& c) { return both(op(c[0], c.dim(), {})); };
}

void add_reductions(OpTable& table) {
  table["sum"] = reduction(sum);
  table["mean"] = reduction(mean);
  table["nansum"] = reduction(nansum);
  table["amax"] = reduction(amax);
  table["amin"] = reduction(amin);
  table["prod"] = reduction(prod);
  table["all"] = reduction(all);
  table["any"] = reduction(any);
  table["argmax"] = arg_reduction(argmax);
  table["argmin"] = arg_reduction(argmin);
  table["var"] = variance(var);
  table["std"] = variance(stdev);
  table["max"] = extreme(max, max);
  table["min"] = extreme(min, min);
  table["logsumexp"] = reduction(logsumexp);
  table["count_nonzero"] = [](const OpCall& c) {
    return std::vector{count_nonzero(c[0], dims_of(c))};
  };
  table["vector_norm"] = [](const OpCall& c) {
    return std::vector{vector_norm(c[0], c.number("ord", 2), dims_of(c), c.flag("keepdim", false))};
  };
}

void add_lines(OpTable& table) {
  table["softmax"] = along_dim(softmax);
  table["log_softmax"] = along_dim(log_softmax);
  table["cumsum"] = along_dim(cumsum);
  table["cumprod"] = along_dim(cumprod);
  table["logcumsumexp"] = along_dim(logcumsumexp);
  table["cummax"] = scan_with_indices(cummax);
  table["cummin"] = scan_with_indices(cummin);
  table["sort"] = [](const OpCall& c) {
    return both(sort(c[0], static_cast<int>(c.integer("dim", -1)), c.flag("descending", false)));
  };
  table["argsort"] = [](const OpCall& c) {
    return std::vector{
        argsort(c[0], static_cast<int>(c.integer("dim", -1)), c.flag("descending", false))};
  };
  table["topk"] = [](const OpCall& c) {
    return both(topk(c[0], c.integer("k"), static_cast<int>(c.integer("dim", -1)),
                     c.flag("largest", true)));
  };
  table["kthvalue"] = [](const OpCall& c) {
    return both(kthvalue(c[0], c.integer("k"), static_cast<int>(c.integer("dim", -1)),
                         c.flag("keepdim", false)));
  };
}

Reduction reduction_of(const OpCall& c) {
  const std::string text = c.text("reduction", "mean");
  if (text == "none") return Reduction::None;
  CS_REQUIRE(text == "mean" || text == "sum", "unknown reduction '", text,
             "'; expected mean or sum");
  return text == "mean" ? Reduction::Mean : Reduction::Sum;
}

void add_layers(OpTable& table) {
  table["layer_norm"] = [](const OpCall& c) {
    const double eps = c.number("eps", 1e-5);
    return std::vector{layer_norm(c[0], c.list("normalized_shape"), c[1], c[2], eps)};
  };
  table["rms_norm"] = [](const OpCall& c) {
    return std::vector{rms_norm(c[0], c.list("normalized_shape"), c[1], c.number("eps", 1e-6))};
  };
  table["cross_entropy"] = [](const OpCall& c) {
    return std::vector{cross_entropy(c[0], c[1], reduction_of(c), c.integer("ignore_index", -100),
                                     c.number("label_smoothing", 0), c[2])};
  };
  table["nll_loss"] = [](const OpCall& c) {
    return std::vector{
        nll_loss(c[0], c[1], reduction_of(c), c.integer("ignore_index", -100), c[2])};
  };
}

}  // namespace

const OpTable& reduce_table() {
  static const OpTable table = [] {
    OpTable all;
    add_reductions(all);
    add_lines(all);
    add_layers(all);
    return all;
  }();
  return table;
}

}  // namespace coshard::conform
