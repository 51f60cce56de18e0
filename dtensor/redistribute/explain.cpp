#include <coshard/dtensor/redistribute/explain.h>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <range/v3/view/iota.hpp>
#include <range/v3/view/zip.hpp>

#include <coshard/runtime/cost/link.h>
#include <coshard/runtime/error.h>
#include "dtensor/redistribute/planner.h"
#include "runtime/comm/collective.h"

namespace coshard {
namespace views = ranges::views;
namespace {

// Splits at commas outside brackets: "S(0),_S(1,2)" has two pieces.
std::vector<std::string_view> pieces_of(std::string_view text) {
  std::vector<std::string_view> pieces;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '(') ++depth;
    if (i < text.size() && text[i] == ')') --depth;
    if (i < text.size() && (text[i] != ',' || depth > 0)) continue;
    pieces.push_back(text.substr(begin, i - begin));
    begin = i + 1;
  }
  return pieces;
}

template <class T>
T number(std::string_view text, std::string_view what, T least) {
  T value{};
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  CS_REQUIRE(status != std::errc::result_out_of_range, what, " '", text, "' is out of range");
  CS_REQUIRE(status == std::errc{} && end == text.data() + text.size() && value >= least, what,
             " '", text, "' is not a number of at least ", least);
  return value;
}

Layout layout_of(std::string_view text) {
  const std::vector<std::string_view> pieces = pieces_of(text);
  CS_REQUIRE(pieces.size() <= std::size_t{kMaxMeshDims}, "plan: layout '", text, "' has ",
             pieces.size(), " entries; a mesh has at most ", kMaxMeshDims, " dimensions");
  Layout layout;
  for (const std::string_view piece : pieces) layout.push_back(parse_placement(piece));
  return layout;
}

void require_mesh(const ExplainOptions& q) {
  CS_REQUIRE(!q.mesh_shape.empty() && q.mesh_shape.size() <= std::size_t{kMaxMeshDims},
             "plan: a mesh has 1 to ", kMaxMeshDims, " dimensions, not ", q.mesh_shape.size());
  std::int64_t ranks = 1;
  for (const int size : q.mesh_shape) {
    CS_REQUIRE(size >= 1 && size <= kMostRanksOfPlan / ranks, "plan: size ", size,
               " of a mesh dimension; a mesh has at most ", kMostRanksOfPlan, " ranks");
    ranks *= size;
  }
  CS_REQUIRE(q.mesh_names.size() == q.mesh_shape.size(), "plan: ", q.mesh_names.size(),
             " names for ", q.mesh_shape.size(), " mesh dimensions");
  CS_REQUIRE(q.links.empty() || q.links.size() == q.mesh_shape.size(), "plan: ", q.links.size(),
             " links for ", q.mesh_shape.size(), " mesh dimensions");
  for (const Link& link : q.links) check(link, "plan: a link");
  for (const Layout* layout : {&q.from, &q.to})
    CS_REQUIRE(layout->ndim() == static_cast<int>(q.mesh_shape.size()), "plan: layout ", *layout,
               " has ", layout->ndim(), " entries, the mesh ", q.mesh_shape.size(), " dimensions");
}

void require_reducible(const PlanStep& step, const ExplainOptions& q) {
  if (step.kind != StepKind::AllReduce && step.kind != StepKind::ReduceScatter) return;
  Collective c;
  c.kind =
      step.kind == StepKind::AllReduce ? CollectiveKind::AllReduce : CollectiveKind::ReduceScatter;
  c.dtype = q.dtype;
  c.reduce = reduction_of(step.from, step.dims, q.mesh_shape).reduce;
  check_reduction(c);
}

}  // namespace

