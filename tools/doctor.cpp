#include "tools/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include <coshard/runtime/error.h>
#include "kernels/libraries.h"
#include "profiling/bench/report.h"
#include "runtime/comm/make_communicator.h"
#include "runtime/device/has_nvtx.h"
#include "runtime/device/make_device.h"
#include "runtime/launch/job.h"
#include "tools/build_info.h"

namespace coshard::tools {
namespace {

const std::vector<int> kArchitectures = {COSHARD_GPU_ARCHITECTURES};
constexpr std::array kMpis = {COSHARD_MPI_SHIMS};  // one empty name: none

class Doctor {
 public:
  Doctor(const DoctorOptions& options, std::ostream& out) : options_(options), out_(out) {}

  int examine() {
    line("compiler", bench::compiler_name());
    line("build", COSHARD_BUILD);
    for (const std::string& name : device_names()) device_kind(parse_device_kind(name));
    line("communicators", communicator_names());
    communicators();
    line("NVTX", COSHARD_HAS_NVTX ? "built in" : "not built in");
    mpi_modules();
    line("Open MPI bench", options_.mpi_program.empty()
                               ? "not built in: `coshard bench` goes without"
                               : options_.mpi_program);
    for (const std::string& text : notes_) out_ << "note: " << text << '\n';
    for (const std::string& text : problems_) out_ << "problem: " << text << '\n';
    return asked_for_fails_ ? 1 : 0;
  }

 private:
  void line(const std::string& what, const std::string& text) {
    out_ << fmt::format("{:<14} {}\n", what, text);
  }
  void problem(bool asked_for, const std::string& what, const std::string& hint = "") {
    problems_.push_back(hint.empty() ? what : what + ": " + hint);
    asked_for_fails_ = asked_for_fails_ || asked_for;
  }
  // A note if it is neither required nor useful on this machine.
  void missing(bool asked_for, bool of_use, const std::string& what, const std::string& hint = "") {
    if (asked_for || of_use) return problem(asked_for, what, hint);
    notes_.push_back(hint.empty() ? what : what + ": " + hint);
  }

  void device_kind(DeviceKind kind) {
    const std::string name(to_string(kind));
    const bool asked_for = options_.device == name;
    const BackendDescription found = describe_backend(kind);
    for (const auto& [what, text] : found.facts) line(name + " " + what, text);
    for (std::size_t i = 0; i < found.devices.size(); ++i)
      device(kind == DeviceKind::Cpu ? name : fmt::format("{}:{}", name, i), found.devices[i]);
    if (found.devices.size() > 1) peer_access(name, found.devices);
    notes_on_place(name, found.devices);
    libraries(kind, asked_for, !found.devices.empty());
    if (!found.problem.empty()) missing(asked_for, false, name + ": " + found.problem, found.hint);
    if (!asked_for || found.devices.empty()) return;
    for (std::size_t i = 0; i < found.devices.size(); ++i) {
      if (kind == DeviceKind::Cuda) has_code_for(i, found.devices[i]);
      try_device(kind, static_cast<int>(i));
    }
  }

  void libraries(DeviceKind kind, bool asked_for, bool of_use) {
    try {
      for (const auto& [what, text] : kernels::libraries_of(kind)) line(what, text);
    } catch (const Error& error) {
      missing(asked_for, of_use, error.message());
    }
  }

  void mpi_modules() {
    line("MPI", options_.mpis.empty() ? "not built in"
                                      : fmt::format("{}", fmt::join(options_.mpis, ", ")));
    for (const std::string& mpi : options_.mpis)
      if (const std::string places = missing_mpi_module(mpi); !places.empty())
        problem(false, mpi + ": its module is missing, " + places,
                "install it from the build of this program");
  }

