#include "tools/plan_modules.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include <coshard/dtensor/mesh/spec.h>
#include <coshard/dtensor/redistribute/explain.h>
#include "dtensor/mesh/calibration.h"
#include "dtensor/ops/linear_forecast.h"
#include "profiling/input_file.h"
#include "styles/path_pattern.h"
#include "tools/training_options.h"

namespace coshard::tools {
namespace {

// A linear layer of the transformer, as its plans shard it (styles/nn/transformer.cpp).
struct Linear {
  std::string path;
  int times;  // of as many layers
  std::int64_t in, out;
  int cut;                           // of its weight
  std::optional<ScheduleKind> kind;  // nullopt: no collective next to it
  int together = 1;                  // layers that multiply the shards of one all_gather
};

// Whether `pattern` matches `path` or a parent module of it.
bool covers(std::string_view pattern, std::string_view path) {
  if (pattern.empty()) return true;
  for (std::size_t end = path.find('.');; end = path.find('.', end + 1)) {
    if (matches(pattern, path.substr(0, end))) return true;
    if (end == path.npos) return false;
  }
}

// Of how many layers `pattern` covers the one that has * for their index in its path.
int covered(std::string_view pattern, const Linear& linear) {
  const std::size_t star = linear.path.find('*');
  if (star == std::string::npos) return covers(pattern, linear.path) ? 1 : 0;
  int count = 0;
  for (int i = 0; i < linear.times; ++i)
    if (covers(pattern, std::string(linear.path).replace(star, 1, std::to_string(i)))) ++count;
  return count;
}

std::vector<Linear> linears_of(const PlanModulesOptions& o) {
  using enum ScheduleKind;
  const bool sequence = o.plan == "tp-sp";
  const auto before = sequence ? std::optional(Gather) : std::nullopt;
  const auto after = sequence ? Scatter : Reduce;
  std::vector<Linear> all;
  for (const char* name : {"attn.wq", "attn.wk", "attn.wv"})
    all.push_back({name, o.layers, o.dim, o.dim, 0, before, sequence ? 3 : 1});
  all.push_back({"attn.wo", o.layers, o.dim, o.dim, 1, after});
  for (const char* name : {"mlp.w1", "mlp.w3"})
    all.push_back({name, o.layers, o.dim, o.ffn, 0, before, sequence ? 2 : 1});
  all.push_back({"mlp.w2", o.layers, o.ffn, o.dim, 1, after});
  for (Linear& linear : all) linear.path = "layers.*." + linear.path;
  all.push_back({"output", 1, o.dim, o.vocab, 0, before});
  return all;
}

std::optional<Calibration> read_calibration(const PlanModulesOptions& o) {
  if (o.calibration.empty()) return std::nullopt;
  std::ostringstream text;
  text << open_input(o.calibration, "--calibration").rdbuf();
  auto measured = Calibration::parse(text.str());
  CS_REQUIRE(measured, o.calibration, " is no calibration of this version");
  return measured;
}

// The mesh with which `about` begins: "tp=4 of 4 ranks, …", "(dp=2,tp=4) of 8 ranks, …".
std::string mesh_of(const Calibration& measured) {
  const std::string mesh = measured.about.substr(0, measured.about.find(" of "));
  return mesh.starts_with('(') ? mesh.substr(1, mesh.size() - 2) : mesh;
}

// Shared by all layers.
struct Setting {
  std::optional<Calibration> measured;
  std::optional<Link> link;    // nullopt: unknown
  std::optional<Link> rounds;  // of a gather by shards (round_link)
  std::string measured_on;     // the mesh dimension that `link` is of; empty: --link's, or none
  GemmModel gemm;
  int ranks = 1;
  DType dtype = DType::F32;
};

// Takes the link of the dimension with the same name, of any size; if there is only one, of that.
void take_measured_link(Setting& s, const PlanModulesOptions& o, const ExplainOptions& mesh) {
  const std::string text = mesh_of(*s.measured);
  const ExplainOptions of = parse_question(text, "", "R", "R");
  const auto& links = s.measured->links;
  CS_REQUIRE(of.mesh_shape.size() == links.size(), o.calibration, " is of ", text, ", but has ",
             links.size(), " links");
  const auto found = std::ranges::find(of.mesh_names, mesh.mesh_names[0]);
  CS_REQUIRE(links.size() == 1 || found != of.mesh_names.end(), o.calibration, " is of ", text,
             ": name one of its dimensions, as in --mesh ", of.mesh_names[0], '=', s.ranks);
  const auto at = links.size() == 1 ? 0 : static_cast<std::size_t>(found - of.mesh_names.begin());
  s.measured_on = str_cat(of.mesh_names[at], '=', of.mesh_shape[at]);
  CS_REQUIRE(of.mesh_shape[at] > 1, o.calibration, " has no link of ", s.measured_on,
             ": one rank has none; give --link");
  s.link = links[at].link();
  const auto& rounds = s.measured->rounds;
  if (at < rounds.size() && rounds[at].large_bytes > 0) s.rounds = rounds[at].link();
}

Setting setting_of(const PlanModulesOptions& o) {
  ExplainOptions mesh = parse_question(o.mesh, "", "R", "R", o.dtype);
  CS_REQUIRE(mesh.mesh_shape.size() == 1, "--module: --mesh ", o.mesh, " has ",
             mesh.mesh_shape.size(), " dimensions; name the one of the plan, as tp=4");
  Setting s;
  s.ranks = mesh.mesh_shape[0];
  s.dtype = mesh.dtype;
  CS_REQUIRE(is_floating(s.dtype), "--module: --dtype ", o.dtype, " is not a floating dtype");
  CS_REQUIRE(s.ranks <= kMostRanksOfPlan, "--mesh ", o.mesh, ": more than ", kMostRanksOfPlan,
             " ranks");
  CS_REQUIRE(o.heads % s.ranks == 0, "--heads ", o.heads, " is not divisible by the ", s.ranks,
             " ranks of --mesh ", o.mesh);
  check_heads(o);
  s.measured = read_calibration(o);
  if (s.measured && o.links.empty()) take_measured_link(s, o, mesh);
  for (const std::string& link : o.links) set_link(mesh, link);
  if (!o.links.empty()) s.link = mesh.links[0];
  if (o.communicator != "nccl")
    s.rounds = std::nullopt;
  else if (!s.rounds)
    s.rounds = s.link;
  const bool has_products = s.measured && s.measured->table(s.dtype) != nullptr;
  CS_REQUIRE(!has_products || o.machine.empty(), o.machine, " beside --calibration ", o.calibration,
             ": the file has GEMM times of its own device and threads");
  s.gemm = {s.measured ? s.measured->table(s.dtype) : nullptr, o.device == "cpu" ? o.threads : 0};
  return s;
}

std::string percent(std::int64_t part, std::int64_t whole) {
  const double share =
      static_cast<double>(part) / static_cast<double>(std::max<std::int64_t>(whole, 1));
  return fmt::format("{:.1f} %", 100 * share);
}

struct Row {
  Linear linear;
  std::string collective = "-", choice = "serial", why;
  int pieces = 0;
  // The latter even if not chosen. Of layers that share an all_gather: each has a share of it.
  double serial_ms = 0, overlapped_ms = 0;
};

constexpr const char* kCollectives[] = {"all_gather", "reduce_scatter", "all_reduce"};

void decide(Row& row, const OverlapCase& of, ScheduleKind kind, bool known) {
  const Schedule s = schedule_of(kind, of, known ? Overlap::Auto : Overlap::Off);
  const Schedule best = s ? s : schedule_of(kind, of, Overlap::Always);
  const double share = 1e-6 / static_cast<double>(of.products);
  row.serial_ms = static_cast<double>(s.plain_ns) * share;
  row.overlapped_ms = static_cast<double>(best.ns) * share;
  const std::int64_t times = kind == ScheduleKind::Reduce ? 2 : 1;
  const std::int64_t collective_ns = of.latency_ns + times * (of.ranks - 1) * of.shard_ns;
  if (s) {
    row.choice = kind == ScheduleKind::Gather ? "by shards" : "by rows";
    row.pieces = s.pieces;
    const std::int64_t gain = s.plain_ns - s.ns;
    row.why = fmt::format("{} faster: hides {} of the {}", percent(gain, s.plain_ns),
                          percent(gain, collective_ns), row.collective);
  } else if (!known) {
    row.why = "no link is known: give --link or --calibration";
  } else if (best.ns < s.plain_ns) {
    row.why =
        fmt::format("only {} faster; it takes 1 %", percent(s.plain_ns - best.ns, s.plain_ns));
  } else {
    row.why =
        fmt::format("overlapped it would be {} slower", percent(best.ns - s.plain_ns, s.plain_ns));
  }
}

constexpr double kMostFlops = 1e18, kLongestLayerNs = 1e15;  // of a layer: integers hold its times

void require_countable(const PlanModulesOptions& o, const LinearShape& shape,
                       const std::string& path) {
  const double flops = 2.0 * shape.ranks * static_cast<double>(shape.rows) *
                       static_cast<double>(shape.in) * static_cast<double>(shape.out);
  CS_REQUIRE(flops <= kMostFlops, "--batch ", o.batch, " --seq ", o.seq, " --dim ", o.dim,
             " --ffn ", o.ffn, " --vocab ", o.vocab, ": ", path, " takes ", flops,
             " flops, more than ", kMostFlops);
}

Row row_of(const PlanModulesOptions& o, const Setting& setting, const Linear& linear) {
  Row row{linear};
  LinearShape shape;
  shape.ranks = setting.ranks;
  shape.in = linear.in, shape.out = linear.out, shape.cut = linear.cut;
  shape.dtype = setting.dtype;
  const std::int64_t tokens = static_cast<std::int64_t>(o.batch) * o.seq;
  shape.rows = linear.kind == ScheduleKind::Reduce
                   ? chunk_of(tokens, setting.ranks, 0).size
                   : chunk_of(o.seq, setting.ranks, 0).size * o.batch;
  require_countable(o, shape, linear.path);
  const ScheduleKind kind = linear.kind.value_or(ScheduleKind::Gather);
  OverlapCase of =
      overlap_case(shape, kind, setting.gemm, setting.link.value_or(Link()), setting.rounds);
  of.products = linear.together;
  if (!linear.kind || setting.ranks == 1) {
    row.serial_ms = row.overlapped_ms =
        static_cast<double>(setting.gemm.ns(tokens, of.n, of.k)) * 1e-6;
    row.why = setting.ranks == 1 ? "one rank" : "its input is replicated: there is no collective";
    return row;
  }
  row.collective = kCollectives[static_cast<std::size_t>(kind)];
  CS_REQUIRE(of.ranks * (static_cast<double>(of.latency_ns) + static_cast<double>(of.shard_ns)) <=
                 kLongestLayerNs,
             "--mesh ", o.mesh, ": the ", row.collective, " of ", linear.path, " takes more than ",
             kLongestLayerNs, " ns on this link");
  decide(row, of, kind, setting.link.has_value());
  return row;
}

void print(const std::vector<Row>& rows, std::ostream& out) {
  const auto line = [&](const auto&... cells) {
    out << fmt::format("{:<18} {:>5}  {:<14} {:<9} {:>6} {:>10} {:>13}  {}\n", cells...);
  };
  line("module", "count", "collective", "choice", "pieces", "serial ms", "overlapped ms", "why");
  for (const Row& r : rows)
    line(r.linear.path, r.linear.times, r.collective, r.choice,
         r.pieces == 0 ? "-" : fmt::format("{}", r.pieces), fmt::format("{:.3f}", r.serial_ms),
         fmt::format("{:.3f}", r.overlapped_ms), r.why);
}

void print_json(const PlanModulesOptions& o, const Setting& setting, const std::vector<Row>& rows,
                std::ostream& out) {
  nlohmann::ordered_json json{{"mesh", o.mesh},
                              {"plan", o.plan},
                              {"products", setting.gemm.table ? "measured" : "constant rate"}};
  if (setting.link)
    json["link"] = {{"us", setting.link->latency},
                    {"bytes_per_us", setting.link->bytes_per_us},
                    {"contention", setting.link->contention}};
  if (!setting.measured_on.empty()) json["link"]["measured_on"] = setting.measured_on;
  json["modules"] = nlohmann::ordered_json::array();
  for (const Row& r : rows)
    json["modules"].push_back({{"module", r.linear.path},
                               {"count", r.linear.times},
                               {"collective", r.collective},
                               {"choice", r.choice},
                               {"pieces", r.pieces},
                               {"serial_ms", r.serial_ms},
                               {"overlapped_ms", r.overlapped_ms},
                               {"why", r.why}});
  out << json.dump(2) << '\n';
}

}  // namespace

void explain_modules(const PlanModulesOptions& o, std::ostream& out) {
  const Setting setting = setting_of(o);
  std::vector<Row> rows;
  for (Linear& linear : linears_of(o))
    if ((linear.times = covered(o.module, linear)) > 0) rows.push_back(row_of(o, setting, linear));
  CS_REQUIRE(!rows.empty(), "--module ", o.module, " matches no linear layer of ", o.layers,
             " blocks; those are layers.*.attn.w[qkvo], layers.*.mlp.w[123] and output");
  if (o.json) return print_json(o, setting, rows, out);
  out << fmt::format(
      "forward on {}, link {}{}, GEMM times {}\n", o.mesh,
      setting.link ? fmt::format("{:g} us, {:g} GB/s", setting.link->latency,
                                 setting.link->bytes_per_us * 1e-3)
                   : "unknown",
      setting.measured_on.empty() ? "" : fmt::format(" (measured on {})", setting.measured_on),
      setting.gemm.table ? "as measured" : "by a constant rate");
  print(rows, out);
  if (rows.size() > 1 && o.plan == "tp-sp")
    out << "wq, wk and wv share one all_gather, as w1 and w3 do; each row has its share\n";
}

}  // namespace coshard::tools
