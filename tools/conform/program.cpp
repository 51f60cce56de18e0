#include "tools/conform/program.h"

#include "tools/conform/modules.h"

namespace coshard::conform {

void StepCounter::issued(const CommEvent& event, std::int64_t) {
  if (current_) ++(*current_)[std::string(to_string(event.kind))];
}

Program::Program(World& world, const Case& c)
    : world(world), source(c), modules(std::make_unique<Modules>()) {
  const Json& shape = c.spec.at("mesh").at("shape");
  mesh = init_device_mesh(world, shape.get<std::vector<int>>(),
                          c.spec.at("mesh").at("names").get<std::vector<std::string>>());
}

Program::~Program() = default;

const Tensor& Program::value(const std::string& name) const {
  const auto found = values.find(name);
  CS_REQUIRE(found != values.end(), "undefined value '", name, "'");
  return found->second;
}

Tensor Program::value_or_parameter(const std::string& name) const {
  const auto found = values.find(name);
  if (found != values.end()) return found->second;
  Tensor parameter = find_parameter(*this, name);
  CS_REQUIRE(parameter.defined(), "undefined value or parameter '", name, "'");
  return parameter;
}

void Program::assign(const std::string& name, Tensor value) {
  const bool fresh = values.emplace(name, std::move(value)).second;
  CS_REQUIRE(fresh, "value '", name, "' is assigned twice");
}

Tensor Program::load(const std::string& key, const Json& step) const {
  const CaseTensor stored = source.tensors->at(key);
  std::vector<double> elements(static_cast<std::size_t>(numel(stored.shape)));
  for (std::size_t i = 0; i < elements.size(); ++i)
    elements[i] = stored.value(static_cast<std::int64_t>(i));
  const DType dtype = step.contains("dtype") && !step.at("dtype").is_null()
                          ? parse_dtype(step.at("dtype").get<std::string>())
                          : stored.dtype;
  return Tensor::from_values(world.device(), stored.shape, dtype, elements);
}

const std::string& Program::own_key(const Json& keys) const {
  const Json& key = keys.is_array() ? keys.at(static_cast<std::size_t>(world.rank())) : keys;
  return key.get_ref<const std::string&>();
}

DeviceMesh Program::mesh_of(const Json& step) const {
  if (!step.contains("mesh_dim") || step.at("mesh_dim").is_null()) return mesh;
  return mesh[step.at("mesh_dim").get<std::string>()];
}

Layout layout_of(const Json& placements) {
  Layout layout;
  for (const Json& text : placements) layout.push_back(parse_placement(text.get<std::string>()));
  return layout;
}

std::optional<Layout> optional_layout(const Json& step, const char* field) {
  if (!step.contains(field) || step.at(field).is_null()) return std::nullopt;
  return layout_of(step.at(field));
}

Shape shape_of(const Json& list) {
  Shape shape;
  for (const Json& size : list) shape.push_back(size.get<std::int64_t>());
  return shape;
}

}  // namespace coshard::conform
