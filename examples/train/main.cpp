// Trains a transformer on the bytes of a text, by tensor or data parallelism. `train --help` lists
// the options. SIGINT or SIGTERM ends it early, with a full report; a second one ends it at once
// (stop_signals.h).
#include <atomic>
#include <exception>
#include <iostream>

#include <coshard/runtime/launch/world.h>
#include "examples/train/report.h"
#include "examples/train/stop_signals.h"

namespace coshard::train {
namespace {

void announce(const Options& o, const Text& text) {
  std::cout << o.text << ": " << text.bytes().size() << " bytes, " << text.held_out_blocks()
            << " blocks held out; " << o.layers << " layers of " << o.dim << ", " << o.heads
            << " heads, ffn " << o.ffn << ", " << o.dtype_name << "; " << o.ranks
            << (o.ranks == 1 ? " rank" : " ranks, plan " + o.plan);
  if (o.device != "cpu") std::cout << ", on " << o.device << " by " << o.communicator;
  std::cout << std::endl;
}

void require_printed() {
  std::cout.flush();
  if (!std::cout) fail(ErrorKind::DeviceFailed, "stdout: could not be written");
}

// Returns the exit code: 1 if the loss became non-finite or a file could not be written.
int train(const Options& options) {
  require_writable(options);
  const Text text(options.text, options.seq);
  const StopSignals signals;
  WorldOptions world = options.world();
  world.stop = signals.token();
  Outcome outcome;
  std::atomic<bool> tells{false};  // the process of rank 0 reports
  const Program program = [&](World& world) {
    if (world.rank() == 0) tells = true, announce(options, text);
    return train_rank(world, options, text, outcome);
  };
  run_ranks(world, program);
  if (!tells) return 0;
  const std::vector<Compressor> compressors = compressors_on(text.bytes());
  print_report(std::cout, options, outcome, compressors);
  std::vector<std::string> errors = write_files(options, outcome, compressors);
  if (!options.trace.empty() && errors.empty())
    std::cout << "\ntrace: " << options.trace << " (open it in https://ui.perfetto.dev)\n";
  require_printed();
  if (const std::string error = loss_error(options, outcome); !error.empty())
    errors.push_back(error);
  for (const std::string& error : errors) std::cerr << "train: " + error + '\n' << std::flush;
  return errors.empty() ? 0 : 1;
}

}  // namespace
}  // namespace coshard::train

int main(int argc, char** argv) {
  using coshard::ErrorKind;
  try {
    const auto options = coshard::train::parse_options(argc, argv);
    if (options) return coshard::train::train(*options);
    coshard::train::require_printed();  // the help
    return 0;
  } catch (const coshard::Error& error) {
    std::cerr << std::string("train: ") + error.what() + '\n' << std::flush;
    return error.kind() == ErrorKind::BadInput ? 2 : 1;
  } catch (const std::exception& error) {
    std::cerr << std::string("train: ") + error.what() + '\n' << std::flush;
    return 1;
  }
}
