#include "styles/prepare_input.h"

#include "styles/prepare.h"

namespace coshard {
namespace {

Tensor prepared(const Module& module, const Tensor& x, const DeviceMesh& mesh,
                const std::optional<Placement>& given, const std::optional<Placement>& desired,
                bool use_local) {
  if (!given) return x;
  DTensor y = as_distributed(module, x, mesh, *given);
  if (desired) y = bring_to(y, *desired);
  return use_local ? to_local(y) : y;
}

void prepare_inputs(const PrepareModuleInput& style, const DeviceMesh& mesh, Module& module,
                    Inputs& inputs) {
  if (style.input_layouts.given()) {
    CS_REQUIRE(inputs.args.size() == style.input_layouts.size(), "PrepareModuleInput: '",
               module.path(), "' was called with ", inputs.args.size(),
               " inputs by position, input_layouts ", style.input_layouts, " has ",
               style.input_layouts.size());
    for (std::size_t i = 0; i < inputs.args.size(); ++i)
      inputs.args[i] = prepared(module, inputs.args[i], mesh, style.input_layouts[i],
                                style.desired_input_layouts[i], style.use_local_output);
  }
  for (auto& [name, x] : inputs.kwargs)
    x = prepared(module, x, mesh, style.input_kwarg_layouts.of(name),
                 style.desired_input_kwarg_layouts.of(name), style.use_local_output);
}

}  // namespace

void PrepareModuleInput::check() const {
  CS_REQUIRE(input_layouts.given() == desired_input_layouts.given() &&
                 input_layouts.size() == desired_input_layouts.size(),
             "PrepareModuleInput: input_layouts ", input_layouts, " and desired_input_layouts ",
             desired_input_layouts, " should have the same length");
  CS_REQUIRE(input_kwarg_layouts.given() == desired_input_kwarg_layouts.given() &&
                 input_kwarg_layouts.size() == desired_input_kwarg_layouts.size(),
             "PrepareModuleInput: input_kwarg_layouts ", input_kwarg_layouts,
             " and desired_input_kwarg_layouts ", desired_input_kwarg_layouts,
             " should have the same length");
  for (const KeywordPlacements::Entry& entry : input_kwarg_layouts)
    CS_REQUIRE(desired_input_kwarg_layouts.has(entry.name()), "PrepareModuleInput: '", entry.name(),
               "' is in input_kwarg_layouts and not in desired_input_kwarg_layouts ",
               desired_input_kwarg_layouts);
}

void PrepareModuleInput::apply(Module& module, const DeviceMesh& mesh,
                               const ParallelizeOptions&) const {
  require_one_dimension(mesh, "PrepareModuleInput");
  check();
  module.add_pre_hook([style = *this, mesh](Module& self, Inputs& inputs) {
    prepare_inputs(style, mesh, self, inputs);
  });
}

std::ostream& operator<<(std::ostream& out, const PrepareModuleInput& style) {
  return out << "PrepareModuleInput(input_layouts=" << style.input_layouts
             << ", desired_input_layouts=" << style.desired_input_layouts
             << ", input_kwarg_layouts=" << style.input_kwarg_layouts
             << ", desired_input_kwarg_layouts=" << style.desired_input_kwarg_layouts
             << ", use_local_output=" << std::boolalpha << style.use_local_output << ')';
}

}  // namespace coshard
