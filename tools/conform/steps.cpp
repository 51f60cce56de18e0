#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/tape/tape.h>
#include "tools/conform/modules.h"
#include "tools/conform/op_call.h"
#include "tools/conform/program.h"

namespace coshard::conform {
namespace {

std::optional<int> source_rank(const Json& step) {
  if (!step.contains("src_data_rank")) return 0;
  if (step.at("src_data_rank").is_null()) return std::nullopt;
  return step.at("src_data_rank").get<int>();
}

DType dtype_of(const Json& step, const char* field, DType otherwise) {
  return step.contains(field) && !step.at(field).is_null()
             ? parse_dtype(step.at(field).get<std::string>())
             : otherwise;
}

void run_input(Program& p, const Json& step) {
  const Json& keys = step.contains("tensors") ? step.at("tensors") : step.at("tensor");
  Tensor x = p.load(p.own_key(keys), step);
  if (step.value("requires_grad", false)) x.set_requires_grad(true);
  p.assign(step.at("out"), x);
}

void run_distribute(Program& p, const Json& step) {
  DTensor x = distribute_tensor(p.value(step.at("in")), p.mesh_of(step),
                                layout_of(step.at("placements")), source_rank(step));
  if (step.value("requires_grad", false)) x.set_requires_grad(true);
  p.assign(step.at("out"), x);
}

void run_from_local(Program& p, const Json& step) {
  FromLocalOptions options;
  if (step.contains("shape")) options.shape = shape_of(step.at("shape"));
  options.run_check = step.value("run_check", false);
  options.grad_placements = optional_layout(step, "grad_placements");
  p.assign(step.at("out"), from_local(p.value(step.at("in")), p.mesh_of(step),
                                      layout_of(step.at("placements")), options));
}

void run_redistribute(Program& p, const Json& step) {
  RedistributeOptions options;
  for (const char* field : {"forward_dtype", "backward_dtype"}) {
    if (!step.contains(field) || step.at(field).is_null()) continue;
    auto& wanted = field[0] == 'f' ? options.forward_dtype : options.backward_dtype;
    wanted = parse_dtype(step.at(field).get<std::string>());
  }
  const Redistribution moved =
      redistribute(p.value(step.at("in")), layout_of(step.at("placements")), options);
  p.assign(step.at("out"), moved.tensor());
}

void run_factory(Program& p, const Json& step) {
  const std::string kind = step.at("kind");
  const Layout layout = layout_of(step.at("placements"));
  const Shape shape = shape_of(step.at("shape"));
  const DType dtype = dtype_of(step, "dtype", DType::F32);
  const DeviceMesh mesh = p.mesh_of(step);
  DTensor x;
  if (kind == "zeros") {
    x = zeros(mesh, layout, shape, dtype);
  } else if (kind == "ones") {
    x = ones(mesh, layout, shape, dtype);
  } else if (kind == "full") {
    const Json& fill = step.at("fill");
    x = full(mesh, layout, shape,
             fill.is_boolean() ? static_cast<double>(fill.get<bool>()) : fill.get<double>(), dtype);
  } else {
    CS_REQUIRE(kind == "empty", "unknown factory '", kind, "'");
    x = empty(mesh, layout, shape, dtype);
  }
  p.assign(step.at("out"), x);
}

void run_op(Program& p, const Json& step) {
  static const Json none = Json::object();
  const Json& attrs = step.contains("attrs") ? step.at("attrs") : none;
  std::vector<Tensor> in;
  for (const Json& name : step.at("in")) in.push_back(name.is_null() ? Tensor() : p.value(name));
  p.doing += " " + step.at("op").get<std::string>() + "(";
  for (std::size_t i = 0; i < in.size(); ++i)
    p.doing += (i ? ", " : "") + (in[i].defined() ? describe(in[i]) : "none");
  p.doing += ")" + (attrs.empty() ? "" : " " + attrs.dump());
  const auto out = call_operator(step.at("op"), OpCall(std::move(in), attrs));
  const Json& names = step.at("out");
  CS_REQUIRE(out.size() == names.size(), step.at("op"), ": ", out.size(), " outputs, the case has ",
             names.size());
  for (std::size_t i = 0; i < out.size(); ++i) p.assign(names[i], out[i]);
}

Task<void> run_backward_step(Program& p, const Json& step) {
  const Tensor of = p.value(step.at("of"));
  Tensor gradient;
  if (step.contains("grad") && !step.at("grad").is_null()) {
    gradient = p.load(p.own_key(step.at("grad")));
    if (of.is_distributed()) {
      const Layout whole = Layout::filled(of.mesh().ndim(), Replicate());
      gradient = distribute_tensor(gradient, of.mesh(), whole, std::nullopt);
    }
  }
  co_await backward(of, gradient);
}

}  // namespace

Task<void> run_step(Program& p, std::size_t at) {
  const Json& step = p.source.spec.at("steps").at(at);
  const std::string kind = step.at("do");
  p.doing = str_cat("step ", at, " ", kind);
  if (kind == "input") {
    run_input(p, step);
  } else if (kind == "distribute_tensor") {
    run_distribute(p, step);
  } else if (kind == "from_local") {
    run_from_local(p, step);
  } else if (kind == "to_local") {
    p.assign(step.at("out"),
             to_local(p.value(step.at("in")), optional_layout(step, "grad_placements")));
  } else if (kind == "full_tensor") {
    p.assign(step.at("out"),
             full_tensor(p.value(step.at("in")), optional_layout(step, "grad_placements")));
  } else if (kind == "redistribute") {
    run_redistribute(p, step);
  } else if (kind == "factory") {
    run_factory(p, step);
  } else if (kind == "op") {
    run_op(p, step);
  } else if (kind == "backward") {
    co_await run_backward_step(p, step);
  } else {
    const bool known = co_await run_module_step(p, step);
    if (!known) fail(ErrorKind::Unsupported, str_cat("unknown step '", kind, "'"));
  }
}

}  // namespace coshard::conform
