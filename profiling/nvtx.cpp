#include "profiling/nvtx.h"

#include <nvtx3/nvToolsExtPayload.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include <coshard/runtime/launch/world.h>

namespace coshard {
namespace {

enum Category : std::uint32_t { kRedistribute = 1, kCompute, kWait, kModule };
constexpr std::array<std::uint32_t, 5> kColors = {0, 0xffe07b39, 0xff4c9f70, 0xffb0413e,
                                                  0xff5b7db1};

// The domain of this process and what is registered in it; the handle is null without a tool.
struct Domain {
  nvtxDomainHandle_t handle = nvtxDomainCreateA("coshard");
  std::uint64_t schema = 0;

  Domain() {
    if (handle == nullptr) return;
    nvtxDomainNameCategoryA(handle, kRedistribute, "redistribute");
    nvtxDomainNameCategoryA(handle, kCompute, "compute");
    nvtxDomainNameCategoryA(handle, kWait, "wait");
    nvtxDomainNameCategoryA(handle, kModule, "module");
    register_schema();
  }

 private:
  static nvtxPayloadSchemaEntry_t entry(std::uint64_t type, const char* name, std::size_t offset) {
    nvtxPayloadSchemaEntry_t made{};
    made.type = type;
    made.name = name;
    made.offset = offset;
    return made;
  }
  void register_schema() {
    constexpr std::uint64_t kText = NVTX_PAYLOAD_ENTRY_TYPE_NVTX_REGISTERED_STRING_HANDLE;
    static const nvtxPayloadSchemaEntry_t entries[] = {
        entry(NVTX_PAYLOAD_ENTRY_TYPE_UINT64, "sequence", offsetof(NvtxCollective, sequence)),
        entry(NVTX_PAYLOAD_ENTRY_TYPE_INT64, "bytes", offsetof(NvtxCollective, bytes)),
        entry(kText, "mesh dimension", offsetof(NvtxCollective, dimension)),
        entry(kText, "from", offsetof(NvtxCollective, from)),
        entry(kText, "to", offsetof(NvtxCollective, to)),
    };
    nvtxPayloadSchemaAttr_t attributes{};
    attributes.fieldMask =
        NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NAME | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_TYPE |
        NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES |
        NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_STATIC_SIZE | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_SCHEMA_ID;
    attributes.name = "coshard collective";
    attributes.type = NVTX_PAYLOAD_SCHEMA_TYPE_STATIC;
    attributes.entries = entries;
    attributes.numEntries = std::size(entries);
    attributes.payloadStaticSize = sizeof(NvtxCollective);
    attributes.schemaId = NVTX_PAYLOAD_SCHEMA_ID_STATIC_START + 1;
    schema = nvtxPayloadSchemaRegister(handle, &attributes);
    // A tool without support for payloads returns 0.
    if (schema == 0) schema = attributes.schemaId;
  }
};

const Domain& nvtx_domain() {
  static const Domain domain;
  return domain;
}

nvtxRangeId_t start(Category category, const void* message,
                    const nvtxPayloadData_t* payload = nullptr) {
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.category = category;
  attributes.colorType = NVTX_COLOR_ARGB;
  attributes.color = kColors[category];
  attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  attributes.message.registered = static_cast<nvtxStringHandle_t>(const_cast<void*>(message));
  if (payload != nullptr) {
    attributes.payloadType = NVTX_PAYLOAD_TYPE_EXT;
    attributes.reserved0 = 1;  // payloads
    attributes.payload.ullValue = reinterpret_cast<std::uintptr_t>(payload);
  }
  return nvtxDomainRangeStartEx(nvtx_domain().handle, &attributes);
}

void end(nvtxRangeId_t range) { nvtxDomainRangeEnd(nvtx_domain().handle, range); }

void end_of(std::unordered_map<std::uint64_t, std::uint64_t>& open, std::uint64_t id) {
  const auto found = open.find(id);
  if (found == open.end()) return;
  end(found->second);
  open.erase(found);
}

[[maybe_unused]] const bool registered = observe_worlds(&make_nvtx_trace);

}  // namespace

NvtxTrace::NvtxTrace(int rank) {
  const std::string name = "rank " + std::to_string(rank);
  nvtxNameOsThreadA(static_cast<std::uint32_t>(::syscall(SYS_gettid)), name.c_str());
}

NvtxTrace::~NvtxTrace() {
  for (const auto* open : {&waits_, &in_flight_})
    for (const auto& [id, range] : *open) end(range);
  for (; !kernels_.empty(); kernels_.pop_back()) end(kernels_.back());
  for (; !modules_.empty(); modules_.pop_back()) end(modules_.back().range);
}

const void* NvtxTrace::text(std::string_view words) {
  if (const auto found = texts_.find(words); found != texts_.end()) return found->second;
  std::string owned(words);
  const void* handle = nvtxDomainRegisterStringA(nvtx_domain().handle, owned.c_str());
  return texts_.emplace(std::move(owned), handle).first->second;
}

const NvtxTrace::Labelled& NvtxTrace::labelled(const CommEvent& event) {
  auto& known = labels_[static_cast<std::size_t>(event.kind)];
  if (const auto found = known.find(event.label); found != known.end()) return found->second;
  std::string name(to_string(event.kind));
  if (!event.label.empty()) name.append(" ").append(event.label);
  const std::size_t arrow = event.label.find("->");
  const bool changes = arrow != std::string_view::npos;
  Labelled made{};
  made.message = text(name);
  made.waiting = text("await " + name);
  made.from = text(changes ? event.label.substr(0, arrow) : "");
  made.to = text(changes ? event.label.substr(arrow + 2) : "");
  return known.emplace(std::string(event.label), made).first->second;
}

void NvtxTrace::issued(const CommEvent& event, std::int64_t) {
  const Labelled& label = labelled(event);
  const NvtxCollective collective{event.sequence, event.bytes, text(event.communicator), label.from,
                                  label.to};
  const nvtxPayloadData_t payload{nvtx_domain().schema, sizeof collective, &collective};
  in_flight_[event.id] = start(kRedistribute, label.message, &payload);
}

void NvtxTrace::awaiting(const CommEvent& event) {
  if (!waits_.contains(event.id)) waits_[event.id] = start(kWait, labelled(event).waiting);
}

void NvtxTrace::stalled(const CommEvent& event, std::int64_t, std::int64_t) {
  if (!event.queued) end_of(waits_, event.id);
}

void NvtxTrace::ready(const CommEvent& event, std::int64_t, std::int64_t, std::int64_t) {
  end_of(waits_, event.id);
  end_of(in_flight_, event.id);
}

void NvtxTrace::computing(std::string_view op, ComputeClass, const DescribeInputs&) {
  kernels_.push_back(start(kCompute, text(op)));
}

void NvtxTrace::computed(std::string_view, ComputeClass, std::int64_t, std::int64_t) {
  if (kernels_.empty()) return;  // it began before this observer did
  end(kernels_.back());
  kernels_.pop_back();
}

void NvtxTrace::module_enter(std::string_view path) {
  modules_.push_back({std::string(path), start(kModule, text(path.empty() ? "model" : path))});
}

void NvtxTrace::module_exit(std::string_view path) {
  const auto last = std::find_if(modules_.rbegin(), modules_.rend(),
                                 [path](const Named& open) { return open.path == path; });
  if (last == modules_.rend()) return;
  end(last->range);
  modules_.erase(std::next(last).base());
}

std::unique_ptr<Observer> make_nvtx_trace(int rank) {
  if (nvtx_domain().handle == nullptr) return nullptr;
  return std::make_unique<NvtxTrace>(rank);
}

}  // namespace coshard
