#include "profiling/overlap/trace_file.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>

#include <coshard/runtime/error.h>
#include "profiling/input_file.h"
#include "profiling/json.h"

namespace coshard::overlap {
namespace {

using Kind = TraceEvent::Kind;

std::optional<Kind> kind_of(const std::string& category) {
  static const std::map<std::string, Kind, std::less<>> kinds = {{"kernel", Kind::Kernel},
                                                                 {"collective", Kind::Collective},
                                                                 {"await", Kind::Await},
                                                                 {"module", Kind::Module},
                                                                 {"range", Kind::Range}};
  const auto found = kinds.find(category);
  return found == kinds.end() ? std::nullopt : std::optional(found->second);
}

// Control characters become '?': a terminal obeys them.
std::string text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  std::string text = found != object.end() && found->is_string() ? found->get<std::string>() : "";
  std::ranges::replace_if(
      text, [](char c) { return (c >= 0 && c < ' ') || c == 127; }, '?');
  return text;
}

// The number at the start of the text; -1 if there is none, or one that T does not hold.
template <class T>
T leading_number(std::string_view text) {
  T number = -1;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

constexpr double kLargest = 1e15;  // us, some 30 years; bytes

class Reader {
 public:
  explicit Reader(std::string file) : file_(std::move(file)) {}

  std::vector<RankTrace> read() {
    std::ifstream in = open_input(file_);
    if (in.tellg() >= 0) {
      parse(in);
    } else {  // a pipe, of unknown size
      std::stringstream text;
      text << in.rdbuf();
      parse(text);
    }
    std::vector<RankTrace> found;
    std::set<int> numbers;
    for (auto& [pid, rank] : ranks_) {
      if (rank.rank < 0) continue;
      if (const auto wrong = wrong_.find(pid); wrong != wrong_.end()) refuse(wrong->second);
      if (rank.events.empty()) continue;
      if (!numbers.insert(rank.rank).second)
        refuse(str_cat("has two processes named 'rank ", rank.rank, "'"));
      rank.about = about_;
      if (!link_.empty()) rank.link = link_;
      found.push_back(std::move(rank));
    }
    if (found.empty())
      refuse("has no events of coshard; write_chrome_trace and `train --trace` write some");
    return found;
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    fail(ErrorKind::BadInput, str_cat(file_, ": ", why));
  }

  // Consumes events while parsing: a parsed file would take ten times its size in memory.
  void parse(std::istream& in) {
    const auto take = [this](int depth, Json::parse_event_t event, Json& parsed) {
      if (depth != 2 || event != Json::parse_event_t::object_end) return true;
      take_event(parsed);
      return false;
    };
    try {
      take_about(Json::parse(in, take));
    } catch (const Json::parse_error& error) {
      in.clear();
      in.seekg(0, std::ios::end);
      const auto size = static_cast<std::size_t>(in.tellg());
      if (size == 0) refuse("is empty");
      if (error.byte > size)
        refuse(str_cat("is cut off: its JSON goes on where the file ends, after ", size, " bytes"));
      refuse(str_cat("is not JSON: byte ", error.byte, " is not what must follow there"));
    } catch (const Json::out_of_range&) {
      refuse(str_cat("has a number that is too large, after ", seen_, " events"));
    }
  }

  void take_about(const Json& rest) {
    const auto data = rest.is_object() ? rest.find("otherData") : rest.end();
    if (data == rest.end() || !data->is_object()) return;
    for (const auto& [name, value] : data->items())
      if (value.is_string() && name != "clock") about_[name] = text_of(*data, name.c_str());
    if (const auto link = about_.extract("link")) link_ = link.mapped();
  }

  void take_event(const Json& event) {
    ++seen_;
    const auto pid = event.find("pid");
    if (pid == event.end() || !pid->is_number_integer()) return;
    const auto process = pid->get<std::int64_t>();
    RankTrace& rank = ranks_.try_emplace(process, RankTrace{-1}).first->second;
    if (text_of(event, "ph") == "M") return take_metadata(rank, event);
    const std::optional<Kind> kind = kind_of(text_of(event, "cat"));
    if (!kind || text_of(event, "ph") != "X") return;
    TraceEvent taken{*kind};
    taken.time.begin = std::llround(number(process, event, "ts") * 1000);
    taken.time.end = taken.time.begin + std::llround(number(process, event, "dur") * 1000);
    taken.name = text_of(event, "name");
    constexpr std::string_view kAwait = "await ";
    if (*kind == Kind::Await && taken.name.starts_with(kAwait)) taken.name.erase(0, kAwait.size());
    if (const auto args = event.find("args"); args != event.end() && args->is_object()) {
      taken.module = text_of(*args, "module");
      taken.communicator = text_of(*args, "communicator");
      taken.at = text_of(*args, "at");
      if (args->contains("queued_us")) {
        taken.queued_ns = std::llround(number(process, *args, "queued_us") * 1000);
        if (taken.queued_ns > taken.time.begin)
          wrong_.try_emplace(process, str_cat("event ", seen_, " was issued before time 0"));
        taken.time.begin -= taken.queued_ns;
      }
      if (args->contains("waited_us"))
        taken.time.end =
            taken.time.begin + std::llround(number(process, *args, "waited_us") * 1000);
      if (args->contains("bytes")) taken.bytes = std::llround(number(process, *args, "bytes"));
    }
    rank.events.push_back(std::move(taken));
  }

  static void take_metadata(RankTrace& rank, const Json& event) {
    const auto args = event.find("args");
    if (args == event.end() || !args->is_object()) return;
    const std::string what = text_of(event, "name"), name = text_of(*args, "name");
    if (what == "process_name" && name.starts_with("rank "))
      rank.rank = leading_number<int>(std::string_view(name).substr(5));
    if (what == "process_labels")
      rank.dropped =
          std::max<std::int64_t>(0, leading_number<std::int64_t>(text_of(*args, "labels")));
    constexpr std::string_view kLink = "emulated link ";
    if (const auto at = name.find(kLink); what == "thread_name" && at != std::string::npos)
      rank.link = name.substr(at + kLink.size());
  }

  // 0 if it is not as it should be, which is an error if `pid` is a rank: its name may come later.
  double number(std::int64_t pid, const Json& object, const char* key) {
    const auto found = object.find(key);
    const bool is_number = found != object.end() && found->is_number();
    const double value = is_number ? found->get<double>() : 0;
    if (is_number && value >= 0 && value <= kLargest) return value;
    wrong_.try_emplace(pid, is_number ? str_cat("event ", seen_, " has '", key, "' ", value,
                                                ", outside of 0 to ", kLargest)
                                      : str_cat("event ", seen_, " has no number '", key, "'"));
    return 0;
  }

  std::string file_;
  std::size_t seen_ = 0;
  std::map<std::int64_t, RankTrace> ranks_;    // by pid
  std::map<std::int64_t, std::string> wrong_;  // by pid: the first error
  std::map<std::string, std::string> about_;
  std::string link_;
};

}  // namespace

std::vector<RankTrace> read_trace(const std::string& file) { return Reader(file).read(); }

TimeSet times_of(const RankTrace& rank, Kind kind) {
  std::vector<Interval> found;
  for (const TraceEvent& event : rank.events)
    if (event.kind == kind) found.push_back(event.time);
  return TimeSet(std::move(found));
}

Interval span_of(std::span<const RankTrace> trace) {
  std::optional<Interval> span;
  for (const RankTrace& rank : trace)
    for (const TraceEvent& event : rank.events) {
      if (!span) span = event.time;
      span->begin = std::min(span->begin, event.time.begin);
      span->end = std::max(span->end, event.time.end);
    }
  return span.value_or(Interval());
}

}  // namespace coshard::overlap
