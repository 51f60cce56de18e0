#include "runtime/comm/transport.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "runtime/environment.h"

namespace coshard {

std::vector<std::string> transport_settings() {
  constexpr std::array<std::string_view, 8> kBegin = {
      "OMPI_MCA_btl", "OMPI_MCA_mtl",    "OMPI_MCA_pml", "MPIR_CVAR_",
      "UCX_TLS",      "UCX_NET_DEVICES", "FI_PROVIDER",  "FI_TCP_IFACE"};
  std::vector<std::string> found = settings_of(kBegin);
  std::ranges::sort(found);
  return found;
}

// TCP is named, or shared memory is excluded: "^vader", MPIR_CVAR_NOLOCAL.
bool may_be_tcp(const std::vector<std::string>& settings) {
  return std::ranges::any_of(settings, [](const std::string& setting) {
    return setting.find("tcp") != std::string::npos || setting.find('^') != std::string::npos ||
           setting.starts_with("MPIR_CVAR_NOLOCAL");
  });
}

}  // namespace coshard
