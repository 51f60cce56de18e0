#include "tools/trace/trace_merge.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>

#include <coshard/runtime/error.h>
#include "profiling/json.h"
#include "profiling/output_file.h"

namespace coshard::tools {
namespace {

struct Part {
  std::string file, clock;
  std::int64_t origin = 0;  // ns; time of its first event
  Json about;               // its other metadata
  Json events;
};

// Whether all fields that are read are there; a process_name must come with a pid.
bool is_event(const Json& event) {
  if (!event.is_object()) return false;
  const auto at = event.find("ts"), name = event.find("name"), rank = event.find("pid");
  if (at != event.end() && !at->is_number()) return false;
  if (name != event.end() && !name->is_string()) return false;
  return name == event.end() || *name != "process_name" ||
         (rank != event.end() && rank->is_number_integer());
}

Part checked(Part part) {
  CS_REQUIRE(part.events.is_array(), part.file, ": 'traceEvents' is no array");
  for (std::size_t i = 0; i < part.events.size(); ++i)
    CS_REQUIRE(is_event(part.events[i]), part.file, ": element ", i,
               " of 'traceEvents' is no event of a trace");
  return part;
}

Part read_part(const std::string& name) {
  std::ifstream in = open_input(name);
  try {
    Json all = Json::parse(in);
    Json& data = all.at("otherData");
    Part part{name, data.at("clock"), data.at("origin_ns"), {}, std::move(all.at("traceEvents"))};
    data.erase("clock"), data.erase("origin_ns");
    part.about = std::move(data);
    return checked(std::move(part));
  } catch (const Json::exception&) {
    fail(ErrorKind::BadInput,
         str_cat(name, ": is no trace that write_chrome_trace or `train --trace` has written"));
  }
}

// The file of each rank.
std::map<int, std::string> ranks_of(const std::vector<Part>& parts) {
  std::map<int, std::string> ranks;
  for (const Part& part : parts)
    for (const Json& event : part.events) {
      if (event.value("name", "") != "process_name") continue;
      const int rank = event.at("pid");
      const auto [known, added] = ranks.emplace(rank, part.file);
      CS_REQUIRE(added, part.file, ": has rank ", rank, ", which ", known->second,
                 " has too; write each process's trace with its first_rank");
    }
  return ranks;
}

void shift(Json& event, std::int64_t ns) {
  const auto at = event.find("ts");
  if (at == event.end()) return;
  const auto own = static_cast<std::int64_t>(std::llround(at->get<double>() * 1000));
  *at = static_cast<double>(own + ns) / 1000;
}

void write_parts(std::ostream& file, std::vector<Part>& parts) {
  std::int64_t origin = parts.front().origin;
  for (const Part& part : parts) origin = std::min(origin, part.origin);
  Json data = parts.front().about;
  data["clock"] = parts.front().clock, data["origin_ns"] = origin;
  file << R"({"displayTimeUnit":"ms","otherData":)" << json_text(data) << R"(,"traceEvents":[)";
  const char* between = "\n";
  for (Part& part : parts)
    for (Json& event : part.events) {
      shift(event, part.origin - origin);
      file << std::exchange(between, ",\n") << json_text(event);
    }
  file << "\n]}\n";
}

}  // namespace

void trace_merge(const TraceMergeOptions& options, std::ostream& out) {
  std::vector<Part> parts;
  for (const std::string& file : options.files) {
    CS_REQUIRE(!is_same_file(options.output, file), "-o ", options.output,
               ": is one of the traces, which it would overwrite");
    parts.push_back(read_part(file));
    CS_REQUIRE(parts.back().clock == parts.front().clock, file, ": has another clock than ",
               parts.front().file,
               "; write each process's trace with its clock_offset (docs/measuring.md)");
    CS_REQUIRE(parts.back().about == parts.front().about, file, ": is of ",
               json_text(parts.back().about), ", ", parts.front().file, " of ",
               json_text(parts.front().about));
  }
  const std::map<int, std::string> ranks = ranks_of(parts);
  write_output("-o", options.output, [&](std::ostream& file) { write_parts(file, parts); });
  out << options.output << ": " << ranks.size() << " ranks of " << parts.size() << " files\n";
}

}  // namespace coshard::tools
