// Attributes of streams: they are kept and told; the priority is what they change. What does not live here: flags.
#include <cstring>
#include <map>
#include <mutex>

#include "api/entry.hpp"
#include "stream/stream.hpp"

namespace cudacpu {

using CUstreamAttrID = CUlaunchAttributeID;

struct CUstreamAttrValue {
  uint64_t words[8];  // what it is depends on the attribute
};

namespace {

struct Values {
  std::mutex lock;  // guards the rest; nothing is called under it
  std::map<std::pair<uint64_t, CUstreamAttrID>, CUstreamAttrValue> values;  // by Stream::id, which is never used twice
};

Values& all() {
  static auto* one = new Values();  // never destroyed: calls may come until the process is gone
  return *one;
}

constexpr CUstreamAttrID kept[] = {CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY,
                                   CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN};

// Before it is set: no window, the context's way to wait, domain 0 for the default one and 1 for the remote one.
CUstreamAttrValue initial(CUstreamAttrID which) {
  CUstreamAttrValue value = {};
  if (which == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY) value.words[0] = CU_SYNC_POLICY_AUTO;
  if (which == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP) value.words[0] = 1 << 8;
  return value;
}

bool known(CUstreamAttrID which) {
  for (CUstreamAttrID one : kept) {
    if (one == which) return true;
  }
  return false;
}

CUresult get(const Stream& stream, CUstreamAttrID which, CUstreamAttrValue* out) {
  if (which == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
    int priority = stream.priority.load(std::memory_order_relaxed);
    *out = {};
    std::memcpy(out, &priority, sizeof priority);
    return CUDA_SUCCESS;
  }
  if (!known(which)) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard<std::mutex> hold(all().lock);
  auto found = all().values.find({stream.id, which});
  *out = found == all().values.end() ? initial(which) : found->second;
  return CUDA_SUCCESS;
}

CUresult set(Stream& stream, CUstreamAttrID which, const CUstreamAttrValue& value) {
  if (which == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
    int priority;
    std::memcpy(&priority, &value, sizeof priority);
    if (priority < greatest_priority || priority > least_priority) return CUDA_ERROR_INVALID_VALUE;
    stream.priority.store(priority, std::memory_order_relaxed);  // of what is listed from now on
    return CUDA_SUCCESS;
  }
  if (!known(which)) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard<std::mutex> hold(all().lock);
  all().values[{stream.id, which}] = value;
  return CUDA_SUCCESS;
}

}  // namespace

HCQ_API cuStreamGetAttribute(CUstream stream, CUstreamAttrID which, CUstreamAttrValue* out) {
  return with_stream(stream,
                     [&](const StreamPtr& found) { return out ? get(*found, which, out) : CUDA_ERROR_INVALID_VALUE; });
}

HCQ_API cuStreamSetAttribute(CUstream stream, CUstreamAttrID which, const CUstreamAttrValue* value) {
  return with_stream(
      stream, [&](const StreamPtr& found) { return value ? set(*found, which, *value) : CUDA_ERROR_INVALID_VALUE; });
}

HCQ_API cuStreamCopyAttributes(CUstream to, CUstream from) {
  return with_stream(to, [&](const StreamPtr& target) {
    return with_stream(from, [&](const StreamPtr& source) {
      CUstreamAttrValue value;
      for (CUstreamAttrID which : kept) {
        get(*source, which, &value);
        set(*target, which, value);
      }
      return CUDA_SUCCESS;
    });
  });
}

HCQ_API cuStreamGetAttribute_ptsz(CUstream stream, CUstreamAttrID which, CUstreamAttrValue* out) {
  return cuStreamGetAttribute(ptsz(stream), which, out);
}
HCQ_API cuStreamSetAttribute_ptsz(CUstream stream, CUstreamAttrID which, const CUstreamAttrValue* value) {
  return cuStreamSetAttribute(ptsz(stream), which, value);
}
HCQ_API cuStreamCopyAttributes_ptsz(CUstream to, CUstream from) { return cuStreamCopyAttributes(ptsz(to), ptsz(from)); }

}  // namespace cudacpu
