// A tool for NVTX 3, loaded by its loader (NVTX_INJECTION64_PATH): writes what a process emits to
// the file COSHARD_NVTX_LOG, a line each, words apart by tabs:
//   start ID CATEGORY MESSAGE [SEQUENCE BYTES DIMENSION FROM TO]
//   end ID
//   thread NAME | stream NAME
#include <nvtx3/nvToolsExtCudaRt.h>
#include <nvtx3/nvToolsExtPayload.h>

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <string>

#include "profiling/nvtx.h"

namespace {

std::mutex mutex;  // all below
std::deque<std::string> strings;
std::map<std::uint32_t, std::string> categories;
std::uint64_t next_range = 1;

std::FILE* log_file() {
  const char* path = std::getenv("COSHARD_NVTX_LOG");
  static std::FILE* file = path != nullptr ? std::fopen(path, "a") : stderr;
  return file;
}

std::string text(const void* handle) {
  return handle == nullptr ? "?" : *static_cast<const std::string*>(handle);
}

nvtxDomainHandle_t create_domain(const char* name) {
  const std::scoped_lock lock(mutex);
  strings.emplace_back(name);
  return reinterpret_cast<nvtxDomainHandle_t>(&strings.back());
}

void name_category(nvtxDomainHandle_t, std::uint32_t id, const char* name) {
  const std::scoped_lock lock(mutex);
  categories[id] = name;
}

nvtxStringHandle_t register_string(nvtxDomainHandle_t, const char* words) {
  const std::scoped_lock lock(mutex);
  strings.emplace_back(words);
  return reinterpret_cast<nvtxStringHandle_t>(&strings.back());
}

// Written at once, so that nothing is lost when the process dies.
void write(const std::string& line) {
  std::fprintf(log_file(), "%s\n", line.c_str());
  std::fflush(log_file());
}

std::string collective_words(const nvtxEventAttributes_t& event) {
  if (event.payloadType != NVTX_PAYLOAD_TYPE_EXT) return "";
  const auto* data = reinterpret_cast<const nvtxPayloadData_t*>(event.payload.ullValue);
  if (event.reserved0 != 1 || data->size != sizeof(coshard::NvtxCollective)) return "\tbad payload";
  const auto& c = *static_cast<const coshard::NvtxCollective*>(data->payload);
  return "\t" + std::to_string(c.sequence) + "\t" + std::to_string(c.bytes) + "\t" +
         text(c.dimension) + "\t" + text(c.from) + "\t" + text(c.to);
}

nvtxRangeId_t start_range(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) {
  const std::scoped_lock lock(mutex);
  const bool known = text(domain) == "coshard" &&
                     event->messageType == NVTX_MESSAGE_TYPE_REGISTERED &&
                     event->size == NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  write("start\t" + std::to_string(next_range) + "\t" + categories[event->category] + "\t" +
        (known ? text(event->message.registered) : "?") + collective_words(*event));
  return next_range++;
}

void end_range(nvtxDomainHandle_t, nvtxRangeId_t id) {
  const std::scoped_lock lock(mutex);
  write("end\t" + std::to_string(id));
}

void name_thread(std::uint32_t, const char* name) {
  const std::scoped_lock lock(mutex);
  write(std::string("thread\t") + name);
}

void name_cuda_stream(nvtx_cudaStream_t, const char* name) {
  const std::scoped_lock lock(mutex);
  write(std::string("stream\t") + name);
}

std::uint64_t register_schema(nvtxDomainHandle_t, const nvtxPayloadSchemaAttr_t* schema) {
  const std::scoped_lock lock(mutex);
  std::string line = std::string("schema\t") + schema->name;
  for (std::size_t i = 0; i < schema->numEntries; ++i)
    line += std::string("\t") + schema->entries[i].name;
  write(line);
  return schema->schemaId;
}

template <class F>
void fill(NvtxFunctionTable table, unsigned size, int slot, F* function) {
  if (static_cast<unsigned>(slot) < size)
    *table[slot] = reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_table) {
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  if (callbacks == nullptr) return 0;
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0) return 0;
  fill(table, size, NVTX_CBID_CORE2_DomainCreateA, create_domain);
  fill(table, size, NVTX_CBID_CORE2_DomainNameCategoryA, name_category);
  fill(table, size, NVTX_CBID_CORE2_DomainRegisterStringA, register_string);
  fill(table, size, NVTX_CBID_CORE2_DomainRangeStartEx, start_range);
  fill(table, size, NVTX_CBID_CORE2_DomainRangeEnd, end_range);
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) == 0) return 0;
  fill(table, size, NVTX_CBID_CORE_NameOsThreadA, name_thread);
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CUDART, &table, &size) != 0)
    fill(table, size, NVTX_CBID_CUDART_NameCudaStreamA, name_cuda_stream);
  return 1;
}

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtxExtension(
    nvtxExtModuleInfo_t* module) {
  if (module->moduleId != NVTX_EXT_PAYLOAD_MODULEID || module->segmentsCount == 0) return 0;
  const nvtxExtModuleSegment_t& slots = module->segments[0];
  if (slots.slotCount <= NVTX3EXT_CBID_nvtxPayloadSchemaRegister) return 0;
  slots.functionSlots[NVTX3EXT_CBID_nvtxPayloadSchemaRegister] =
      reinterpret_cast<std::intptr_t>(&register_schema);
  return 1;
}
