#pragma once
// A forecast as text and as JSON.
#include <ostream>

#include "profiling/json.h"
#include "tools/simulate/simulate.h"

namespace coshard::tools {

void print_forecast(std::ostream& out, const SimulateOptions& options, const Question& question,
                    const Forecast& forecast);
// Times in ms, sizes in bytes.
Json forecast_json(const SimulateOptions& options, const Question& question,
                   const Forecast& forecast);

double tokens_per_second(const Question& question, const Forecast& forecast);
// FLOPs of GEMMs and attention per time, as a share of the GPU's GEMM rate.
double utilisation(const Question& question, const Forecast& forecast);

}  // namespace coshard::tools
