#include "runtime/comm/mpi/mpi_library.h"

#include <dlfcn.h>

#include <filesystem>

#include <coshard/runtime/error.h>
#include "runtime/shared_library.h"

namespace coshard {
namespace {

// The path of the shim if it exists, otherwise its file name alone.
std::string shim_path(const std::string& mpi) {
  for (const std::string& file : shim_places(mpi))
    if (std::filesystem::exists(file)) return file;
  return "libcoshard_" + mpi + ".so";
}

}  // namespace

// Next to the library or program that contains this code, or in the build directory.
std::vector<std::string> shim_places(const std::string& mpi) {
  const std::string name = "libcoshard_" + mpi + ".so";
  // A program's path is as it was invoked: build/train.
  const auto here = std::filesystem::absolute(file_of(reinterpret_cast<const void*>(&mpi_api)));
  return {(here.parent_path() / name).string(),
          (std::filesystem::path(COSHARD_MPI_DIR) / name).string()};
}

std::string loaded_mpi() {
  if (dlsym(RTLD_DEFAULT, "ompi_mpi_comm_world") != nullptr) return "openmpi";
  return dlsym(RTLD_DEFAULT, "MPIR_Err_create_code") != nullptr ? "mpich" : "";
}

bool is_initialised() {
  const auto ask = reinterpret_cast<int (*)(int*)>(dlsym(RTLD_DEFAULT, "MPI_Initialized"));
  int done = 0;
  return ask != nullptr && ask(&done) == 0 && done != 0;
}

bool has_shim(const std::string& mpi) { return shim_path(mpi).front() == '/'; }

const MpiApi& mpi_api(const std::string& mpi, const std::string& why) {
  const std::string remedy =
      str_cat(why, "; build coshard with -Dmpi=enabled where this MPI is installed, or start the ",
              "program as one process, without mpirun or srun");
  static const SharedLibrary shim(shim_path(mpi), remedy);
  const MpiApi* (*get)() = nullptr;
  shim.require(get, "coshard_mpi_api");
  const MpiApi* api = get();
  if (api->version != kMpiApiVersion)
    fail(ErrorKind::Unsupported,
         str_cat("libcoshard_", mpi, ".so has interface version ", api->version,
                 ", libcoshard needs ", kMpiApiVersion, ": install both from one build"));
  return *api;
}

}  // namespace coshard
