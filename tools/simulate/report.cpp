#include "tools/simulate/report.h"

#include <fmt/format.h>

#include <algorithm>

namespace coshard::tools {
namespace {

double in_ms(std::int64_t ns) { return static_cast<double>(ns) * 1e-6; }
double in_gb(double bytes) { return bytes * 1e-9; }

std::string heading(const SimulateOptions& o, const Question& q, const Forecast& f) {
  return fmt::format("{} ({:.2f} billion parameters) on {} x {}, mesh {}: {} x {} tokens a step\n",
                     o.model, f.parameters * 1e-9, ranks_of(q.run.mesh), q.gpu.name,
                     to_string(q.run.mesh), q.run.batch, q.run.seq);
}

void print_links(std::ostream& out, const Question& q) {
  for (const DimLink& dim : q.run.links.dims)
    out << fmt::format("  {:<4} {} over {}, {:.1f} GB/s; {}{} to a node\n", dim.dim.name,
                       dim.dim.size, dim.model.name, dim.model.best_rate() * 1e-9, dim.per_node,
                       dim.per_node * dim.nodes < dim.dim.size ? " or more" : "");
}

void print_times(std::ostream& out, const Question& q, const Forecast& f) {
  out << fmt::format("\nstep          {:10.2f} ms  {:.0f} tokens/s, {:.1f} % of the GEMM rate\n",
                     in_ms(f.step), tokens_per_second(q, f), 100 * utilisation(q, f));
  out << fmt::format("  forward     {:10.2f}     with the loss\n", in_ms(f.forward));
  out << fmt::format("  backward    {:10.2f}\n", in_ms(f.backward));
  out << fmt::format("  optimizer   {:10.2f}     with the rest of the gradients\n",
                     in_ms(f.optimizer));
  out << fmt::format("compute       {:10.2f}\n", in_ms(f.compute));
  out << fmt::format("exposed       {:10.2f}     of {:.2f} of communication in flight\n",
                     in_ms(f.exposed), in_ms(f.in_flight));
}

void print_memory(std::ostream& out, const SimulateOptions& o, const MemoryForecast& m) {
  const std::string limit = m.capacity == 0 ? ""
                            : m.fits()      ? fmt::format(" of {:.1f}", in_gb(m.capacity))
                                       : fmt::format(" of {:.1f}: does not fit", in_gb(m.capacity));
  out << fmt::format("\nmemory per GPU, peak {:.2f} GB{}\n", in_gb(m.peak), limit);
  out << fmt::format("  parameters  {:10.2f} GB  bf16\n", in_gb(m.parameters));
  out << fmt::format("  gradients   {:10.2f}     bf16\n", in_gb(m.gradients));
  out << fmt::format("  optimizer   {:10.2f}     AdamW: f32 master copy, f32 m and v\n",
                     in_gb(m.optimizer));
  out << fmt::format("  activations {:10.2f}     saved by forward; recompute {}\n",
                     in_gb(m.activations), o.recompute);
}

void print_collectives(std::ostream& out, const Forecast& f) {
  out << fmt::format("\n{:<44} {:>6} {:>10} {:>12} {:>12}\n", "collectives", "count", "GB",
                     "in flight ms", "exposed ms");
  for (const auto& [name, t] : f.collectives)
    out << fmt::format("{:<44} {:>6} {:>10.3f} {:>12.2f} {:>12.2f}\n",
                       name.first + " " + name.second, t.count, in_gb(static_cast<double>(t.bytes)),
                       in_ms(t.in_flight), in_ms(t.exposed));
}

void print_modules(std::ostream& out, const Forecast& f) {
  out << fmt::format("\n{:<44} {:>11} {:>9} {:>11} {:>9}\n", "modules, ms; all layers together",
                     "forward", "exposed", "backward", "exposed");
  for (const auto& [name, t] : f.modules) {
    if (t.forward.total() + t.backward.total() == 0) continue;
    out << fmt::format("{:<44} {:>11.2f} {:>9.2f} {:>11.2f} {:>9.2f}\n",
                       name.empty() ? "outside of any" : name, in_ms(t.forward.total()),
                       in_ms(t.forward.exposed), in_ms(t.backward.total()),
                       in_ms(t.backward.exposed));
  }
}

void print_figures(std::ostream& out, const Figures& figures) {
  for (const Figure& f : figures.all)
    out << fmt::format("  {:<8} {:<20} {:>9.6g}  {}{}\n", figures.name, f.key, f.value, f.source,
                       f.measured ? "" : " *");
}

Json json_of(const Figures& figures) {
  Json json = Json::array();
  for (const Figure& f : figures.all)
    json.push_back({{"of", figures.name},
                    {"key", f.key},
                    {"value", f.value},
                    {"source", f.source},
                    {"measured", f.measured}});
  return json;
}

Json json_of(const ModuleTimes::Part& part) {
  return {{"total_ms", in_ms(part.total())},
          {"products_ms", in_ms(part.products)},
          {"other_ms", in_ms(part.other)},
          {"exposed_ms", in_ms(part.exposed)}};
}

Json collectives_json(const Forecast& f) {
  Json json = Json::array();
  for (const auto& [name, t] : f.collectives)
    json.push_back({{"communicator", name.first},
                    {"collective", name.second},
                    {"count", t.count},
                    {"bytes", t.bytes},
                    {"in_flight_ms", in_ms(t.in_flight)},
                    {"exposed_ms", in_ms(t.exposed)}});
  return json;
}

}  // namespace

double tokens_per_second(const Question& q, const Forecast& f) {
  if (f.step == 0) return 0;
  return static_cast<double>(q.run.batch * q.run.seq) / static_cast<double>(f.step) * 1e9;
}

double utilisation(const Question& q, const Forecast& f) {
  if (f.step == 0) return 0;
  return f.flops / (static_cast<double>(f.step) * 1e-9) / q.processor.product_rate;
}

void print_forecast(std::ostream& out, const SimulateOptions& options, const Question& q,
                    const Forecast& f) {
  out << heading(options, q, f);
  out << fmt::format(
      "  plan {}, overlap {}, recompute {}, weave {}; of one rank, which stands for all\n",
      options.plan, options.overlap, options.recompute, options.weave);
  print_links(out, q);
  print_times(out, q, f);
  print_memory(out, options, f.memory);
  print_collectives(out, f);
  print_modules(out, f);
  out << "\nfigures (* not measured)\n";
  print_figures(out, q.gpu);
  for (const Figures& link : q.run.links.figures) print_figures(out, link);
  if (!options.trace.empty()) out << "\ntrace: " << options.trace << '\n';
}

Json forecast_json(const SimulateOptions& options, const Question& q, const Forecast& f) {
  Json json{{"model", options.model},         {"parameters", f.parameters},
            {"mesh", to_string(q.run.mesh)},  {"gpu", q.gpu.name},
            {"batch", q.run.batch},           {"seq", q.run.seq},
            {"plan", options.plan},           {"overlap", options.overlap},
            {"recompute", options.recompute}, {"weave", options.weave}};
  json["step_ms"] = in_ms(f.step);
  json["forward_ms"] = in_ms(f.forward);
  json["backward_ms"] = in_ms(f.backward);
  json["optimizer_ms"] = in_ms(f.optimizer);
  json["compute_ms"] = in_ms(f.compute);
  json["exposed_ms"] = in_ms(f.exposed);
  json["in_flight_ms"] = in_ms(f.in_flight);
  json["tokens_per_s"] = tokens_per_second(q, f);
  json["product_rate_used"] = utilisation(q, f);
  const MemoryForecast& m = f.memory;
  json["memory"] = {{"parameters", m.parameters},
                    {"gradients", m.gradients},
                    {"optimizer", m.optimizer},
                    {"activations", m.activations},
                    {"peak", m.peak},
                    {"capacity", m.capacity},
                    {"fits", m.fits()}};
  json["collectives"] = collectives_json(f);
  json["modules"] = Json::object();
  for (const auto& [name, t] : f.modules)
    json["modules"][name] = {{"forward", json_of(t.forward)}, {"backward", json_of(t.backward)}};
  json["figures"] = json_of(q.gpu);
  for (const Figures& link : q.run.links.figures)
    for (const Json& one : json_of(link)) json["figures"].push_back(one);
  return json;
}

}  // namespace coshard::tools
