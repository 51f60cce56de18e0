#include <coshard/styles/prepare_input.h>

#include <utility>

#include "styles/prepare.h"

namespace coshard {
namespace {

// The requested layouts of one input.
struct Wanted {
  std::optional<Placement> given, desired;
  GradPlacement input_grad, output_grad;
};

Tensor prepared(Module& module, const Tensor& x, const DeviceMesh& mesh, const Wanted& wanted,
                bool use_local, bool first) {
  if (!wanted.given) return x;
  DTensor y = as_distributed(module, x, mesh, *wanted.given, wanted.input_grad);
  const Module* reader = first && !use_local ? &module : nullptr;
  if (wanted.desired) y = bring_to(y, *wanted.desired, std::nullopt, reader);
  return use_local ? as_local(y, wanted.output_grad) : y;
}

void check_gradients(const Placements& gradients, const Placements& of) {
  CS_REQUIRE(!gradients.given() || gradients.size() == of.size(),
             "PrepareModuleInput: gradient placements ", gradients, " do not match input_layouts ",
             of);
}
void check_gradients(const KeywordPlacements& gradients, const KeywordPlacements& of) {
  for (const KeywordPlacements::Entry& entry : gradients)
    CS_REQUIRE(of.has(entry.name()), "PrepareModuleInput: gradient placements ", gradients,
               " do not match input_kwarg_layouts ", of);
}

void prepare_inputs(const PrepareModuleInput& style, const DeviceMesh& mesh, Module& module,
                    Inputs& inputs) {
  if (style.input_layouts.given()) {
    CS_REQUIRE(inputs.args.size() == style.input_layouts.size(), "PrepareModuleInput: '",
               module.path(), "' was called with ", inputs.args.size(),
               " inputs by position, but input_layouts ", style.input_layouts, " has ",
               style.input_layouts.size());
    for (std::size_t i = 0; i < inputs.args.size(); ++i)
      inputs.args[i] = prepared(module, inputs.args[i], mesh,
                                {style.input_layouts[i], style.desired_input_layouts[i],
                                 nth_gradient(style.local_input_grad_placements, i),
                                 nth_gradient(style.local_output_grad_placements, i)},
                                style.use_local_output, i == 0);
  }
  bool first = inputs.args.empty();  // the first input of the module, by name
  for (auto& [name, x] : inputs.kwargs)
    x = prepared(module, x, mesh,
                 {style.input_kwarg_layouts.of(name), style.desired_input_kwarg_layouts.of(name),
                  style.local_input_kwarg_grad_placements.of(name),
                  style.local_output_kwarg_grad_placements.of(name)},
                 style.use_local_output, std::exchange(first, false));
}

}  // namespace

void PrepareModuleInput::check() const {
  CS_REQUIRE(input_layouts.given() == desired_input_layouts.given() &&
                 input_layouts.size() == desired_input_layouts.size(),
             "PrepareModuleInput: input_layouts ", input_layouts, " and desired_input_layouts ",
             desired_input_layouts, " must have the same length");
  CS_REQUIRE(input_kwarg_layouts.given() == desired_input_kwarg_layouts.given() &&
                 input_kwarg_layouts.size() == desired_input_kwarg_layouts.size(),
             "PrepareModuleInput: input_kwarg_layouts ", input_kwarg_layouts,
             " and desired_input_kwarg_layouts ", desired_input_kwarg_layouts,
             " must have the same length");
  for (const KeywordPlacements::Entry& entry : input_kwarg_layouts)
    CS_REQUIRE(desired_input_kwarg_layouts.has(entry.name()), "PrepareModuleInput: '", entry.name(),
               "' is in input_kwarg_layouts but not in desired_input_kwarg_layouts ",
               desired_input_kwarg_layouts);
  check_gradients(local_input_grad_placements, input_layouts);
  check_gradients(local_output_grad_placements, input_layouts);
  check_gradients(local_input_kwarg_grad_placements, input_kwarg_layouts);
  check_gradients(local_output_kwarg_grad_placements, input_kwarg_layouts);
}

void PrepareModuleInput::apply(Module& module, const DeviceMesh& mesh,
                               const ParallelizeOptions&) const {
  require_one_dimension(mesh, "PrepareModuleInput");
  check();
  module.claim("prepared for its inputs");
  module.add_pre_hook([style = *this, mesh](Module& self, Inputs& inputs) {
    prepare_inputs(style, mesh, self, inputs);
  });
}

std::ostream& operator<<(std::ostream& out, const PrepareModuleInput& style) {
  return out << "PrepareModuleInput(input_layouts=" << style.input_layouts
             << ", desired_input_layouts=" << style.desired_input_layouts
             << ", input_kwarg_layouts=" << style.input_kwarg_layouts
             << ", desired_input_kwarg_layouts=" << style.desired_input_kwarg_layouts
             << ", use_local_output=" << (style.use_local_output ? "true" : "false")
             << list_text("local_input_grad_placements", style.local_input_grad_placements)
             << list_text("local_output_grad_placements", style.local_output_grad_placements)
             << list_text("local_input_kwarg_grad_placements",
                          style.local_input_kwarg_grad_placements)
             << list_text("local_output_kwarg_grad_placements",
                          style.local_output_kwarg_grad_placements)
             << ')';
}

}  // namespace coshard
