#pragma once
// Converts observers' data to JSON and back, to send it between processes. Values.
#include <cstdint>

#include <coshard/profiling/chrome_trace.h>
#include <coshard/profiling/comm_summary.h>
#include "profiling/json.h"

namespace coshard {

struct ObserverJson {
  static Json of(const CommSummary& summary);
  static CommSummary summary(const Json& json);
  static Json of(const ChromeTrace& trace);
  // `later`: ns to add to all times.
  static ChromeTrace trace(const Json& json, std::int64_t later = 0);
};

}  // namespace coshard
