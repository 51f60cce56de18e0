#pragma once
// What observers hold, as JSON and back: it travels between processes. Values.
#include <cstdint>

#include <coshard/profiling/chrome_trace.h>
#include <coshard/profiling/comm_summary.h>
#include "profiling/json.h"

namespace coshard {

struct ObserverJson {
  static Json of(const CommSummary& summary);
  static CommSummary summary(const Json& json);
  static Json of(const ChromeTrace& trace);
  // `later`: ns that are added to all times.
  static ChromeTrace trace(const Json& json, std::int64_t later = 0);
};

}  // namespace coshard