  void device(const std::string& name, const DeviceDescription& found) {
    constexpr double kGiB = 1024.0 * 1024 * 1024;
    const bool host = found.capability == 0;
    const std::string what =
        host ? fmt::format("{} threads", found.multiprocessors)
             : fmt::format("compute capability {}.{}, {} SMs", found.capability / 10,
                           found.capability % 10, found.multiprocessors);
    line(name, fmt::format("{}, {}, {:.1f} GiB, {:.1f} free", found.name, what,
                           static_cast<double>(found.memory) / kGiB,
                           static_cast<double>(found.free_memory) / kGiB));
    if (!found.place.empty()) line("", found.place);
  }

  void notes_on_place(const std::string& name, const std::vector<DeviceDescription>& devices) {
    for (std::size_t i = 0; i < devices.size(); ++i)
      if (devices[i].name.find(" MIG ") != std::string::npos)
        notes_.push_back(
            fmt::format("{}:{} is a MIG instance: a process uses one, named by "
                        "CUDA_VISIBLE_DEVICES, and NCCL before 2.30 connects no two of a GPU",
                        name, i));
    for (const DeviceDescription& one : devices) {
      if (one.numa_node == devices.front().numa_node) continue;
      notes_.push_back(
          name +
          ": the devices are at several NUMA nodes: start each process at the node of its "
          "device (numactl --cpunodebind=N --membind=N)");
      break;
    }
  }

  // A line per device: which other devices' memory it can access.
  void peer_access(const std::string& name, const std::vector<DeviceDescription>& devices) {
    for (std::size_t i = 0; i < devices.size(); ++i) {
      std::string row;
      for (std::size_t j = 0; j < devices.size(); ++j)
        row += i == j ? " -" : devices[i].peers[j] ? " y" : " n";
      line(i == 0 ? "peer access" : "", fmt::format("{}:{} reaches{}", name, i, row));
    }
  }

  // Machine code runs on its own generation from its version on, PTX on all later ones.
  void has_code_for(std::size_t index, const DeviceDescription& found) {
    const bool runs = std::ranges::any_of(kArchitectures, [&](int arch) {
      return arch <= found.capability &&
             (arch / 10 == found.capability / 10 || arch == kArchitectures.back());
    });
    if (runs) return;
    problem(true,
            fmt::format("cuda:{}: this build has no code for compute capability {}.{}", index,
                        found.capability / 10, found.capability % 10),
            fmt::format("meson configure -Dgpu_arch={}", found.capability));
  }

  void try_device(DeviceKind kind, int index) {
    try {
      const std::shared_ptr<Device> device = make_device(kind, {index, 1});
      std::array<double, 64> there{}, back{};
      for (std::size_t i = 0; i < there.size(); ++i) there[i] = static_cast<double>(i) + 0.5;
      const auto buffer = device->make_buffer(sizeof there);
      device->upload(buffer->data(), there.data(), sizeof there);
      device->download(back.data(), buffer->data(), sizeof back);
      if (there != back)
        problem(true, device->name() + ": memory comes back changed", "look at the kernel's log");
    } catch (const Error& error) {
      problem(true, error.what(), "look at `nvidia-smi`");
    }
  }

  void communicators() {
    const std::string& asked = options_.communicator;
    for (const CommunicatorLibrary& library : communicator_libraries()) {
      if (!library.version.empty()) line(library.communicator + " library", library.version);
      if (!library.problem.empty())
        missing(asked == library.communicator, device_count(DeviceKind::Cuda) > 0, library.problem);
    }
    if (!asked.empty() && !has_communicator(asked))
      problem(true, "communicator '" + asked + "': this build has " + communicator_names(),
              "meson setup -D" + asked + "=enabled");
  }

  const DoctorOptions& options_;
  std::ostream& out_;
  std::vector<std::string> notes_, problems_;
  bool asked_for_fails_ = false;
};

}  // namespace

std::vector<std::string> built_mpis() {
  return *kMpis[0] == '\0' ? std::vector<std::string>()
                           : std::vector<std::string>(kMpis.begin(), kMpis.end());
}

int doctor(const DoctorOptions& options, std::ostream& out) {
  if (!options.device.empty()) parse_device_kind(options.device);
  return Doctor(options, out).examine();
}

}  // namespace coshard::tools
