#pragma once
// Forecasts the cost of a training step: runs the program of llama_step.h as one rank on the device
// `sim`, without data. Values.
#include <memory>
#include <vector>

#include "tools/simulate/ledger.h"
#include "tools/simulate/llama_step.h"

namespace coshard::tools {

// Memory of one GPU, in bytes.
struct MemoryForecast {
  double parameters = 0, gradients = 0, optimizer = 0;
  double activations = 0;         // saved by forward for backward
  double peak = 0, capacity = 0;  // capacity 0: no limit
  bool fits() const { return capacity == 0 || peak <= capacity; }
};

// Times in ns, of the representative rank: whatever is not compute is exposed communication.
struct Forecast {
  std::int64_t step = 0, forward = 0, backward = 0, optimizer = 0;
  std::int64_t compute = 0, exposed = 0, in_flight = 0;  // in_flight: any collective
  double flops = 0;                                      // of GEMMs and attention
  double parameters = 0;                                 // of the whole model
  MemoryForecast memory;
  std::map<std::string, ModuleTimes> modules;
  std::map<std::pair<std::string, std::string>, CollectiveTimes> collectives;
  std::vector<ChromeTrace> trace;  // of that rank, if requested
};

// For the second of two steps: the first creates the optimizer's state. Error{BadInput}: as check()
// of llama_step.h.
Forecast forecast_of(const LlamaRun& run, const ProcessorModel& processor, bool traced = false);

}  // namespace coshard::tools