PlanExplanation explain(const ExplainOptions& q) {
  require_mesh(q);
  const Layout from = normalize(q.from, q.shape, "plan"), to = normalize(q.to, q.shape, "plan");
  for (const auto& [now, next] : views::zip(from, to))
    CS_REQUIRE(may_become(now, next), "plan: ", from, " to ", to, ": ", now, " cannot become ",
               next);
  const auto width = static_cast<int>(size_of(q.dtype));
  const auto steps = plan_steps(q.mesh_shape, q.shape, width, from, to, q.links);
  PlanExplanation answer;
  // On mesh dimensions of one rank all layouts are the same, and no step changes them.
  answer.trace = trace(from, steps);
  if ((steps.empty() ? from : steps.back().to) != to) answer.trace += " -> " + to_string(to);
  for (const PlanStep& step : steps) {
    require_reducible(step, q);
    PlanExplanation::Step out;
    out.layouts = str_cat(step.from, " -> ", step.to);
    out.collective = to_string(step.kind);
    for (const auto& [m, name, size] : views::zip(views::iota(0), q.mesh_names, q.mesh_shape)) {
      if (!has(step.dims, m)) continue;
      out.over += (out.over.empty() ? "" : "_") + name;
      out.ranks *= size;
    }
    out.bytes = static_cast<std::int64_t>(step.moved * width);
    out.us = step.time;
    answer.bytes += out.bytes;
    answer.us += out.us;
    answer.steps.push_back(std::move(out));
  }
  return answer;
}

void set_link(ExplainOptions& q, std::string_view text) {
  const auto equals = text.find('=');
  const Link link = parse_link(equals == text.npos ? text : text.substr(equals + 1));
  q.links.resize(q.mesh_shape.size());
  if (equals == text.npos) {
    std::ranges::fill(q.links, link);
    return;
  }
  const auto found = std::ranges::find(q.mesh_names, text.substr(0, equals));
  CS_REQUIRE(found != q.mesh_names.end(), "plan: link '", text, "' names no dimension of the mesh");
  q.links[static_cast<std::size_t>(found - q.mesh_names.begin())] = link;
}

std::ostream& operator<<(std::ostream& out, const PlanExplanation& answer) {
  out << answer.trace << '\n';
  std::size_t width = 7;
  for (const auto& step : answer.steps) width = std::max(width, step.layouts.size());
  const auto row = [&](const auto&... cells) {
    out << fmt::format("{:<{}}  {:<14}  {:<10}  {:>5}  {:>12}  {:>10}\n", cells...);
  };
  row("step", width, "by", "over", "ranks", "bytes", "us");
  for (const auto& step : answer.steps)
    row(step.layouts, width, step.collective, step.over.empty() ? "-" : step.over, step.ranks,
        step.bytes, fmt::format("{:.2f}", step.us));
  row("total", width, "", "", "", answer.bytes, fmt::format("{:.2f}", answer.us));
  return out;
}

ExplainOptions parse_question(std::string_view mesh, std::string_view shape, std::string_view from,
                              std::string_view to, std::string_view dtype) {
  ExplainOptions q;
  for (const std::string_view piece : pieces_of(mesh)) {
    const auto equals = piece.find('=');
    CS_REQUIRE(equals != 0, "plan: mesh '", mesh, "' is not name=size,…");
    const bool named = equals != piece.npos;
    q.mesh_names.push_back(named ? std::string(piece.substr(0, equals))
                                 : str_cat("dim_", q.mesh_shape.size()));
    CS_REQUIRE(std::ranges::count(q.mesh_names, q.mesh_names.back()) == 1, "plan: mesh '", mesh,
               "' has two dimensions '", q.mesh_names.back(), "'");
    q.mesh_shape.push_back(number(named ? piece.substr(equals + 1) : piece, "plan: mesh size", 1));
  }
  const std::vector<std::string_view> sizes = pieces_of(shape);
  CS_REQUIRE(sizes.size() <= 8, "plan: shape '", shape, "' has ", sizes.size(),
             " dimensions; a tensor has at most 8");
  if (!shape.empty())
    for (const std::string_view piece : sizes)
      q.shape.push_back(number(piece, "plan: size", std::int64_t{0}));
  double elements = 1;
  for (const std::int64_t size : q.shape) elements *= static_cast<double>(size);
  CS_REQUIRE(elements <= 1e15, "plan: shape '", shape, "' has more than 1e15 elements");
  q.from = layout_of(from);
  q.to = layout_of(to);
  q.dtype = parse_dtype(dtype);
  return q;
}

}  // namespace coshard
