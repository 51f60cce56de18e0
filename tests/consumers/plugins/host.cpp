// Loads two shared objects that were linked with the library, and is linked with it, too: what one
// throws or makes, the other and the host know.
#include <coshard/coshard.h>
#include <dlfcn.h>

#include <cstdio>
#include <memory>
#include <stdexcept>

namespace cs = coshard;

template <class F>
F* symbol(void* plugin, const char* name) {
  void* found = dlsym(plugin, name);
  if (found == nullptr) throw std::runtime_error(name);
  return reinterpret_cast<F*>(found);
}

int main(int argc, char** argv) {
  int works = 0;
  for (int i = 1; i < argc; ++i) {
    void* plugin = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
    if (plugin == nullptr) return std::fprintf(stderr, "%s\n", dlerror()), 1;
    symbol<void()>(plugin, "plugin_work")();
    try {
      symbol<void()>(plugin, "plugin_throw")();
    } catch (const cs::Error& error) {
      works += error.kind() == cs::ErrorKind::Timeout;
    }
    cs::WorldOptions one;
    one.ranks = 1;
    cs::run_ranks(one, [&](cs::World& world) -> cs::Task<void> {
      const std::unique_ptr<cs::Module> made(
          symbol<cs::Module*(cs::World&)>(plugin, "plugin_module")(world));
      works += dynamic_cast<cs::nn::Linear*>(made.get()) != nullptr;
      co_return;
    });
  }
  std::printf("plugins: %d of %d\n", works, 2 * (argc - 1));
  return works == 2 * (argc - 1) ? 0 : 1;
}
